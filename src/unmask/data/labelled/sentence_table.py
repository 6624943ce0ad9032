"""Reader of tables of words with the id of their sentence, as the data set of entities on Kaggle.

Input: CSV or TSV with a header that names a column of sentence ids (`Sentence #`), one of words (`Word`), and columns
of tags (`Tag`, `POS`). The id may be in every row, or only in the first one of its sentence. In the other form
of the data set, each row is a sentence, with its text under `Sentence` and lists of tags. Output: sentences with tags.

The original file is Windows-1252, so this encoding is read where a file is not UTF-8, with a note.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from unmask.data.labelled.delimited import header_separator
from unmask.data.labelled.label_cells import parse_list
from unmask.data.labelled.plain_tags import Tags
from unmask.data.labelled.spans import Reading
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words
from unmask.data.text.files import MAX_DOCUMENT, MAX_JSON, decode_text, display_name, open_bytes, read_at_most
from unmask.support.errors import UserError
from unmask.support.messages import argument

IDS = ("sentence #", "sentence_id", "sentence id", "sent_id", "sentence_idx", "sentence#", "sentence_number")
WORDS = ("word", "words", "token", "tokens", "sentence")
TAGS = ("tag", "tags", "ner", "ner_tag", "label", "labels", "pos")


def delimiter_of(head: str) -> str:
    """Return what separates the columns of a table of words, from the beginning of its file; "": it is none."""

    def fits(cells: Sequence[str]) -> bool:
        names = {cell.strip().lower() for cell in cells}
        return not names.isdisjoint(IDS) and not names.isdisjoint(WORDS)

    return header_separator(head.lstrip("\ufeff").split("\n")[0].rstrip("\r"), fits)


def read_sentence_table(
    path: str | Path, delimiter: str, columns: Mapping[str, str], reading: Reading, *, gold: bool
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a table, with tags in its own scheme if `gold`.

    Raises:
        UserError: a row is malformed, or a column is missing.
    """
    name = display_name(path)
    csv.field_size_limit(MAX_DOCUMENT)
    rows = csv.reader(io.StringIO(_read(path, name, reading), newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(rows)
        names = [cell.strip().lower() for cell in header]
        id_at = next(at for at, one in enumerate(names) if one in IDS)
        word_at = _column(columns.get("text"), names, WORDS, name)
        tag_at = _column(columns.get("label"), names, TAGS, name) if gold else 0
        yield from _sentences(rows, names, (id_at, word_at, tag_at), name, gold)
    except csv.Error as error:
        raise UserError(f"not valid CSV ({error})", file=name, line=rows.line_num) from error


def _read(path: str | Path, name: str, reading: Reading) -> str:
    with open_bytes(path) as stream:
        raw = read_at_most(stream, MAX_JSON + 1)
    if len(raw) > MAX_JSON:
        raise UserError(f"more than {MAX_JSON:,} bytes", file=name, remedy="split it into several files")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        try:
            text = raw.decode("cp1252")
        except UnicodeDecodeError:
            return decode_text(raw, name)  # names the line
        reading.remarks.append(f"read as Windows-1252, because line {line:,} is not UTF-8")
        return text


def _column(wanted: str | None, names: Sequence[str], known: Sequence[str], name: str) -> int:
    """Return the column that is wanted, by its name or number, or else the first known name that is present."""
    if wanted is not None and wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    candidates = known if wanted is None else (wanted.strip().lower(),)
    at = next((names.index(one) for one in candidates if one in names), None)
    if at is None:
        key = "text" if known is WORDS else "label"
        raise UserError(
            f"no column {' or '.join(candidates)}; columns: {', '.join(names)}",
            file=name,
            line=1,
            remedy=f"pass {argument('columns', {key: 'NAME'})}",
        )
    return at


def _sentences(
    rows: Iterator[list[str]], names: Sequence[str], places: tuple[int, int, int], name: str, gold: bool
) -> Iterator[TaggedSentence]:
    id_at, word_at, tag_at = places
    known, current, first = Tags(name), "", 0
    words: list[str] = []
    tags: list[str] = []

    def finished() -> Iterator[TaggedSentence]:
        if words:
            yield TaggedSentence(*join_words(words), tuple(tags), name, first, 1)
            words.clear()
            tags.clear()

    line = 1
    for cells in rows:
        line = getattr(rows, "line_num", line + 1)
        if not any(cells):
            continue
        if len(cells) != len(names):
            raise UserError(f"{len(cells)} columns where there should be {len(names)}", file=name, line=line)
        sentence = cells[id_at].strip()
        if sentence and sentence != current:
            yield from finished()
            current = sentence
        if not words:
            first = line
        row_words, row_tags = [cells[word_at].strip()], [cells[tag_at].strip()]
        if names[word_at] == "sentence":
            row_words, row_tags = row_words[0].split(), _list(row_tags[0], name, line) if gold else []
        if "" in row_words:
            raise UserError("the word is empty", file=name, line=line, remedy="fix or remove the row")
        if gold and len(row_words) != len(row_tags):
            raise UserError(f"{len(row_words)} words, but {len(row_tags)} tags", file=name, line=line)
        words += row_words
        tags += [known.check(tag, line) for tag in row_tags] if gold else []
    yield from finished()


def _list(cell: str, name: str, line: int) -> list[str]:
    values = parse_list(cell)
    if values is None:
        raise UserError(f"'{cell[:40]}' is not a list of tags", file=name, line=line)
    return [str(value) for value in values]
