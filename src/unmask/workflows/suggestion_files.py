"""Files of suggested texts: tables and JSON Lines, and what Label Studio and doccano import.

Input: suggestions. Output: the content of a file, in the format of its suffix. The model's predictions are in it, to be
corrected: `predicted`, or what the annotators' programs show at first (pre-annotations).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.span_export import EXPORTS, export_array, export_labels, export_record, is_export
from unmask.support.errors import UserError
from unmask.tasks.classification import Prediction
from unmask.tasks.multi_label import Labels
from unmask.tasks.prediction_tables import TABLES, as_row, with_columns, write_table
from unmask.tasks.tag_labels import marked
from unmask.tasks.tagged import Entity, Tagged
from unmask.tasks.task import Task


class Suggestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text to label.

    Attributes:
        text, text_b: the texts as given.
        uncertainty: how uncertain the model is, from 0 to 1; None: it has no task.
        predicted: the predicted label, labels or entities; None: the model has no task.
    """

    text: str
    text_b: str | None = None
    uncertainty: float | None = None
    predicted: str | tuple[str, ...] | list[Entity] | None = None


def suggestion(texts: tuple[str, ...], prediction: Any, uncertainty: float) -> Suggestion:
    """Return a text, or a pair, with what was predicted of it; None: nothing was."""
    text, text_b = texts[0], texts[1] if len(texts) > 1 else None
    if prediction is None:
        return Suggestion(text, text_b)
    if isinstance(prediction, Tagged):
        return Suggestion(text, text_b, uncertainty, prediction.entities)
    labels = prediction.labels if isinstance(prediction, Labels) else prediction.label
    return Suggestion(text, text_b, uncertainty, labels)


def check_suffix(path: Path, task: Task) -> None:
    """Raise an error if suggestions of a task are not written to files with this suffix."""
    tables = TABLES if task.part in ("classification", "multi_label") else ()
    if not is_export(path) and path.suffix not in (".jsonl", *tables):
        raise UserError(
            f"suggestions are not written as {path.suffix or 'a file without a suffix'}",
            file=path,
            remedy=f"use {', '.join(('.jsonl', *tables, *EXPORTS))}",
        )


def content(
    path: Path, examples: Sequence[Any], predictions: Sequence[Any], suggestions: Sequence[Suggestion]
) -> bytes:
    """Return the content of a file of suggestions.

    Args:
        path: the file; see `check_suffix`.
        examples: the examples as the task reads them; their other columns are written, too, but for annotators.
        predictions: those of the model, None each if it has no task.
        suggestions: the suggestions.
    """
    if is_export(path):
        records = [_exported(path, *pair) for pair in zip(predictions, suggestions, strict=True)]
        if path.suffix == ".json":
            return b"".join(export_array(records))
        return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    pairs = zip(examples, suggestions, strict=True)
    if path.suffix in TABLES:
        return b"".join(write_table(path.suffix, [as_row(*pair) for pair in pairs]))
    lines = (with_columns(*pair) if isinstance(pair[0], Row) else pair[1] for pair in pairs)
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _exported(path: Path, prediction: Any, suggestion: Suggestion) -> dict[str, Any]:
    """Return the record of an annotators' program."""
    texts = {"text": suggestion.text} | ({} if suggestion.text_b is None else {"text_b": suggestion.text_b})
    if isinstance(prediction, Tagged):
        return export_record(path, suggestion.text, marked(prediction))
    if prediction is None:
        return export_labels(path, texts)
    labels = (prediction.label,) if isinstance(prediction, Prediction) else prediction.labels
    return export_labels(path, texts, {label: prediction.scores[label] for label in labels})
