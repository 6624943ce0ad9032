"""Relations between the spans of a text, as tools export them.

Input: the relations of a record, or of an annotation. Output: links between spans by their ids, and the relations of a
sentence between its spans.

| tool | relation |
|---|---|
| doccano | {"from_id", "to_id", "type"}, the ids of entities |
| Prodigy | {"head_span", "child_span", "label"}, spans with `start` and `end` |
| Label Studio | {"type": "relation", "from_id", "to_id", "direction", "labels"}, the ids of regions |
| brat | `R1 TAB LABEL Arg1:T1 Arg2:T2` (`brat_files`) |
| JSON Lines of unmask | {"head", "tail", "label"}, indices of the list of spans, from 0 |

A relation has a direction, from its head to its tail; those of both directions are two. A pair of spans, in order, has
one relation at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unmask.data.labelled.spans import Annotated, Link, Reading, Span, check_label, words_of
from unmask.data.labelled.tagged_sentence import Relation, TaggedSentence
from unmask.support.errors import UserError

LABELS = ("label", "type", "labels")
"""Keys of the label of a relation."""
FORMS = (
    'relations must be {"head": INDEX, "tail": INDEX, "label": …}, {"from_id": …, "to_id": …, "type": …} or '
    '{"head_span": …, "child_span": …, "label": …}'
)


def read_links(
    record: Mapping[str, Any], values: Sequence[Any], spans: Sequence[Span], reading: Reading, line: int
) -> list[Link]:
    """Return the relations of a record of JSON; the ids of spans are their indices.

    Args:
        record: the record, with `relations`; without them it has none.
        values: the spans as the record has them.
        spans: the same spans, as read.
        reading: the file.
        line: the line of the record.

    Raises:
        UserError: a relation is malformed, or is between spans that the record does not have.
    """
    relations = record.get("relations") or []
    if not isinstance(relations, list | tuple):
        raise UserError("'relations' is not a list", file=reading.name, line=line, remedy=FORMS)
    named = ((value.get("id"), index) for index, value in enumerate(values) if isinstance(value, dict))
    ids = {str(name): index for name, index in named if name is not None}
    places = {str((span.start, span.end)): index for index, span in enumerate(spans)}
    links = []
    for relation in relations:
        if not isinstance(relation, dict):
            raise UserError(f"{relation!r:.60} is not a relation", file=reading.name, line=line, remedy=FORMS)
        ends: list[int | None]
        if "from_id" in relation:
            ends = [ids.get(str(relation[key])) for key in ("from_id", "to_id") if relation.get(key) is not None]
        elif "head_span" in relation:
            parts = [relation.get(key) for key in ("head_span", "child_span")]
            ends = [places.get(str((part.get("start"), part.get("end")))) for part in parts if isinstance(part, dict)]
        else:
            indices = [relation.get(key) for key in ("head", "tail")]
            ends = [index for index in indices if type(index) is int and 0 <= index < len(spans)]
        if len(ends) != 2 or None in ends:
            raise UserError(
                f"the relation {dict(relation)!r:.100} is not one of two spans of the text",
                file=reading.name,
                line=line,
                remedy=FORMS,
            )
        key = next((key for key in LABELS if relation.get(key) is not None), "label")
        links.append(Link(check_label(relation.get(key), reading.name, line, "a relation"), ends[0], ends[1], line))
    return links


def read_results(results: Sequence[Mapping[str, Any]], reading: Reading, line: int) -> Iterator[Link]:
    """Yield the relations among the results of an annotation of Label Studio.

    Raises:
        UserError: a direction is unknown.
    """
    for result in results:
        if result.get("type") != "relation":
            continue
        ends, direction = (str(result.get("from_id")), str(result.get("to_id"))), result.get("direction") or "right"
        if direction not in ("right", "left", "bi"):
            raise UserError(f"unknown direction '{direction}' of a relation", file=reading.name, line=line)
        labels = result.get("labels") or []
        if not labels:
            reading.omitted["relations without a label"] += 1
        for label in labels:
            checked = check_label(label, reading.name, line, "a relation")
            if direction != "left":
                yield Link(checked, *ends, line=line)
            if direction != "right":
                yield Link(checked, *ends[::-1], line=line)


def relate(sentence: TaggedSentence, annotated: Annotated, reading: Reading) -> TaggedSentence:
    """Return a sentence of `to_sentence` with the relations between its spans.

    Raises:
        UserError: a pair of spans has two relations, and what cannot be expressed is refused.
    """
    assert sentence.spans is not None
    indices = {(chunk.start, chunk.stop): index for index, chunk in enumerate(sentence.spans)}
    by_id = dict[Any, int]()
    for span in annotated.spans:
        index = indices.get(words_of(span, sentence))
        if index is not None and sentence.spans[index].type == span.label:
            by_id[span.id] = index
    labels: dict[tuple[int, int], str] = {}
    for link in annotated.links:
        if link.head not in by_id or link.tail not in by_id:
            reading.omitted["relations of spans that are omitted, or not in the file"] += 1
            continue
        pair = by_id[link.head], by_id[link.tail]
        if pair[0] == pair[1]:
            reading.inexpressible("relations of a span with itself", "remove the relation", annotated.file, link.line)
        elif labels.setdefault(pair, link.label) != link.label:
            what = "further relations of the same two spans"
            reading.inexpressible(what, "choose one of them", annotated.file, link.line)
    return replace(sentence, relations=tuple(Relation(label, *pair) for pair, label in sorted(labels.items())))
