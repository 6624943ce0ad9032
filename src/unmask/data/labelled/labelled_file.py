"""Reader of labeled rows: named or numbered columns in TSV, CSV, JSON, Parquet or Arrow, or in memory.

Input: files, or tables in memory, and, if the columns have other names or there is no header, `columns
text=NAME_OR_NUMBER,label=…`.
Output: rows with their file and line, so that errors can name them. A bad row is an error: no row is dropped, except
those without a label according to a published format, which are counted.

For the separators of columns see delimited.py, for several labels of one text label_cells.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from unmask.data.labelled.columns import ANSWER, SINGLE, UNWEIGHTED, Fields, SelectedColumns, Wanted, refuse_weights
from unmask.data.labelled.delimited import OWN, SEPARATORS, DelimitedFile, Line, distinct_names
from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.label_cells import SEPARATOR_KEY, WEIGHT, Cell, check_decoded, check_name, is_missing
from unmask.data.labelled.negatives import COLUMN, SCORES, read_negatives, read_scores
from unmask.data.labelled.records import has_records, read_records
from unmask.data.labelled.retrieval_files import find_collection
from unmask.data.labelled.row_labels import Labels, RowLabels, Vote
from unmask.data.labelled.table import ExampleTable, Source
from unmask.data.text.files import display_name, read_text_lines
from unmask.support.errors import EmptySource, UserError, counted, counted_as, nearest
from unmask.support.messages import argument, call
from unmask.support.urls import address_of

TEXTS = ("text", "text_b")
"""Our names of the columns of texts."""
SEVERAL = (COLUMN, "label")
"""Our names of what may be several columns."""
NAMES = (*TEXTS, WEIGHT, *SEVERAL, SEPARATOR_KEY)
"""Keys of `columns`: our names of all columns, and the separator of labels in a cell."""


class Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):  # nothing in it refers back to it
    """An example.

    Attributes:
        values: the requested columns, by our names ("text", "label"; for pairs also "text_b"; maybe "weight").
        file, line: its location; rows that are not lines are numbered from 1.
        labels: all labels of the text, if it may have several; `values` then has no "label".
        probabilities: of soft labels, those of the labels that have one above 0: a distribution over labels, of which
            `values` has the most probable one, or independent ones, of which `labels` has those above one half. None:
            the labels are not soft.
        votes: those by which labels are soft (`Labels`); empty: probabilities were given.
        negatives: texts that do not belong to the first one; see negatives.py.
        scores: those that a teacher gives to the second text, and to each of the negatives; empty: there is none.
        source: of an example that is read without its label, all columns by their names in the file (by numbers, if it
            has no header), as predictions are written beside them.
    """

    values: Mapping[str, str]
    file: str
    line: int
    labels: tuple[str, ...] | None = msgspec.field(default_factory=lambda: None)  # written, as in earlier digests
    probabilities: Mapping[str, float] | None = None
    votes: tuple[Vote, ...] = ()
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    source: Mapping[str, Any] | None = None


def parse_columns(text: str) -> dict[str, str]:
    """Parse `text=NAME_OR_NUMBER,label=…`; those of `SEVERAL` may be several columns, such as `label=joy,fear`.

    Raises:
        UserError: the text does not have this form, or a name before an equals sign is unknown, or there twice.
    """
    columns: dict[str, str] = {}
    for part in text.split(",") if text else ():
        column, equals, header = part.partition("=")
        if part and not equals and (last := next(reversed(columns), "")) in SEVERAL:
            columns[last] += f",{part}"
            continue
        if not equals or not header:
            raise UserError(
                f"{argument('columns', text)}: '{part}' is not NAME=COLUMN", remedy="for example text=3,label=1"
            )
        if column not in NAMES:
            raise UserError(f"{argument('columns', text)}: unknown '{column}'", remedy=nearest(column, NAMES))
        if column in columns:
            both = f"{column}={columns[column]},{header}"
            remedy = f"if both are meant, write {both}" if column in SEVERAL else "name one"
            raise UserError(f"{argument('columns', text)}: '{column}' is there twice", remedy=remedy)
        if header.isdecimal() and len(header) > 6:
            raise UserError(f"{argument('columns', {column: header[:20] + '…'})}: there is no such column")
        columns[column] = header
    return columns


def read_rows(
    paths: Sequence[Source],
    *,
    columns: Mapping[str, str],
    kind: str | None = None,
    gold: bool = True,
    fields: Fields = SINGLE,
    notes: list[str] | None = None,
) -> list[Row]:
    """Read all rows of some files or tables, which must be either all single texts or all pairs.

    Args:
        paths: `.tsv` or `.txt`, `.csv`, `.jsonl` or `.json` (lines or one array), each optionally followed by `.gz`,
            `.xz` or `.zst`; `.parquet`, `.arrow` or `.feather`; `.xlsx`, `.ods`, `.sqlite` or `.db`, optionally
            followed by `#SHEET` or `#TABLE`; directories of `datasets`; tables in memory; `-` is standard input and
            requires `kind`.
        columns: our names to the names in the file, or to numbers from 0, which imply that there is no header.
        kind: the format, if it is not that of the suffix.
        gold: whether to read labels.
        fields: what the rows have.
        notes: receives a line for each file from which rows were omitted, as its format specifies, or whose columns are
            not separated as its suffix says.

    Raises:
        UserError: a column is missing, a row is bad, or there are no rows; the message names file and line.
    """
    rows = list(iterate_rows(paths, columns=columns, kind=kind, gold=gold, fields=fields, notes=notes))
    if not rows:
        raise EmptySource("there are no examples", file=", ".join(map(display_name, paths)))
    first, kind_of_first = rows[0], _kind(rows[0])
    if mixed := next((row for row in rows if _kind(row) != kind_of_first), None):
        what, column = "pairs and single texts", "text_b"
        if bool(mixed.negatives) != bool(first.negatives):
            what, column = "pairs with and without a negative", COLUMN
        elif bool(mixed.scores) != bool(first.scores):
            what, column = f"pairs with and without {SCORES}", SCORES
        if ("label" in mixed.values) != ("label" in first.values):
            what, column = "rows with and without a label", "label"
        raise UserError(
            f"{what} are mixed: {first.file}:{first.line} is of the other kind",
            file=mixed.file,
            line=mixed.line,
            remedy=f"pass {argument('columns', {'text': '…', column: '…'})}" if column in NAMES else f"remove {column}",
        )
    if notes is not None and any(map(str.isdecimal, columns.values())):
        notes += _describe_first(rows)
    return rows


def _describe_first(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a note for each file whose first row may be a header, as its label occurs only there, and is no number."""
    labels = [(row.values["label"],) if "label" in row.values else row.labels or () for row in rows]
    counts = Counter(chain.from_iterable(labels))
    seen = set[str]()
    for row, own in zip(rows, labels, strict=True):
        is_new = row.file not in seen and any(map(str.isalpha, "".join(own)))
        if is_new and all(counts[label] == 1 for label in own) and max(counts.values()) > 1:
            yield f"{row.file}:{row.line}: the label '{', '.join(own)[:80]}' occurs nowhere else: is the row a header?"
        seen.add(row.file)


