"""Reader of the exports of Label Studio: tasks (JSON) and records (JSON-MIN).

Input: the objects of a JSON array. Output: texts with spans. In JSON a task has its fields under `data`, and its
annotations, of one or more annotators, under `annotations` (`completions` until version 1.0): the first one that is
marked as ground truth is read, otherwise the first that was not cancelled. In JSON-MIN the fields are those of the
record, with a list of regions under the name of each control (`from_name`).

Offsets were UTF-16 units in early versions, and white space may differ; the text of each region tells
(HumanSignal/label-studio, issues 539, 1347 and 4929). Annotations of HTML are refused, because their offsets refer to
elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unmask.data.labelled.relations import read_results
from unmask.data.labelled.spans import Annotated, Reading, Span, check_label, check_offset
from unmask.support.errors import UserError
from unmask.support.messages import argument

KINDS = ("labels", "hypertextlabels", "paragraphlabels")
"""Types of results that label a part of a text; they are also the keys of its labels."""
ANNOTATIONS = ("annotations", "completions")


def is_task(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a task, annotated or not."""
    return isinstance(record.get("data"), dict)


def is_region(value: Mapping[str, Any]) -> bool:
    """Return whether a span states its own text, which that of a region is."""
    return "start" in value or "start_offset" in value


def sets_of_record(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the controls of a record of JSON-MIN: keys of lists of regions."""
    return [key for key, value in record.items() if isinstance(value, list) and value and all(map(_is_minimal, value))]


def _is_minimal(value: Any) -> bool:
    return isinstance(value, dict) and {"start", "end"} <= value.keys() and any(kind in value for kind in KINDS)


def label_sets(values: Iterable[Any]) -> list[str]:
    """Return the names of the sets of labels that occur in the values of a file."""
    names: dict[str, None] = {}
    for value in values:
        if not isinstance(value, dict):
            continue
        if not is_task(value):
            names |= dict.fromkeys(sets_of_record(value))
            continue
        for annotation in _annotations(value):
            names |= dict.fromkeys(
                str(result.get("from_name", "label")) for result in _results(annotation) if result.get("type") in KINDS
            )
    return sorted(names)


def _annotations(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the annotations of a task that were not cancelled."""
    found: list[Any] = next((task[key] for key in ANNOTATIONS if isinstance(task.get(key), list)), [])
    return [one for one in found if isinstance(one, dict) and not (one.get("was_cancelled") or one.get("skipped"))]


def _results(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    results = annotation.get("result")
    return [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []


def read_task(
    task: Mapping[str, Any], columns: Mapping[str, str], reading: Reading, line: int, *, gold: bool
) -> Annotated | None:
    """Return the text of a task, with the spans of an annotation if `gold`; None: it is not annotated.

    Raises:
        UserError: its text is not found, or a region is malformed.
    """
    text = _text(task, columns, reading.name, line)
    if not gold:
        return Annotated(text, (), reading.name, line)
    annotations = _annotations(task)
    if not annotations:
        reading.omitted["tasks without an annotation"] += 1
        return None
    if len(annotations) > 1:
        reading.omitted["further annotations of tasks that have several (ground truth first, otherwise the first)"] += (
            len(annotations) - 1
        )
    chosen = next((one for one in annotations if one.get("ground_truth")), annotations[0])
    if not isinstance(chosen.get("result"), list):
        raise UserError("an annotation has no list 'result'", file=reading.name, line=line)
    results = _results(chosen)
    links = list(read_results(results, reading, line)) if reading.relations else ()
    return Annotated(text, _spans(results, columns, reading, line), reading.name, line, links=links)


def _text(task: Mapping[str, Any], columns: Mapping[str, str], name: str, line: int) -> str:
    data = task["data"]
    texts = [key for key, value in data.items() if isinstance(value, str)]
    key = columns.get("text", "text" if "text" in texts else texts[0] if len(texts) == 1 else "")
    key = key.removeprefix("data.")
    if key not in texts:
        raise UserError(
            f"no text '{key}' in the data of the task" if key else "several texts are in the data of the task",
            file=name,
            line=line,
            remedy=f"its texts: {', '.join(texts)[:200] or 'none'}; pass {argument('columns', {'text': 'KEY'})}",
        )
    text: str = data[key]
    return text


def _spans(results: Sequence[Mapping[str, Any]], columns: Mapping[str, str], reading: Reading, line: int) -> list[Span]:
    spans = []
    for result in results:
        kind, value = result.get("type"), result.get("value")
        if kind == "relation" and reading.relations:
            continue
        if kind not in KINDS or not isinstance(value, dict):
            reading.omitted[f"results of type '{kind}' instead of spans"] += 1
            continue
        if "label" in columns and result.get("from_name") != columns["label"]:
            continue
        if isinstance(value.get("start"), str) and value["start"].startswith("/"):
            raise UserError(
                "the annotation is one of HTML or of a dialogue, whose offsets refer to elements",
                file=reading.name,
                line=line,
                remedy="annotate plain text (the tag Text)",
            )
        if not value.get(kind):
            reading.omitted["regions without a label"] += 1
            continue
        start, end = (
            int(offset) if isinstance(offset, str) and offset.isdecimal() else offset
            for offset in (value.get("start"), value.get("end"))
        )
        spans.append(
            Span(
                check_offset(start, "start", reading.name, line),
                check_offset(end, "end", reading.name, line),
                check_label(value[kind], reading.name, line),
                value["text"] if isinstance(value.get("text"), str) else None,
                id=None if result.get("id") is None else str(result["id"]),
            )
        )
    return spans
