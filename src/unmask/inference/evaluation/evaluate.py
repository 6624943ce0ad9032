"""Evaluation of a model by its directory: on labeled examples if it is fine-tuned, otherwise on plain text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.data.labelled.table import Data, Table, as_sources
from unmask.data.text.documents import TextOptions
from unmask.inference.evaluation.model import evaluate_encoder, evaluate_task
from unmask.inference.predictor import open_predictor
from unmask.support.errors import UserError
from unmask.training.machine import Machine
from unmask.training.runs.display import Display


def evaluate(
    model: str | Path,
    data: Data,
    *,
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    against: str | Path | None = None,
    errors: str | Path | None = None,
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    machine: Machine | None = None,
    allow_pickle: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Score a fine-tuned model on labeled examples, or a pretrained encoder on plain text.

    Args:
        model: run or model directory, or an exported one.
        data: labeled files or examples in memory (see `unmask.data.labelled.table.as_sources`); files of text for a
            pretrained encoder.
        columns: mapping of our column names to those of the data.
        kind: format of the files, if the suffix does not determine it.
        against: a second model to compare with.
        errors: page of the worst mistakes to write, FILE.html.
        options: how plain text is read.
        machine: device and precision; None: float32 on the best device.
        allow_pickle: whether the models may contain pickled weights.
        quiet: whether to show no progress.

    Returns:
        `{task, metrics, intervals, examples, …}`; see `evaluate_task` and `evaluate_encoder`.

    Raises:
        UserError: model and data do not fit, or an option has no effect.
    """
    display = Display(quiet=quiet)
    predictor = open_predictor(model, machine, display, allow_pickle=allow_pickle)
    if predictor.model.task is not None:
        if options != TextOptions():
            raise UserError(
                "--field, --documents and --strict have no effect: the model is fine-tuned, so the data is labeled",
                remedy="omit them",
            )
        return evaluate_task(
            predictor,
            data,
            columns=columns,
            kind=kind,
            against=open_predictor(against, machine, display, allow_pickle=allow_pickle) if against else None,
            errors=errors,
            names=(str(model), str(against or "")),
        )
    given = {"columns": columns, "format": kind, "against": against, "errors": errors}
    if idle := [f"--{name}" for name, value in given.items() if value]:
        verb = "has" if len(idle) == 1 else "have"
        raise UserError(
            f"{', '.join(idle)} {verb} no effect: the model is not fine-tuned, so the data is plain text",
            remedy="omit it" if len(idle) == 1 else "omit them",
        )
    files = [one for one in as_sources(data) if not isinstance(one, Table)]
    if not files:
        raise UserError("a pretrained encoder is evaluated on files of text", remedy="pass paths")
    return evaluate_encoder(predictor.model, files, options=options, machine=machine, display=display)
