"""Reader of records with annotations by offsets: doccano, Prodigy, spaCy's training tuples, Label Studio.

Input: JSON Lines, a JSON array, or a table, whose records are objects, or lists [text, {"entities": […]}]. Output:
texts with spans. What a record is, its keys tell:

- doccano: a text, and `label` (or `labels`, `entities`, `annotations`), a list of [start, end, label] or of objects
  with `start_offset`, `end_offset` and `label`;
- Prodigy: a text, and `spans`, objects with `start`, `end` and `label`, or `token_start`, `token_end` and `label`;
  `answer` says whether the text was accepted, and others are omitted;
- spaCy: a text and {"entities": [[start, end, label], …]}, in a list, or as the `annotations` of an object;
- Label Studio: see `label_studio`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.json_file import Place, decode_json, suffix_of
from unmask.data.labelled.label_studio import is_region, is_task, label_sets, read_task, sets_of_record
from unmask.data.labelled.records import is_table, read_records
from unmask.data.labelled.relations import read_links
from unmask.data.labelled.spans import Annotated, Reading, Span, check_label, check_offset, choose_set
from unmask.data.labelled.table import ExampleTable, Source
from unmask.data.labelled.tagged_sentence import TAGS, TEXTS, WORDS
from unmask.data.text.files import decode_value, display_name, read_text_lines, read_text_start
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument

SPANS = ("spans", "entities", "label", "labels", "annotations", "ents")
"""Keys of lists of spans, unless `columns` gives another."""
TEXT = (*TEXTS, "data", "content")
"""Keys of the text."""
STARTS = ("start", "start_offset", "begin")
ENDS = ("end", "end_offset", "stop")
LABELS = ("label", "labels", "tag", "type", "category", "entity_group")


def iterate_values(source: Source, kind: str | None) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of a source of records, and the number of the line or row of each.

    Unlike `read_records`, values may also be lists, which spaCy's tuples are.

    Raises:
        UserError: the source cannot be read; the message names line or row.
    """
    if isinstance(source, ExampleTable) or is_table(source, kind):
        yield from read_records(source, kind)
        return
    name = display_name(source)
    if str(source) != "-" and _is_array(source):
        values = decode_json(source, Place(name, form="JSON"))
        if isinstance(values, list):
            yield from enumerate(values, 1)
            return
    for number, line in read_text_lines(source):
        if line.strip():
            value = decode_value(line, name, number)
            pairs = value.get("annotations") if isinstance(value, dict) else None
            if isinstance(pairs, list) and any(is_tuple(pair) for pair in pairs):  # of the NER Annotator of tecoholic
                yield from ((number, pair) for pair in pairs if pair is not None)
            else:
                yield number, value


def _is_array(path: str | Path) -> bool:
    """Return whether a file is one JSON array, rather than a value in each line."""
    start = read_text_start(path, 1024)
    if start[:1] != b"[" or suffix_of(path) == "json":
        return start[:1] == b"["
    return start[1:].lstrip()[:1] in (b"[", b"{")  # not a tuple [text, …]


def is_tuple(value: Any) -> bool:
    """Return whether a value is one of spaCy's training tuples."""
    return isinstance(value, list | tuple) and len(value) == 2 and [*map(type, value)] == [str, dict]


def is_annotated(value: Any, columns: Mapping[str, str]) -> bool:
    """Return whether a value is a text with spans, maybe none, rather than words with tags."""
    if is_tuple(value):
        return True
    if not isinstance(value, dict):
        return False
    if is_task(value):
        return True
    if has_words(value, columns):
        return False
    if _text_key(value, columns) is None:
        return False
    tokens = value.get("tokens")  # of Prodigy; `spans` is absent where there is none
    return _spans_key(value, columns) is not None or (isinstance(tokens, list) and [*map(type, tokens[:1])] == [dict])


def has_words(value: Any, columns: Mapping[str, str]) -> bool:
    """Return whether a value is an object with a list of words."""
    if not isinstance(value, dict):
        return False
    keys = (columns["text"],) if "text" in columns else WORDS
    words = next((value[key] for key in keys if key in value), None)
    tags = any(isinstance(value.get(key), list | tuple) and not any(map(is_span, value[key])) for key in TAGS)
    return (
        isinstance(words, list | tuple) and (not words or isinstance(words[0], str)) and (tags or "text" not in value)
    )


def _text_key(record: Mapping[str, Any], columns: Mapping[str, str]) -> str | None:
    keys = (columns["text"],) if "text" in columns else TEXT
    return next((key for key in keys if isinstance(record.get(key), str)), None)


def _spans_key(record: Mapping[str, Any], columns: Mapping[str, str]) -> str | None:
    """Return the key of a list of spans, or of an empty list."""
    if "label" in columns:
        key = columns["label"]
        return key if isinstance(record.get(key), list | tuple) else None
    keys = [key for key in SPANS if isinstance(record.get(key), list | tuple)]
    keys += [key for key in sets_of_record(record) if key not in keys]
    full = [key for key in keys if any(map(is_span, record[key]))]
    return next(iter([*full, *(key for key in keys if not record[key])]), None)


def is_span(value: Any) -> bool:
    """Return whether a value has the form of a span."""
    if isinstance(value, dict):
        return any(key in value for key in (*STARTS, "token_start")) and any(
            key in value for key in (*ENDS, "token_end")
        )
    return (
        isinstance(value, list | tuple)
        and len(value) >= 3
        and all(isinstance(offset, int) and not isinstance(offset, bool) for offset in value[:2])
    )


