"""Readers of what annotation tools write in formats of their own, other than JSON: brat, spaCy, WebAnno.

**brat** has a text, and its annotations in a file of the same name that ends in `.ann`. Input: a `.ann` or `.txt` file,
or a folder of them, searched at any depth. Output: a text with spans per file. A line `T1 TAB LABEL START END TAB TEXT`
is a span; `START END;START END` is one of several parts, which words with tags cannot express. A line
`R1 TAB LABEL Arg1:T1 Arg2:T2` is a relation, if they are wanted. Events, attributes, normalizations and notes are not
read.

**spaCy** has `.spacy`, its binary training data. Input: a file of `DocBin`. Output: texts with the spans of the
entities. It needs the package spacy, which knows the hashes of the strings; tokens of spaCy are not used, so that
training and prediction split texts alike.

**WebAnno** and INCEpTION export WebAnno TSV 3 with all layers. Input: a file whose first line is
`#FORMAT=WebAnno TSV 3.x`; the lines `#T_SP=LAYER|FEATURE|…` (also `#T_CH`, `#T_RL`) name the columns; each sentence
begins with `#Text=`, followed by its tokens, `1-1 TAB 0-5 TAB TOKEN TAB VALUE TAB …`, and sub-tokens, `1-1.1 TAB …`. A
value is `_` (none), `*` (a span without a value) or a name; `NAME[3]` is the span number 3, which may have several
tokens, and `|` separates the spans of one token. Output: a sentence with spans, or with the tags of all words if the
layer has a value for every token (part of speech). Offsets are UTF-16 units of the whole document, as in Java; here
tokens are searched in the text of their sentence instead, one after the other, so neither units nor line ends matter.
Reserved characters have a backslash before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from unmask.data.labelled.spans import Annotated, Link, Reading, Span
from unmask.data.text.encodings import encoding_of, refuse_encoding, with_encoding
from unmask.data.text.files import decode_text, display_name, read_text_lines, read_text_whole
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument

_BOUND = re.compile(r"(T\S*)\t(.+?) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")
_RELATION = re.compile(r"R\S*\t(\S+) \S+:(\S+) \S+:(\S+)\s*")
_OTHER = re.compile(r"[ERAMN*#]\S*\t")
WEBANNO_HEADER = "#FORMAT=WebAnno TSV 3"
_TOKEN = re.compile(r"\d+-\d+(\.\d+)?")
_ESCAPE = re.compile(r"\\(->|.)", re.DOTALL)
_BARS = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_NUMBERED = re.compile(r"(.*?)(?:(?<!\\)\[(\d+)\])?", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}
_Places = dict[str, tuple[int, int]]


def is_brat(path: str | Path) -> bool:
    """Return whether a path is a text with annotations beside it, annotations, or a folder that contains such files."""
    path = Path(path)
    if path.is_dir():
        return next(path.rglob("*.ann"), None) is not None
    if path.suffix == ".ann":
        return True
    return path.suffix == ".txt" and path.with_suffix(".ann").is_file()


def read_brat(path: str | Path, reading: Reading, *, gold: bool) -> Iterator[Annotated]:
    """Yield the texts of a file or folder, with spans if `gold`.

    Raises:
        UserError: a line is malformed, or annotations have no text.
    """
    encoding, path = encoding_of(path), Path(path)
    texts = sorted({one.with_suffix(".txt") for one in path.rglob("*.ann")}) if path.is_dir() else []
    if path.is_dir():
        without = [one for one in sorted(path.rglob("*.txt")) if not one.with_suffix(".ann").is_file()]
        if gold and without:
            reading.omitted["texts without a file of annotations"] += len(without)
        elif not gold:
            texts = sorted([*texts, *without])
    for text in texts or [path.with_suffix(".txt")]:
        annotations = text.with_suffix(".ann")
        if not text.is_file():
            raise UserError(f"there is no text {text.name} beside it", file=annotations)
        content = decode_text(read_text_whole(with_encoding(text, encoding)), str(text))  # with its line ends
        annotated = with_encoding(annotations, encoding)
        spans = list(_brat_spans(annotated, content, reading)) if gold else []
        links = list(_brat_links(annotated, reading)) if gold and reading.relations else ()
        if not content.strip():
            reading.omitted["empty texts"] += gold
            if gold:
                continue
        yield Annotated(content, spans, str(annotations if gold else text), 1, links=links)


def read_spacy(path: str | Path, *, gold: bool) -> Iterator[Annotated]:
    """Yield the texts of a file, with spans if `gold`; they are numbered from 1.

    Raises:
        UserError: spacy is not installed, the file is damaged, or an encoding is part of its path.
    """
    refuse_encoding(path)
    name = display_name(path)
    try:
        spacy = import_module("spacy")
        archive = import_module("spacy.tokens").DocBin()
    except ImportError as error:
        raise UserError(
            "needs the package spacy", file=name, remedy="pip install spacy, or convert the file to JSON tuples"
        ) from error
    try:
        documents = list(archive.from_disk(path).get_docs(spacy.blank("xx").vocab))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"cannot be read as .spacy ({error})", file=name) from error
    for number, document in enumerate(documents, 1):
        spans = [Span(one.start_char, one.end_char, one.label_, one.text) for one in document.ents] if gold else []
        if document.text.strip() or not gold:
            yield Annotated(document.text, spans, name, number)


@dataclass
class _Sentence:
    """The lines of a sentence: its text, and the number and the cells of each line of a token or sub-token."""

    line: int
    texts: list[str] = field(default_factory=list)
    tokens: list[tuple[int, list[str]]] = field(default_factory=list)


def read_webanno(
    path: str | Path, columns: Mapping[str, str], reading: Reading, *, gold: bool
) -> Iterator[tuple[Annotated, tuple[str, ...]]]:
    """Yield the sentences of a file, with spans, or with the tag of every token, if `gold`.

    Raises:
        UserError: a line is malformed, the layer is unknown, or there are several and none is chosen.
    """
    name = display_name(path)
    names: list[str] = []
    sentences = list(_split_sentences(path, name, names))
    column = _choose_column(names, sentences, columns, reading) if gold else -1
    tokens = [cells for sentence in sentences for _, cells in sentence.tokens if "." not in cells[0]]
    every = gold and all(column < len(cells) and _is_single(cells[column]) for cells in tokens)
    for sentence in sentences:
        text, starts, stops, places = _place(sentence, name)
        if not gold or every:
            cells = [cells for _, cells in sentence.tokens if "." not in cells[0]]
            tags = tuple(_unescape(one[column]) for one in cells) if gold else ()
            yield Annotated(text, (), name, sentence.line, (starts, stops)), tags
        else:
            spans = list(_webanno_spans(sentence, column, places, name))
            yield Annotated(text, spans, name, sentence.line, (starts, stops)), ()


def _brat_spans(path: str | Path, text: str, reading: Reading) -> Iterator[Span]:
    for number, line in read_text_lines(path):
        if not line.strip() or _OTHER.match(line):
            continue
        bound = _BOUND.fullmatch(line)
        if bound is None:
            raise UserError(
                f"'{line[:60]}' is not a line of annotations",
                file=path,
                line=number,
                remedy="spans must be T1 TAB LABEL START END TAB TEXT",
            )
        name, label, places, stated = bound.groups()
        parts = [tuple(map(int, place.split())) for place in places.split(";")]
        if any(text[before[1] : part[0]].strip() for before, part in pairwise(parts)):  # else only a line end
            what, remedy = f"discontinuous spans of {label}", "annotate a contiguous part of the text"
            reading.inexpressible(what, remedy, display_name(path), number)
            continue
        yield Span(parts[0][0], parts[-1][1], label, stated, number, name)


def _brat_links(path: str | Path, reading: Reading) -> Iterator[Link]:
    """Yield the relations; events and symmetric relations of any number of spans are counted.

    Raises:
        UserError: a line is malformed.
    """
    for number, line in read_text_lines(path):
        if line.startswith(("E", "*")):
            reading.omitted["events" if line.startswith("E") else "relations without a direction (*)"] += 1
        elif line.startswith("R"):
            relation = _RELATION.fullmatch(line)
            if relation is None:
                raise UserError(
                    f"'{line[:60]}' is not a relation",
                    file=path,
                    line=number,
                    remedy="relations must be R1 TAB LABEL Arg1:T1 Arg2:T2",
                )
            yield Link(relation[1], relation[2], relation[3], number)


def _split_sentences(path: str | Path, name: str, names: list[str]) -> Iterator[_Sentence]:
    """Yield the sentences of a file, and add the names of its columns from the third one on to `names`."""
    sentence: _Sentence | None = None
    for number, line in read_text_lines(path):
        if line.startswith(("#T_SP=", "#T_CH=", "#T_RL=")):
            layer, *features = line[6:].split("|")
            short = layer.rpartition(".")[2]
            names += [f"{short}.{feature}" if feature else short for feature in features or [""]]
        elif line.startswith("#Text="):
            if sentence is None or sentence.tokens:
                if sentence:
                    yield sentence
                sentence = _Sentence(number)
            sentence.texts.append(_unescape(line[6:]))
        elif _TOKEN.match(line):
            cells = line.split("\t")
            if sentence is None or len(cells) < 3 or not _TOKEN.fullmatch(cells[0]):
                raise UserError("not a token of a sentence", file=name, line=number, remedy="export the file again")
            sentence.tokens.append((number, cells))
        elif line.strip() and not line.startswith("#"):
            raise UserError(f"'{line[:40]}' is neither a token nor a comment", file=name, line=number)
    if sentence and sentence.tokens:
        yield sentence


def _choose_column(
    names: Sequence[str], sentences: Sequence[_Sentence], columns: Mapping[str, str], reading: Reading
) -> int:
    """Return the column of the chosen feature, or of the only one that has values."""
    wanted = columns.get("label")
    if wanted is not None:
        fitting = [name for name in names if wanted in (name, *name.split("."))]
        if len(fitting) > 1:
            fitting = [name for name in fitting if name.endswith(".value")] or fitting[:0]
        if not fitting:
            shown = argument("columns", {"label": wanted})
            raise UserError(f"{shown} is not one feature", file=reading.name, remedy=nearest(wanted, names))
        return 3 + names.index(fitting[0])
    cells = [cells for sentence in sentences for _, cells in sentence.tokens]
    used = [
        name
        for at, name in enumerate(names, 3)
        if any(len(one) > at and one[at] not in ("_", "*", "") for one in cells)
    ]
    entities = [name for name in used if name == "NamedEntity.value"]
    if entities or len(used) == 1:
        chosen = (entities or used)[0]
        if len(used) > 1:
            reading.remarks.append(
                f"the tags are those of {chosen}; others: {', '.join(one for one in used if one != chosen)}"
            )
        return 3 + names.index(chosen)
    raise UserError(
        f"several layers have values: {', '.join(used)}" if used else "no layer has values",
        file=reading.name,
        remedy=f"choose one by {argument('columns', {'label': used[0]})}" if used else "annotate it",
    )


def _is_single(cell: str) -> bool:
    """Return whether a cell has one value, of one token."""
    return cell not in ("_", "*", "") and not _BARS.search(cell) and not _NUMBERED.fullmatch(cell)[2]  # type: ignore[index]


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _CONTROLS.get(found[1], found[1]), text)


def _place(sentence: _Sentence, name: str) -> tuple[str, tuple[int, ...], tuple[int, ...], _Places]:
    """Return the text of a sentence, the starts and stops of its tokens, and the place of each line's token."""
    text, offset = "\n".join(sentence.texts), 0
    places: _Places = {}
    for number, cells in sentence.tokens:
        token = _unescape(cells[2])
        token = token if text.find(token, offset) >= 0 else cells[2]
        if "." in cells[0]:
            begin = places[cells[0].partition(".")[0]][0]
            places[cells[0]] = _place_within(text, begin, token, cells, sentence)
            continue
        start = text.find(token, offset)
        if not token or start < 0 or text[offset:start].strip():
            raise UserError(f"the token '{cells[2][:40]}' is not in the text of its sentence", file=name, line=number)
        offset = start + len(token)
        places[cells[0]] = start, offset
    starts, stops = zip(*(place for at, place in places.items() if "." not in at), strict=True)
    return text, starts, stops, places


