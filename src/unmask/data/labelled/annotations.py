"""Reader of sentences with tags from all formats of annotators, recognized by their content.

Input: files, folders or tables. Output: sentences with tags in IOB2 or of every word, or without tags.

| format | recognized by | reader |
|---|---|---|
| brat | `.ann`, also beside `.txt`; a folder of them | `brat_files` |
| spaCy, binary | `.spacy` | `spacy_file` |
| WebAnno TSV 3 | the first line | `webanno_file` |
| CoNLL-U, MultiCoNER, numbered columns | comments, and numbers of words | `conllu_file` |
| Label Studio's CoNLL export | the line -DOCSTART- -X- O, and ` -X- _ ` | here |
| words with ids of sentences | the header | `sentence_table` |
| doccano, Prodigy, spaCy, Label Studio | the keys of JSON records | `span_records` |
| words with tags | all others | `tagged_file` |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.data.labelled.annotation_tools import WEBANNO_HEADER, is_brat, read_brat, read_spacy, read_webanno
from unmask.data.labelled.columns import UNWEIGHTED, refuse_weights
from unmask.data.labelled.conllu_file import commented_kind, numbers_words, read_commented
from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.records import has_records
from unmask.data.labelled.relations import relate
from unmask.data.labelled.span_records import (
    READ,
    has_words,
    is_annotated,
    is_tuple,
    iterate_values,
    read_values,
    unknown_record,
)
from unmask.data.labelled.spans import Annotated, Inexact, Reading, Units, convert_spans, to_sentence
from unmask.data.labelled.table import ExampleTable, Source
from unmask.data.labelled.tagged_file import delimiter_of, read_columns, read_sentence_table, read_tagged_records
from unmask.data.labelled.tagged_sentence import WORDS, TaggedSentence, Tags, WordLine, in_iob2, join_lines
from unmask.data.text.files import display_name, open_bytes, read_text_lines
from unmask.support.errors import UserError, counted_as
from unmask.support.messages import argument

HEAD = 1 << 13
"""Number of bytes at the beginning of a file by which its format is recognized."""
FOREIGN = ("<", "%PDF", "PK\x03\x04", "{\\rtf")
"""Beginnings of files that no annotator writes as columns: XML and HTML, PDF, archives, RTF."""
_JSON = re.compile(r'\s*(\{\s*"\w|\[\s*[\[{])')
_TAGGED = re.compile(r"<\S*[ \t](?:[^\n]*[ \t])?(?:O|[BIESMWLU]-\S+)[ \t\r]*(?:\n|$)")
"""A word such as <url> with a tag of entities, which is no XML."""
_EXPORT = re.compile(r"(.+) -X- _ (\S.*)")
"""A line of Label Studio's CoNLL export; its labels may contain spaces."""


def read_annotations(
    paths: Sequence[Source],
    *,
    columns: Mapping[str, str],
    kind: str | None = None,
    gold: bool = True,
    notes: list[str] | None = None,
    inexact: Inexact = "adapt",
    units: Units = "auto",
    overlapping: bool = False,
    relations: bool = False,
) -> list[TaggedSentence]:
    """Read all sentences of some files or tables.

    Args:
        paths: files in any of the formats, folders of brat, tables in memory; `-` is standard input.
        columns: "text" and "label" to a column or a key; the label may also be the name of a set of labels, of a layer
            or of an attribute.
        kind: "jsonl" or "conll", if it is not the format of the suffix.
        gold: whether to read tags.
        notes: receives a line for each choice that was made, and for what was adapted or omitted.
        inexact, units: see `spans`.
        overlapping: whether spans may overlap; files with spans then yield sentences with spans instead of tags.
        relations: whether relations between spans are read too, which may overlap.

    Raises:
        UserError: a file is in no format, or malformed, or spans overlap that must not; the message names file and
            line.
    """
    sentences: list[TaggedSentence] = []
    for path in paths:
        reading = Reading(display_name(path), inexact, units, overlapping or relations, relations)
        found = list(_iterate(path, columns, kind, gold, reading, notes))
        if not found:
            omitted = ", ".join(counted_as(count, what) for what, count in reading.omitted.items())
            raise UserError(
                "there are no sentences in the file" + (f", apart from {omitted}" if omitted else ""),
                file=display_name(path),
            )
        if notes is not None:
            notes += reading.notes()
        sentences += found
    return sentences


