"""Reader of columns with comments: CoNLL-U (and CoNLL-U Plus), MultiCoNER, and numbered columns (UNER, GermEval).

Input: one word per line, lines of comments before each sentence, a blank line after it. Output: sentences with tags.

- CoNLL-U: 10 columns, separated by tabs, or those that `# global.columns` names. Words are syntactic words: lines of
  multiword tokens (1-2) and empty nodes (1.1) are omitted and counted. The text is that of `# text` if the words are in
  it one after the other; otherwise it is joined from the words, without a space after a word with SpaceAfter=No.
- MultiCoNER: `# id … domain=…`, then `WORD _ _ TAG`.
- Numbered columns: the number of the word, the word, and its tags.

The tags are those of a column, by name or number from 0, or of an attribute in MISC, such as NER=B-PER. Unless one is
chosen, they are those of the attribute in MISC that has tags of entities, otherwise UPOS; in numbered columns, those of
the third.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.data.labelled.spans import Reading
from unmask.data.labelled.tagged_sentence import TaggedSentence, Tags, join_words
from unmask.data.text.files import display_name, read_text_lines
from unmask.metrics.token_classification import is_word_tag
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NUMBER = re.compile(r"\d+([-.]\d+)?")
_ID = re.compile(r"# id \S+")
_COMMENT = re.compile(r"#\s*([\w.:-]+)\s*(?:=\s*(.*))?")
_GLOBAL = re.compile(r"#\s*global\.columns\s*=\s*(.*)")


@dataclass
class _Block:
    """The lines of a sentence: its number and the cells of each word, and its comments by name."""

    comments: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    omitted: int = 0
    document: int | None = None


def commented_kind(head: str) -> str:
    """Return "conllu", "numbered", "multiconer" or "" for the beginning of a file."""
    lines = [line for line in head.split("\n") if line.strip()]
    if lines and _ID.match(lines[0]) and len(lines) > 1 and not NUMBER.fullmatch(lines[1].split("\t")[0]):
        return "multiconer"
    words = [line for line in lines if not line.startswith("#")]
    if not words:
        return ""
    cells = words[0].rstrip("\r").split("\t")
    numbered = len(cells) > 2 and NUMBER.fullmatch(cells[0]) is not None and int(re.split("[-.]", cells[0])[0]) <= 1
    if not numbered:
        return ""
    if len(cells) == len(COLUMNS) or any(_GLOBAL.match(line) for line in lines):
        return "conllu"
    return "numbered" if lines[0].startswith("#") else ""


def numbers_words(head: str) -> bool:
    """Return whether the first column at the beginning of a file without comments numbers words or sentences.

    The words of a text would hardly count from 0 or 1 in each sentence, or be the same number in each.
    """
    numbers, most = list[str](), 0
    for line in [*head.split("\n")[:-1], ""]:  # the last one may be incomplete
        cells = line.split()
        if cells and len(cells) < 3:
            return False
        if cells:
            numbers.append(cells[0])
            continue
        start = int(numbers[:1] == ["1"])
        counted = numbers == list(map(str, range(start, start + len(numbers))))
        if not counted and not (len(set(numbers)) == 1 and numbers[0].isdecimal()):
            return False
        most, numbers = max(most, len(numbers)), []
    return most > 1


def read_commented(
    path: str | Path, form: str, columns: Mapping[str, str], reading: Reading, *, gold: bool
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file, with tags in its own scheme if `gold`.

    Args:
        form: what `commented_kind` returned.

    Raises:
        UserError: a line is malformed, or the column of tags is unknown or empty.
    """
    name = display_name(path)
    names: list[str] = [*COLUMNS] if form == "conllu" else []
    blocks: Iterator[_Block] | list[_Block] = _split(path, form, name, names)
    word = _index(columns.get("text"), names, 0 if form == "multiconer" else 1, name)
    default = -1 if form == "multiconer" else 2
    tag: int | str = default
    if gold:
        blocks = list(blocks)
        if form == "conllu":
            tag = _choose(names, blocks, columns, reading)
        else:
            tag = _index(columns.get("label"), names, default, name)
    tags = Tags(name)
    for block in blocks:
        words = [_cell(cells, word, name, number) for number, cells in block.rows]
        found = (
            tuple(tags.check(_tag(cells, tag, names, name, number), number) for number, cells in block.rows)
            if gold
            else ()
        )
        if block.omitted and gold:
            reading.omitted["lines of multiword tokens and of empty nodes, whose words are read"] += block.omitted
        try:
            placed = _align(words, block.comments.get("text", "")) or _join(words, block, names)
        except ValueError as error:
            raise UserError(str(error), file=name, line=block.rows[0][0]) from error
        step = 0 if block.omitted else 1
        yield TaggedSentence(*placed, found, name, block.rows[0][0], step, block.document)