def _place_within(text: str, begin: int, token: str, cells: Sequence[str], sentence: _Sentence) -> tuple[int, int]:
    """Return the place of a sub-token: where it is in the text after the UTF-16 units that precede it in its token."""
    whole = next(other for _, other in sentence.tokens if other[0] == cells[0].partition(".")[0])
    units = int(cells[1].partition("-")[0]) - int(whole[1].partition("-")[0])
    start = begin
    while units > 0:
        units -= 1 + (text[start] > "\uffff")
        start += 1
    if not text.startswith(token, start):
        start = text.find(token, begin)
    return start, start + len(token)


def _webanno_spans(sentence: _Sentence, column: int, places: _Places, name: str) -> Iterator[Span]:
    """Yield the spans of a feature."""
    numbered: dict[str, Span] = {}
    for number, cells in sentence.tokens:
        if column >= len(cells) or cells[column] in ("_", ""):
            continue
        start, end = places[cells[0]]
        for value in _BARS.sub(r"\1" + "\0", cells[column]).split("\0"):
            label, of = _NUMBERED.fullmatch(value).groups()  # type: ignore[union-attr]
            label = _unescape(label)
            if label == "*":
                raise UserError(
                    "a span has no value", file=name, line=number, remedy="give it one, or choose another feature"
                )
            if label == "_":
                continue
            if of is None:
                yield Span(start, end, label, None, number)
            elif of in numbered:
                numbered[of] = numbered[of]._replace(end=end)
            else:
                numbered[of] = Span(start, end, label, None, number)
    yield from numbered.values()