def iterate_annotations(
    path: Source, *, columns: Mapping[str, str], kind: str | None = None, notes: list[str] | None = None
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file or table without tags, one in memory at a time if the format allows it."""
    reading = Reading(display_name(path))
    yield from _iterate(path, columns, kind, False, reading, notes)
    if notes is not None:
        notes += reading.notes()


def _iterate(
    path: Source, columns: Mapping[str, str], kind: str | None, gold: bool, reading: Reading, notes: list[str] | None
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a source in the format that it is in."""
    refuse_weights(columns, UNWEIGHTED)
    if unknown := sorted(columns.keys() - {"text", *(("label",) if gold else ())}):
        how = "with" if gold else "without"
        raise UserError(f"{argument('columns', {unknown[0]: '…'})} has no effect: sentences are read {how} tags")
    if not isinstance(path, ExampleTable) and kind is None:
        if is_brat(path):
            yield from _with_spans(read_brat(path, reading, gold=gold), reading, gold)
            return
        if str(path).endswith(".spacy"):
            yield from _with_spans(read_spacy(path, gold=gold), reading, gold, counted=True)
            return
    if isinstance(path, ExampleTable) or has_records(path, kind):
        yield from _records(path, columns, kind, gold, reading, notes)
        return
    head = _head(path)
    if kind is None and _JSON.match(head):
        yield from _records(path, columns, "jsonl", gold, reading, notes)
        return
    if (head.startswith(FOREIGN) and not _TAGGED.match(head)) or "\0" in head:
        raise UserError("the file has no words with tags", file=reading.name, remedy=READ)
    if head.startswith(WEBANNO_HEADER):
        pairs = list(read_webanno(path, columns, reading, gold=gold))
        if any(tags for _, tags in pairs):
            plain = (replace(to_sentence(one, reading), tags=tags, spans=None) for one, tags in pairs)
            yield from _in_iob2(plain, gold, notes)
        else:
            yield from _with_spans((one for one, _ in pairs), reading, gold, counted=True)
    elif form := commented_kind(head):
        yield from _in_iob2(read_commented(path, form, columns, reading, gold=gold), gold, notes)
    elif delimiter := delimiter_of(head):
        table = read_sentence_table(path, delimiter, columns, reading, gold=gold)
        yield from _in_iob2(table, gold, notes)
    elif _is_export(head) and not columns:
        yield from _in_iob2(_read_export(path, gold), gold, notes)
    elif "csv" in (kind, suffix_of(str(path)) if kind is None else ""):
        raise UserError(
            "tagged words cannot be read from CSV without ids of their sentences", file=reading.name, remedy=READ
        )
    else:
        if "text" not in columns and numbers_words(head):
            chosen = {"text": 1, "label": 2} if gold else {"text": 1}
            raise UserError(
                "the first column numbers the words, or the sentences",
                file=reading.name,
                remedy=f"choose the columns by number from 0, as in {argument('columns', chosen)}",
            )
        yield from _in_iob2(read_columns(path, columns, Tags(reading.name), gold=gold), gold, notes)


def _in_iob2(sentences: Iterator[TaggedSentence], gold: bool, notes: list[str] | None) -> Iterator[TaggedSentence]:
    if not gold:
        yield from sentences
    elif held := list(sentences):
        yield from in_iob2(held, notes)


def _with_spans(
    texts: Iterator[Annotated], reading: Reading, gold: bool, *, counted: bool = False
) -> Iterator[TaggedSentence]:
    """Yield texts with spans as sentences; `counted`: their offsets are code points already."""
    for annotated in convert_spans(texts, reading) if gold and not counted else texts:
        sentence = to_sentence(annotated, reading)
        if reading.relations:
            sentence = relate(sentence, annotated, reading)
        yield sentence if gold else replace(sentence, tags=(), spans=None)


def _head(path: Any) -> str:
    """Return the beginning of a file; of standard input only what can be read without taking it away."""
    if Path(path).is_dir():
        raise UserError("a folder without files of annotations", file=path, remedy=READ)
    with open_bytes(path) as stream:
        if str(path) == "-":
            peek = getattr(stream, "peek", None)
            raw = peek(HEAD) if peek else b""
        else:
            raw = stream.read(HEAD)
    return bytes(raw).removeprefix(b"\xef\xbb\xbf").decode(errors="replace").replace("\r\n", "\n")


def _is_export(head: str) -> bool:
    lines = head.split("\n")
    return lines[0] == "-DOCSTART- -X- O" and all(_EXPORT.fullmatch(line) for line in lines[1:-1] if line.strip())


def _read_export(path: Any, gold: bool) -> Iterator[TaggedSentence]:
    """Yield the sentences of Label Studio's CoNLL export, whose first line marks no document."""
    name = display_name(path)
    tags = Tags(name)

    def lines() -> Iterator[WordLine | None]:
        for number, line in read_text_lines(path):
            if not line.strip() or (number == 1 and line.startswith("-DOCSTART-")):
                yield None
                continue
            parts = _EXPORT.fullmatch(line)
            if parts is None:
                raise UserError(f"'{line[:40]}' is not a line of this export", file=name, line=number)
            yield number, parts[1], tags.check(parts[2], number) if gold else "", None

    return join_lines(lines(), name, gold=gold)


def _records(
    path: Source, columns: Mapping[str, str], kind: str | None, gold: bool, reading: Reading, notes: list[str] | None
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a source of records: texts with spans, or words with tags."""
    values = iterate_values(path, kind)
    first = next(values, None)
    if first is None:
        return
    values = chain([first], values)
    if has_words(first[1], columns):
        annotated = False
    elif gold:
        held = list(values)
        annotated = any(is_annotated(value, columns) for _, value in held)
        values = iter(held)
    else:
        annotated = is_tuple(first[1]) or is_annotated(first[1], columns)
    if annotated:
        yield from _with_spans(read_values(values, columns, reading, gold=gold), reading, gold)
        return
    in_memory = isinstance(path, ExampleTable)
    records = _checked(values, reading.name, needs_words=gold and not in_memory and "text" not in columns)
    rows = read_tagged_records(records, columns, gold, Tags(reading.name), in_memory=in_memory)
    yield from _in_iob2(rows, gold, notes)


def _checked(
    values: Iterator[tuple[int, Any]], name: str, *, needs_words: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield records that may be words with tags.

    Raises:
        UserError: a value is no object, or has no words, although they have tags.
    """
    for number, value in values:
        if not isinstance(value, dict) or (needs_words and not any(key in value for key in WORDS)):
            raise unknown_record(value, name, number)
        yield number, value