def _kind(row: Row) -> tuple[Any, ...]:
    return row.values.keys(), bool(row.negatives), bool(row.scores)


def iterate_rows(
    paths: Sequence[Source],
    *,
    columns: Mapping[str, str],
    kind: str | None = None,
    gold: bool = True,
    fields: Fields = SINGLE,
    notes: list[str] | None = None,
) -> Iterator[Row]:
    """Yield the rows of files of any size, one in memory at a time; the arguments are those of `read_rows`.

    Raises:
        UserError: a column is missing, or a row is bad; the message names file and line.
    """
    if unknown := sorted(columns.keys() - set(NAMES)):
        raise UserError(f"{argument('columns', {unknown[0]: '…'})} has no effect", remedy=nearest(unknown[0], NAMES))
    if not (gold and fields.weights):
        refuse_weights(columns, UNWEIGHTED if gold else "no labels are read")
    for column in ("label", SEPARATOR_KEY):
        if column in columns and not gold:
            raise UserError(f"{argument('columns', {column: '…'})} has no effect: no labels are read", remedy="omit it")
    if SEPARATOR_KEY in columns and not fields.several:
        raise UserError(
            f"{argument('columns', {SEPARATOR_KEY: '…'})} has no effect: this task has one label per text",
            remedy="omit it, or choose the task multi-label",
        )
    if COLUMN in columns and not fields.negatives:
        raise UserError(f"{argument('columns', {COLUMN: '…'})} has no effect: this task reads no negatives")
    read = fields if gold else replace(fields, labels=(), several=False, soft=False, negatives=False)
    wanted, label_columns = Wanted.of(columns, read, gold=gold), dict[str, None]()
    for path in paths:
        name, omitted, separators = display_name(path), Counter[str](), list[str]()
        if gold and find_collection(path):
            remedy = f"make rows of it by {call('mine', data=name)}"
            raise UserError("a collection for search, not labeled examples", file=name, remedy=remedy)
        if isinstance(path, ExampleTable) or has_records(path, kind):
            row_labels = RowLabels(name, wanted, cells=False, columns=label_columns)
            yield from _read_records(path, kind, wanted, row_labels, omitted)
        else:
            row_labels = RowLabels(name, wanted, cells=True, columns=label_columns)
            table = _delimited(path, _format(path, kind), wanted)
            yield from _read(table, wanted, row_labels, omitted)
            separators = table.notes()
        label_notes = row_labels.notes()
        if notes is not None:
            notes += separators + label_notes
            for what, count in omitted.items():
                notes.append(f"{name}: omitted, as the format specifies: {counted_as(count, what)}")


