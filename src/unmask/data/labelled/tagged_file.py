"""Readers and writer of tagged words: CoNLL's columns, tables, and records of JSON, Parquet, Arrow, or in memory.

Input: columns with one word per line (the first column is the word, the last one its tag; they are separated by spaces,
or by tabs if the first line contains one; a blank line ends a sentence, a line -DOCSTART- begins a document); or rows
with `words` (or `tokens`) and `tags` (or `ner_tags`, `labels`). Output: sentences with tags in IOB2 and with their
location, so that errors can name file and line. A bad line is an error: nothing is silently dropped.

Entities that violate the scheme of a file (such as I- without B- in a file that uses B-) are read as by conlleval, and
counted in `TaggedSentence.irregular`.

Tables of words have the id of their sentence, as the data set of entities on Kaggle: CSV or TSV with a header that
names a column of sentence ids (`Sentence #`), one of words (`Word`), and columns of tags (`Tag`, `POS`). The id may be
in every row, or only in the first one of its sentence. An id that occurs again after another one is that of another
sentence, as where each document counts its own; a note says so. In the other form of the data set, each row is a
sentence, with its text under `Sentence` and lists of tags. The original file is Windows-1252, so this encoding is read
where a file is not UTF-8, with a note.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.data.labelled.delimited import header_separator
from unmask.data.labelled.label_cells import is_missing, parse_list
from unmask.data.labelled.spans import Reading
from unmask.data.labelled.tagged_sentence import (
    TAGS,
    TEXTS,
    WORDS,
    TaggedSentence,
    Tags,
    WordLine,
    join_lines,
    join_words,
    split_text,
)
from unmask.data.text.files import (
    MAX_DOCUMENT,
    decode_text,
    display_name,
    read_text_lines,
    read_text_whole,
)
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

DOCUMENT = "-DOCSTART-"
ID_COLUMNS = ("sentence #", "sentence_id", "sentence id", "sent_id", "sentence_idx", "sentence#", "sentence_number")
WORD_COLUMNS = ("word", "words", "token", "tokens", "sentence")
TAG_COLUMNS = ("tag", "tags", "ner", "ner_tag", "label", "labels", "pos")


def write_columns(sentence: TaggedSentence, tags: Sequence[str]) -> str:
    """Return the lines of a sentence, `word TAB tag`, followed by a blank line.

    Raises:
        UserError: a word contains a tab or a line end, or only spaces, or would mark a document; there are no words.
    """
    for word in sentence.words or [""]:
        if "\t" in word or "\n" in word or not word.strip(" \r") or word.split(" ")[0] == DOCUMENT:
            raise UserError(
                f"the word {word!r} cannot be written in a column",
                file=sentence.file or None,
                line=sentence.line or None,
                remedy=f"write JSON Lines: {argument('out', 'FILE.jsonl')}",
            )
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.words, tags, strict=True)) + "\n"


def read_tagged_records(
    records: Iterator[tuple[int, Any]], columns: Mapping[str, str], gold: bool, known: Tags, *, in_memory: bool = False
) -> Iterator[TaggedSentence]:
    """Yield the sentences of numbered records, which must be words with tags, or without tags also texts.

    Args:
        records: the records.
        columns: "text" (the words) and "label" (their tags) to keys.
        gold: whether to read tags.
        known: receives the tags.
        in_memory: whether they are not from a file.

    Raises:
        UserError: a record is malformed; names its number.
    """
    name = known.name
    word_keys = (columns["text"],) if "text" in columns else WORDS if gold and not in_memory else (*WORDS, *TEXTS)
    tag_keys = (columns["label"],) if "label" in columns else (*TAGS, "label") if in_memory else TAGS
    for number, record in records:
        content = _value(record, word_keys, name, number)[1]
        if not gold and (isinstance(content, str) or is_missing(content)):  # missing in a table, such as None
            yield replace(split_text("" if is_missing(content) else content), file=name, line=number)
            continue
        words = _strings(record, word_keys, name, number)
        if gold and not words:
            raise UserError("there are no words", file=name, line=number, remedy="remove the sentence")
        tags = _strings(record, tag_keys, name, number) if gold else []
        if gold and len(words) != len(tags):
            raise UserError(f"{counted(len(words), 'word')}, but {counted(len(tags), 'tag')}", file=name, line=number)
        try:
            placed = join_words(words)
        except ValueError as error:
            raise UserError(str(error), file=name, line=number) from error
        yield TaggedSentence(*placed, tuple(known.check(tag, number) for tag in tags), name, number)


def delimiter_of(head: str) -> str:
    """Return what separates the columns of a table of words, from the beginning of its file; "": it is none."""

    def fits(cells: Sequence[str]) -> bool:
        names = {cell.strip().lower() for cell in cells}
        return not names.isdisjoint(ID_COLUMNS) and not names.isdisjoint(WORD_COLUMNS)

    return header_separator(re.split(r"[\r\n]", head.lstrip("\ufeff"), maxsplit=1)[0], fits)


def read_sentence_table(
    path: str | Path, delimiter: str, columns: Mapping[str, str], reading: Reading, *, gold: bool
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a table, with tags in its own scheme if `gold`.

    Raises:
        UserError: a row is malformed, or a column is missing.
    """
    name = display_name(path)
    csv.field_size_limit(MAX_DOCUMENT)
    rows = csv.reader(io.StringIO(_read_table(path, name, reading), newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(rows)
        names = [cell.strip().lower() for cell in header]
        id_at = next(at for at, one in enumerate(names) if one in ID_COLUMNS)
        word_at = _table_column(columns.get("text"), names, WORD_COLUMNS, name)
        tag_at = _table_column(columns.get("label"), names, TAG_COLUMNS, name) if gold else 0
        yield from join_lines(_table_rows(rows, names, (id_at, word_at, tag_at), reading, gold), name, gold=gold)
    except csv.Error as error:
        raise UserError(f"not valid CSV ({error})", file=name, line=rows.line_num) from error


def read_columns(path: str | Path, columns: Mapping[str, str], known: Tags, *, gold: bool) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file with a word in each line, with tags in its own scheme if `gold`.

    Args:
        path: the file.
        columns: "text" (the words) and "label" (their tags) to column numbers from 0.
        known: receives the tags.
        gold: whether to read tags.

    Raises:
        UserError: a line is bad; names it.
    """
    yield from join_lines(_column_lines(path, columns, known, gold), known.name, gold=gold)


def _column_lines(path: str | Path, columns: Mapping[str, str], known: Tags, gold: bool) -> Iterator[WordLine | None]:
    """Yield the lines of a file with a word in each; see `read_columns`."""
    name = known.name
    word_at, tag_at = (_number(columns, column, default, name) for column, default in (("text", 0), ("label", -1)))
    document, width, separator = None, 0, " "
    tags, before = set[str](), set[str]()  # of the last column, and of the one before it
    for number, line in read_text_lines(path):
        if not line.strip(" \t"):
            yield None
            continue
        if line.split(" ")[0].split("\t")[0] == DOCUMENT:
            yield None
            document = 0 if document is None else document + 1
            continue
        separator = separator if width else "\t" if "\t" in line else " "
        cells = [
            cell for cell in line.split(separator) if cell or separator == "\t"
        ]  # other white space does not separate
        if "\r" in line and any("\r" in cell for at, cell in enumerate(cells) if at != word_at):
            raise UserError(
                "carriage returns alone end the lines", file=name, line=number, remedy="convert them to \\n"
            )
        _check_cells(cells, width, max(word_at, tag_at), gold, name, number)
        width = len(cells)
        if not cells[word_at].strip("\r"):
            raise UserError("the word is empty", file=name, line=number)
        if gold and width > 2 and word_at != width - 2:
            tags.add(cells[-1].strip())
            before.add(cells[-2].strip())
        yield number, cells[word_at], known.check(cells[tag_at].strip(), number) if gold else "", document

    if "label" not in columns:
        _check_one_column(tags, before, width, name)


def _check_one_column(tags: set[str], before: set[str], width: int, name: str) -> None:
    """Check that the last two columns are not tags of the same kind, such as gold and predicted ones for conlleval.

    What a model predicted may also be O alone.

    Args:
        tags, before: what occurs in the last column, and in the one before it.
        width: number of columns.
        name: name of the file.

    Raises:
        UserError: most tags of one, other than O, are also in the other; or the last is O alone, and the other is not.
    """
    remedy = f"choose the gold tags by number from 0, as in {argument('columns', {'label': width - 2})}"
    shared, others = (tags & before) - {"O"}, before - {"O"}
    if tags == {"O"} and "O" in before and others:
        raise UserError(
            f"the last column is O for all words, and the one before it has other tags, such as {min(others)}: are "
            "these the gold tags, and O what a model predicted, as conlleval reads them?",
            file=name,
            remedy=f"{remedy}, or {argument('columns', {'label': width - 1})} if no word is in an entity",
        )
    if shared and 2 * len(shared) >= min(len(tags - {"O"}), len(before - {"O"})):
        raise UserError(
            f"the last two columns have the same tags, such as {min(shared)}: are these the gold tags and those that a "
            "model predicted, as conlleval reads them, or two levels of entities?",
            file=name,
            remedy=remedy,
        )


def _number(columns: Mapping[str, str], column: str, default: int, name: str) -> int:
    number = columns.get(column)
    if number is not None and not number.isdecimal():
        raise UserError(
            f"{argument('columns', {column: number})}: columns of words have no names", file=name, remedy="use numbers"
        )
    return default if number is None else int(number)


def _check_cells(cells: Sequence[str], width: int, last: int, gold: bool, name: str, line: int) -> None:
    if gold and len(cells) < 2:
        raise UserError(
            f"the word '{cells[0][:40]}' has no tag", file=name, line=line, remedy="lines must be WORD … TAG"
        )
    if width and len(cells) != width:
        raise UserError(f"{counted(len(cells), 'column')}, but the lines before have {width}", file=name, line=line)
    if last >= len(cells):
        raise UserError(f"there is no column {last}, counted from 0", file=name, line=line)


def _value(record: Mapping[str, Any], keys: Sequence[str], name: str, line: int) -> tuple[str, Any]:
    """Return the first key that is present, and its value."""
    key = next((key for key in keys if key in record), None)
    if key is None:
        raise UserError(
            f"no key {' or '.join(keys)}; keys: {', '.join(record)[:200]}",
            file=name,
            line=line,
            remedy=f"pass {argument('columns', {'text': 'WORDS', 'label': 'TAGS'})}",
        )
    return key, record[key]


def _strings(record: Mapping[str, Any], keys: Sequence[str], name: str, line: int) -> list[str]:
    key, values = _value(record, keys, name, line)
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        alone = isinstance(values, str) and not any(mark in values.strip() for mark in " ,[")
        remedy = "make a list of those of each sentence, as by frame.groupby('sentence_id').agg(list) of pandas"
        raise UserError(
            f"'{key}' is not a list of strings",
            file=name,
            line=line,
            remedy=remedy if alone else "give a list for each sentence, and tags by name",
        )
    return list(values)


def _read_table(path: str | Path, name: str, reading: Reading) -> str:
    raw = read_text_whole(path)
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


def _table_column(wanted: str | None, names: Sequence[str], known: Sequence[str], name: str) -> int:
    """Return the column that is wanted, by its name or number, or else the first known name that is present."""
    if wanted is not None and wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    candidates = known if wanted is None else (wanted.strip().lower(),)
    at = next((names.index(one) for one in candidates if one in names), None)
    if at is None:
        key = "text" if known is WORD_COLUMNS else "label"
        raise UserError(
            f"no column {' or '.join(candidates)}; columns: {', '.join(names)}",
            file=name,
            line=1,
            remedy=f"pass {argument('columns', {key: 'NAME'})}",
        )
    return at


def _table_rows(
    rows: Iterator[list[str]], names: Sequence[str], places: tuple[int, int, int], reading: Reading, gold: bool
) -> Iterator[WordLine | None]:
    """Yield the lines, words and tags of a table; see `join_lines`."""
    id_at, word_at, tag_at = places
    name, current, line = reading.name, "", 1
    known, ids, again = Tags(name), set[str](), list[tuple[str, int]]()
    for cells in rows:
        line = getattr(rows, "line_num", line + 1)
        if not any(cells):
            continue
        if len(cells) != len(names):
            raise UserError(f"{counted(len(cells), 'column')} where there should be {len(names)}", file=name, line=line)
        sentence = cells[id_at].strip()
        if sentence and sentence != current:
            yield None
            current = sentence
            if sentence in ids:
                again.append((sentence, line))
            ids.add(sentence)
        row_words, row_tags = [cells[word_at].strip()], [cells[tag_at].strip()]
        if names[word_at] == "sentence":
            row_words, row_tags = row_words[0].split(), _list_in_cell(row_tags[0], name, line) if gold else []
        if "" in row_words:
            raise UserError("the word is empty", file=name, line=line, remedy="fix or remove the row")
        if gold and len(row_words) != len(row_tags):
            numbers = f"{counted(len(row_words), 'word')}, but {counted(len(row_tags), 'tag')}"
            raise UserError(numbers, file=name, line=line)
        row_tags = [known.check(tag, line) for tag in row_tags] if gold else row_words
        yield from ((line, *pair, None) for pair in zip(row_words, row_tags, strict=True))
    if again:
        reading.remarks.append(
            f"{len(again):,} of {len(ids) + len(again):,} sentences have the id of an earlier one, the first "
            f"'{again[0][0]}' in line {again[0][1]:,}: if the rows are out of order, sort them by sentence"
        )


def _list_in_cell(cell: str, name: str, line: int) -> list[str]:
    values = parse_list(cell)
    if values is None:
        raise UserError(f"'{cell[:40]}' is not a list of tags", file=name, line=line)
    return [str(value) for value in values]
