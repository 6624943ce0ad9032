"""Writer of texts with entities, or with labels, in the formats that doccano and Label Studio import.

Input: a text and its entities, with offsets in code points, or its labels. Output: a record for doccano (JSON Lines,
with offsets in UTF-16 units, as its front end counts), or a task with a prediction for Label Studio (a JSON array).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unmask.data.labelled.spans import DOCCANO

EXPORTS = (DOCCANO, ".labelstudio.json")
"""Ends of the names of files that are written in these formats."""


class Marked(NamedTuple):
    """An entity of a text: its offsets in code points, its label, its text, and its probability."""

    start: int
    end: int
    label: str
    text: str
    probability: float


def is_export(path: Path) -> bool:
    """Return whether a file is written for one of the tools, by the end of its name."""
    return path.name.endswith(EXPORTS)


def export_record(
    path: Path, text: str, entities: Sequence[Marked], relations: Sequence[tuple[int, int, str, float]] | None = None
) -> dict[str, Any]:
    """Return a text with its entities as a record for the tool that the name of a file ends in.

    Args:
        path: the file.
        text: the text.
        entities: its entities.
        relations: indices of the head and of the tail of each relation, its label, and its probability; None: the tool
            labels spans only, which doccano imports in another form.
    """
    if path.name.endswith(DOCCANO):
        places = [(_utf16(text, one.start), _utf16(text, one.end), one.label) for one in entities]
        if relations is None:
            return {"text": text, "label": [list(place) for place in places]}
        return {
            "text": text,
            "entities": [
                {"id": number, "label": label, "start_offset": start, "end_offset": end}
                for number, (start, end, label) in enumerate(places, 1)
            ],
            "relations": [
                {"id": number, "from_id": head + 1, "to_id": tail + 1, "type": label}
                for number, (head, tail, label, _) in enumerate(relations, 1)
            ],
        }
    results: list[dict[str, Any]] = [
        {
            "id": str(number),
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "score": one.probability,
            "value": {"start": one.start, "end": one.end, "text": one.text, "labels": [one.label]},
        }
        for number, one in enumerate(entities, 1)
    ]
    results += [
        {
            "type": "relation",
            "from_id": str(head + 1),
            "to_id": str(tail + 1),
            "direction": "right",
            "labels": [label],
            "score": probability,
        }
        for head, tail, label, probability in relations or ()
    ]
    score = min((result["score"] for result in results), default=1.0)
    return {"data": {"text": text}, "predictions": [{"model_version": "unmask", "score": score, "result": results}]}


def export_labels(path: Path, texts: Mapping[str, str], labels: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return a text, or a pair, with its predicted labels as a record for the tool that the name of a file ends in.

    Args:
        path: the file.
        texts: "text" and, of a pair, "text_b".
        labels: the predicted labels and their probabilities; None: there is no prediction.
    """
    if path.name.endswith(DOCCANO):
        return {**texts, "label": list(labels or ())}
    if labels is None:
        return {"data": dict(texts)}
    score = min(labels.values(), default=1.0)
    value = {"choices": list(labels)}
    result = {"id": "1", "from_name": "label", "to_name": "text", "type": "choices", "score": score, "value": value}
    predictions = [{"model_version": "unmask", "score": score, "result": [result] if labels else []}]
    return {"data": dict(texts), "predictions": predictions}


def export_array(records: Iterable[Any]) -> Iterator[bytes]:
    """Yield the parts of a JSON array of records."""
    separator = "[\n"
    for record in records:
        yield (separator + json.dumps(record, ensure_ascii=False)).encode()
        separator = ",\n"
    yield b"[]\n" if separator == "[\n" else b"\n]\n"


def _utf16(text: str, offset: int) -> int:
    return len(text[:offset].encode("utf-16-le")) // 2