def _split(path: str | Path, form: str, name: str, names: list[str]) -> Iterator[_Block]:
    block, width, document = _Block(), 0, None
    for number, line in read_text_lines(path):
        if not line.strip():
            if block.rows:
                yield block
                block = _Block()
            continue
        if line.startswith("#") and not block.rows and (form != "multiconer" or _ID.match(line)):
            if found := _GLOBAL.match(line):
                names[:] = found[1].split()
            elif found := _COMMENT.match(line):
                block.comments[found[1]] = (found[2] or "").strip()
                if found[1] == "newdoc":
                    document = 0 if document is None else document + 1
            continue
        cells = (
            [cell for cell in line.split(" ") if cell]
            if form == "multiconer" and "\t" not in line
            else line.split("\t")
        )
        width = width or len(cells)
        if len(cells) != width:
            columns = counted(len(cells), "column")
            raise UserError(f"{columns}, but the lines before have {width}", file=name, line=number)
        block.document = document
        if form != "multiconer" and not NUMBER.fullmatch(cells[0]):
            raise UserError(f"'{cells[0][:40]}' is not the number of a word", file=name, line=number)
        if form == "conllu" and not cells[0].isdecimal():
            block.omitted += 1
            if "-" in cells[0]:
                block.comments[f"multiword {cells[0].partition('-')[2]}"] = cells[-1]
            continue
        block.rows.append((number, cells))
    if block.rows:
        yield block


def _index(wanted: str | None, names: Sequence[str], default: int, name: str) -> int:
    if wanted is None:
        return default
    if wanted.isdecimal():
        return int(wanted)
    if wanted.upper() in names:
        return names.index(wanted.upper())
    remedy = f"its columns: {', '.join(names)}" if names else "use numbers from 0"
    raise UserError(f"there is no column '{wanted}'", file=name, remedy=remedy)


def _attributes(cell: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in cell.split("|"))
    return {key: value for key, equals, value in pairs if equals}


def _choose(names: Sequence[str], blocks: Sequence[_Block], columns: Mapping[str, str], reading: Reading) -> int | str:
    """Return the column of the tags, or the name of an attribute in MISC."""
    wanted = columns.get("label")
    if wanted is not None and (wanted.isdecimal() or wanted.upper() in names):
        return _index(wanted, names, 0, reading.name)
    values: dict[str, set[str]] = {}
    if "MISC" in names:
        at = names.index("MISC")
        for block in blocks:
            for _, cells in block.rows:
                for key, value in _attributes(cells[at] if at < len(cells) else "").items():
                    values.setdefault(key, set()).add(value)
    if wanted is not None:
        if wanted in values:
            return wanted
        known = ", ".join((*names, *sorted(values)))
        shown = argument("columns", {"label": wanted})
        raise UserError(f"{shown}: there is no such column", file=reading.name, remedy=f"known: {known[:300]}")
    entities = [key for key, found in values.items() if found - {"O"} and not any(map(is_word_tag, found))]
    if entities:
        reading.remarks.append(
            f"the tags are those of {entities[0]} in MISC; {argument('columns', {'label': 'UPOS'})} would read "
            "parts of speech"
        )
        return entities[0]
    if "UPOS" not in names:
        raise UserError(
            "there is no column UPOS",
            file=reading.name,
            remedy=f"choose one of {', '.join(names)} by {argument('columns', {'label': 'NAME'})}",
        )
    reading.remarks.append(
        f"the tags are those of UPOS; {argument('columns', {'label': 'NAME'})} would read another column, or an "
        "attribute in MISC"
    )
    return names.index("UPOS")


def _cell(cells: Sequence[str], at: int, name: str, line: int) -> str:
    if at >= len(cells):
        raise UserError(f"there is no column {at}, counted from 0", file=name, line=line)
    return cells[at]


def _tag(cells: Sequence[str], tag: int | str, names: Sequence[str], name: str, line: int) -> str:
    """Return the tag of a word; a word without the attribute of entities is outside of them."""
    if isinstance(tag, str):
        return _attributes(_cell(cells, names.index("MISC"), name, line)).get(tag, "O")
    value = _cell(cells, tag, name, line).strip()
    if value in ("_", ""):
        column = names[tag] if 0 <= tag < len(names) else "tag"
        raise UserError(
            f"the word '{cells[min(1, len(cells) - 1)][:40]}' has no {column}",
            file=name,
            line=line,
            remedy=f"choose another column by {argument('columns', {'label': 'NAME'})}",
        )
    return value


_Placed = tuple[str, tuple[int, ...], tuple[int, ...]]


def _align(words: Sequence[str], text: str) -> _Placed | None:
    """Return a text and the places of its words; None: they are not in it one after the other."""
    starts, stops, offset = [], [], 0
    for word in words:
        start = text.find(word, offset)
        if start < 0 or not word or text[offset:start].strip():
            return None
        offset = start + len(word)
        starts.append(start)
        stops.append(offset)
    return None if text[offset:].strip() else (text, tuple(starts), tuple(stops))


def _join(words: Sequence[str], block: _Block, names: Sequence[str]) -> _Placed:
    """Join words into a text, without a space where MISC says so."""
    if "MISC" not in names:
        return join_words(words)
    at, spaced = names.index("MISC"), [False]
    for _, cells in block.rows:
        misc = cells[at] + "|" + block.comments.get(f"multiword {cells[0]}", "")
        spaced.append("SpaceAfter=No" not in misc.split("|"))
    return join_words(words, spaced)
