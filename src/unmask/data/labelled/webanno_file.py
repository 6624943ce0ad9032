r"""Reader of WebAnno TSV 3, the export of WebAnno and INCEpTION with all layers.

Input: a file whose first line is `#FORMAT=WebAnno TSV 3.x`; the lines `#T_SP=LAYER|FEATURE|…` (also `#T_CH`, `#T_RL`)
name the columns; each sentence begins with `#Text=`, followed by its tokens, `1-1 TAB 0-5 TAB TOKEN TAB VALUE TAB …`,
and sub-tokens, `1-1.1 TAB …`. A value is `_` (none), `*` (a span without a value) or a name; `NAME[3]` is the span
number 3, which may have several tokens, and `|` separates the spans of one token. Output: a sentence with spans, or
with the tags of all words if the layer has a value for every token (part of speech).

Offsets are UTF-16 units of the whole document, as in Java; here tokens are searched in the text of their sentence
instead, one after the other, so neither units nor line ends matter. Reserved characters have a backslash before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.data.labelled.spans import Annotated, Reading, Span
from unmask.data.text.files import display_name, read_text_lines
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument

HEADER = "#FORMAT=WebAnno TSV 3"
_TOKEN = re.compile(r"\d+-\d+(\.\d+)?")
_ESCAPE = re.compile(r"\\(->|.)", re.DOTALL)
_BARS = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_NUMBERED = re.compile(r"(.*?)(?:(?<!\\)\[(\d+)\])?", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}


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
    sentences = list(_split(path, name, names))
    column = _choose(names, sentences, columns, reading) if gold else -1
    tokens = [cells for sentence in sentences for _, cells in sentence.tokens if "." not in cells[0]]
    every = gold and all(column < len(cells) and _is_single(cells[column]) for cells in tokens)
    for sentence in sentences:
        text, starts, stops, places = _place(sentence, name)
        if not gold or every:
            cells = [cells for _, cells in sentence.tokens if "." not in cells[0]]
            tags = tuple(_unescape(one[column]) for one in cells) if gold else ()
            yield Annotated(text, (), name, sentence.line, (starts, stops)), tags
        else:
            spans = list(_spans(sentence, column, places, name))
            yield Annotated(text, spans, name, sentence.line, (starts, stops)), ()


def _split(path: str | Path, name: str, names: list[str]) -> Iterator[_Sentence]:
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


def _choose(names: Sequence[str], sentences: Sequence[_Sentence], columns: Mapping[str, str], reading: Reading) -> int:
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


_Places = dict[str, tuple[int, int]]


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


def _spans(sentence: _Sentence, column: int, places: _Places, name: str) -> Iterator[Span]:
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