def read_values(
    values: Iterator[tuple[int, Any]], columns: Mapping[str, str], reading: Reading, *, gold: bool
) -> Iterator[Annotated]:
    """Yield the texts of the values of a file, with spans if `gold`.

    Raises:
        UserError: a value is none of the formats; the message names file and line.
    """
    if gold:
        held = list(values)
        names = label_sets(value for _, value in held)
        if names and columns.get("label", names[0]) not in {*names, *SPANS}:
            chosen = argument("columns", {"label": columns["label"]})
            raise UserError(
                f"{chosen}: there is no such set of labels", file=reading.name, remedy=nearest(columns["label"], names)
            )
        if len(names) > 1 and "label" not in columns:
            reading.remedy = choose_set(names)
            reading.remarks.append(
                f"the sets of labels {', '.join(names)} are read together; "
                f"{argument('columns', {'label': names[0]})} would choose one"
            )
        values = iter(held)
    for number, value in values:
        if isinstance(value, dict) and is_task(value):
            annotated = read_task(value, columns, reading, number, gold=gold)
        elif is_tuple(value):
            annotated = _read_tuple(value, reading, number, gold=gold)
        else:
            annotated = _read_record(value, columns, reading, number, gold=gold)
        if annotated is None:
            continue
        if gold and not annotated.text.strip():
            reading.omitted["empty texts"] += 1
            continue
        yield annotated


def _read_tuple(value: Sequence[Any], reading: Reading, line: int, *, gold: bool) -> Annotated:
    text, annotations = value
    spans: list[Span] = []
    if gold:
        if not isinstance(annotations.get("entities"), list):
            raise UserError(
                "the second part of the tuple has no list 'entities'",
                file=reading.name,
                line=line,
                remedy='tuples must be [TEXT, {"entities": [[START, END, LABEL], …]}]',
            )
        spans = [_span(span, reading.name, line) for span in annotations["entities"]]
    return Annotated(text, spans, reading.name, line)


def _read_record(
    record: Any, columns: Mapping[str, str], reading: Reading, line: int, *, gold: bool
) -> Annotated | None:
    name = reading.name
    key = _text_key(record, columns) if isinstance(record, dict) else None
    if key is None:
        raise unknown_record(record, name, line)
    text = record[key]
    if not gold:
        return Annotated(text, (), name, line)
    answer = record.get("answer")
    if answer in ("reject", "ignore"):
        reading.omitted[f"texts whose answer is '{answer}'"] += 1
        return None
    spans_key = _spans_key(record, columns)
    if spans_key is None:
        if answer == "accept" or "annotation_id" in record or "lead_time" in record:  # Prodigy, Label Studio: no span
            return Annotated(text, (), name, line)
        raise unknown_record(record, name, line)
    keys = [spans_key]
    if spans_key in sets_of_record(record) and "label" not in columns:
        keys = sets_of_record(record)
    values = [span for one in keys for span in record[one]]
    spans = [_span(value, name, line, record.get("tokens"))._replace(id=index) for index, value in enumerate(values)]
    links = read_links(record, values, spans, reading, line) if reading.relations else ()
    return Annotated(text, spans, name, line, links=links)


def unknown_record(record: Any, name: str, line: int) -> UserError:
    """Return the error for a record that is none of the formats."""
    if not isinstance(record, dict):
        what = "not a JSON object"
    else:
        what = f"no key {' or '.join(WORDS)}, and no text with spans; keys: {', '.join(map(str, record))[:200]}"
    return UserError(what, file=name, line=line, remedy=READ)


READ = (
    "read are: JSON with words and tags, doccano (text, label), Prodigy (text, spans), Label Studio (JSON, JSON-MIN, "
    "CoNLL), spaCy ([text, {entities}], .spacy), brat (.ann beside .txt), columns of words and tags (CoNLL, CoNLL-U, "
    "MultiCoNER, WebAnno TSV 3), CSV with 'Sentence #', 'Word' and 'Tag'; other keys are chosen by "
    f"{argument('columns', {'text': 'TEXT', 'label': 'SPANS'})}"
)
"""What to do with a file that is none of the formats."""


def _span(value: Any, name: str, line: int, tokens: Any = None) -> Span:
    """Return a span of a list."""
    if not is_span(value):
        raise UserError(
            f"{msgspec.json.encode(value).decode()[:80]} is not a span",
            file=name,
            line=line,
            remedy='spans must be [START, END, LABEL] or {"start": …, "end": …, "label": …}',
        )
    if not isinstance(value, dict):
        start, end, label = value[:3]
        return Span(start, end, check_label(label, name, line))
    key = next((key for key in LABELS if value.get(key) is not None), "label")
    label = check_label(value.get(key), name, line)
    text = value.get("text") if isinstance(value.get("text"), str) and is_region(value) else None
    if not any(key in value for key in STARTS):
        return _from_tokens(value, label, tokens, name, line)
    start, end = (next(value[key] for key in keys if key in value) for keys in (STARTS, ENDS))
    return Span(check_offset(start, "start", name, line), check_offset(end, "end", name, line), label, text)


def _from_tokens(value: Mapping[str, Any], label: str, tokens: Any, name: str, line: int) -> Span:
    """Return a span that is given by the indices of its first and its last token."""
    first, last = (check_offset(value.get(key), key, name, line) for key in ("token_start", "token_end"))
    try:
        start, end = tokens[first]["start"], tokens[last]["end"]
    except (LookupError, TypeError) as error:
        raise UserError(f"the tokens {first} and {last} of a span are not in 'tokens'", file=name, line=line) from error
    return Span(check_offset(start, "start", name, line), check_offset(end, "end", name, line), label)