def is_plain(path: Source, kind: str | None) -> TypeGuard[str | Path]:
    """Return whether a source is a file of one text per line, for `read_texts`, by its suffix or the given format."""
    if isinstance(path, ExampleTable):
        return False
    return (kind or suffix_of(path)) == "txt"


def read_texts(path: str | Path, *, columns: Mapping[str, str], notes: list[str]) -> list[str]:
    """Read texts from a plain file, one per line; empty lines are omitted and counted in `notes`.

    Raises:
        UserError: the file contains no text, or is not UTF-8; `columns` are given.
    """
    return list(iterate_texts(path, columns=columns, notes=notes))


def iterate_texts(path: str | Path, *, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    """Yield what `read_texts` reads, one text in memory at a time; the note is added at the end of the file."""
    if columns:
        what = f"{argument('columns')} has no effect on a text file: each line is a text"
        raise UserError(what, file=display_name(path), remedy="omit it")
    texts = empty = 0
    records = 0  # lines of JSON
    tabs = set[int]()  # how many the lines have
    for _, line in read_text_lines(path):
        if text := line.strip():
            texts += 1
            tabs.add(line.count("\t"))
            records += text.startswith('{"') and text.endswith("}")
            yield text
        else:
            empty += 1
    if not texts:
        raise EmptySource("there are no texts", file=display_name(path))
    if empty:
        notes.append(f"{display_name(path)}: omitted: {counted(empty, 'empty line')}")
    if records == texts:
        notes.append(
            f"{display_name(path)}: each of the {texts:,} lines is an object of JSON and was read as one text; "
            f"to read its fields, pass {argument('format', 'jsonl')}"
        )
    if texts > 1 and len(tabs) == 1 and (number := tabs.pop()):
        notes.append(
            f"{display_name(path)}: each of the {texts:,} lines has {counted(number, 'tab')} and was read as one text; "
            f"if they are columns, pass {argument('format', 'tsv')}, or 'conll' for words"
        )


def _format(path: str | Path, kind: str | None) -> str:
    """Return the format of a file whose rows are cells."""
    suffix = kind or suffix_of(path)
    suffix = "tsv" if suffix == "txt" else suffix
    if suffix not in OWN:
        if kind:
            raise UserError(
                f"{argument('format', kind)} has no columns of texts",
                file=display_name(path),
                remedy="use tsv, csv or jsonl",
            )
        if str(path) != "-" and not address_of(path) and not Path(path).exists():
            raise UserError("does not exist", file=path, remedy="texts in memory are passed as {'text': [...]}")
        if str(path) != "-" and Path(path).is_dir():
            raise UserError(
                "is a directory, but none that datasets has saved",
                file=display_name(path),
                remedy='of text files, write one of JSON Lines with a line {"text": …} for each',
            )
        if suffix in ("conll", "conllu", "conllup"):
            raise UserError(
                "words with tags, not texts with labels",
                file=display_name(path),
                remedy="choose the task token-classification",
            )
        raise UserError(
            "the format of labeled examples is determined by the file's suffix",
            file=display_name(path),
            remedy=f"rename it to .tsv, .csv, .jsonl or .parquet, or pass {argument('format')}",
        )
    return suffix


def _delimited(path: str | Path, kind: str, wanted: Wanted) -> DelimitedFile:
    """Return a TSV or CSV file, whose separator is recognized by the columns that are wanted."""
    name = display_name(path)
    numbered = wanted.numbered(name)

    def fits(cells: Sequence[str]) -> bool:
        if numbered:
            return numbered.last < len(cells)
        if kind == "tsv" and wanted.may_lack_header(cells):
            return True
        try:
            wanted.named(cells, name, 1)
        except UserError:
            return False
        return True

    return DelimitedFile(path, kind, fits, header=numbered is None)


def _read(table: DelimitedFile, wanted: Wanted, row_labels: RowLabels, omitted: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a TSV or CSV file; count in `omitted` those that the format itself excludes."""
    name = table.name
    rows = _filled(table.rows(), omitted)
    first = next(rows, None)
    if first is None:
        return
    width = len(first[1])
    selected, remaining = _find(first, rows, wanted, name, quotes=table.quotes)
    if selected.last >= width:
        raise UserError(f"there is no column {selected.last}, counted from 0", file=name, line=first[0])
    header = first[1] if remaining is rows else None
    if header is None:
        wanted.check_no_header(selected, first[1], name, first[0])
    names = distinct_names(header) if header else [str(number) for number in range(width)]
    answers = names.index(ANSWER) if ANSWER in names else -1
    for line, cells in remaining:
        if cells == header:
            raise UserError(
                f"the header of line {first[0]} occurs again",
                file=name,
                line=line,
                remedy="remove the line: files were put together with their headers",
            )
        if len(cells) < width and selected.damaged:
            omitted["fragments of rows broken by a line break in a question"] += 1
            continue
        if len(cells) != width:
            quote = f"quote texts with {SEPARATORS[table.separator]}"
            remedy = quote if table.quotes else "a tab inside a text? TSV has no quoting"
            raise UserError(
                f"{counted(len(cells), 'column')} where there should be {width}",
                file=name,
                line=line,
                remedy=remedy if len(cells) > width else "complete or remove the row",
            )
        if answers >= 0 and wanted.rejects(answer := cells[answers].strip()):
            omitted[f"texts whose answer is '{answer}'"] += 1
            continue
        labels = row_labels.read(selected, cells, line)
        chosen = {column: cells[index].strip() for column, index in selected.indices.items()}
        if row := _row(chosen, name, line, selected, omitted, labels, wanted.fields.blank):
            row = _with_negatives(row, selected, names, partial(_stripped, cells))
            if not wanted.gold:
                row = msgspec.structs.replace(row, source=dict(zip(names, cells, strict=True)))
            yield row


def _filled(rows: Iterator[Line], omitted: Counter[str]) -> Iterator[Line]:
    """Yield the rows that are not empty lines; where there is one column, such lines are texts, and are counted."""
    width = 0
    for line, cells in rows:
        if len(cells) > 1 or any(cells):
            width = width or len(cells)
            yield line, cells
        elif width == 1:
            omitted["empty lines"] += 1


def _stripped(cells: Sequence[str], index: int) -> str:
    return cells[index].strip()


def _with_negatives(row: Row, selected: SelectedColumns, names: Sequence[str], value: Callable[[int], Any]) -> Row:
    """Return a row with the negatives, and a teacher's scores, that are in columns of these names.

    Args:
        row: the row.
        selected: which columns have them.
        names: the names of all columns.
        value: returns the value of a column of the row, by its number.
    """
    if not selected.negatives:
        if selected.scores < 0:
            return row
        remedy = f"remove {SCORES}, or give the texts: {COLUMN}, or negative_1, negative_2, …"
        raise UserError(f"{SCORES} has no effect: there are no negatives", file=row.file, line=row.line, remedy=remedy)
    named, cells = zip(*((names[index], value(index)) for index in selected.negatives), strict=True)
    negatives, scores = read_negatives(named, cells, row.file, row.line), tuple[float, ...]()
    if selected.scores >= 0:
        scores = read_scores(value(selected.scores), len(negatives), row.file, row.line)
    return msgspec.structs.replace(row, negatives=negatives, scores=scores)


def _find(
    first: Line, rows: Iterator[Line], wanted: Wanted, name: str, *, quotes: bool
) -> tuple[SelectedColumns, Iterable[Line]]:
    """Return the columns and the rows, which include the first line unless it is a header."""
    if columns := wanted.numbered(name):
        return columns, chain([first], rows)
    try:
        return wanted.named(first[1], name, first[0]), rows
    except UserError:
        if quotes or not wanted.may_lack_header(first[1]):
            raise
    held = [first, *rows]
    return wanted.unnamed(held, name), held


def _read_records(
    source: Source, kind: str | None, wanted: Wanted, row_labels: RowLabels, omitted: Counter[str]
) -> Iterator[Row]:
    """Yield the rows of a source of records; count in `omitted` those that the format itself excludes."""
    name = display_name(source)
    headers: dict[str, str] = {}  # what our columns are named in the first record
    names, selected = list[str](), SelectedColumns({})
    for number, record in read_records(source, kind):
        if wanted.rejects(answer := record.get(ANSWER)):
            omitted[f"texts whose answer is '{answer}'"] += 1
            continue
        if names != [*record]:
            names = [*record]
            selected = wanted.named(names, name, number)
            for column, index in selected.indices.items():
                if (header := headers.setdefault(column, names[index])) != names[index]:
                    raise UserError(
                        f"the {column} was read from '{header}' before, and would be read from '{names[index]}' here",
                        file=name,
                        line=number,
                        remedy=f"complete or remove the record, or pass {argument('columns', {column: 'NAME'})}",
                    )
        values = list(record.values())
        labels = row_labels.read(selected, values, number)
        texts = {
            column: ""
            if wanted.fields.blank and is_missing(values[index])
            else Cell(column, names[index], values[index]).text(name, number).strip()
            for column, index in selected.indices.items()
            if labels is None or column != "label"
        }
        if row := _row(texts, name, number, selected, omitted, labels, wanted.fields.blank):
            row = _with_negatives(row, selected, names, values.__getitem__)
            yield row if wanted.gold else msgspec.structs.replace(row, source=record)


def _row(
    values: dict[str, str],
    name: str,
    line: int,
    selected: SelectedColumns,
    omitted: Counter[str],
    labels: Labels | None,
    blank: bool,
) -> Row | None:
    """Return the row, or None if it is one that its format excludes; `values` has no spaces around, and is changed."""
    if labels is not None:
        values.pop("label", None)
    gold = labels or Labels(None)
    if isinstance(gold.labels, str):
        values["label"] = gold.labels
    if selected.unlabeled is not None and values.get("label") == selected.unlabeled:
        omitted["pairs without a label"] += 1
        return None
    is_labeled = labels is not None or "label" in values
    for column, value in values.items():
        if value or (blank and column in TEXTS and not selected.damaged):
            if is_labeled:
                check_decoded(column, value, name, line)
            continue
        if column != "label" and selected.damaged:
            omitted["pairs with an empty question"] += 1
            return None
        raise UserError(f"the {column} is empty", file=name, line=line, remedy="fix or remove the row")
    if "label" in values:
        check_name(values["label"], name, line)
    several = gold.labels if isinstance(gold.labels, tuple) else None
    return Row(values, name, line, several, gold.probabilities, gold.votes)
