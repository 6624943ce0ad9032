"""Predictions and features of a model by its directory, for data in files or in memory: the calls of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.table import Data
from unmask.inference.features import FILE
from unmask.inference.predictor import open_predictor
from unmask.inference.stream import save_predictions
from unmask.support.errors import UserError
from unmask.tasks.tagged import read_unlabeled
from unmask.training.machine import Machine
from unmask.training.runs.display import Display


def predict(
    model: str | Path,
    data: Data,
    *,
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    out: str | Path | None = None,
    machine: Machine | None = None,
    allow_pickle: bool = False,
    quiet: bool = False,
) -> list[Any]:
    """Return the predictions of a fine-tuned model for the examples of files or of a table; see `Predictor`.

    Args:
        model: run or model directory, or an exported model.
        data: files or examples in memory (see `unmask.data.labelled.table.as_sources`), whose labels are not read.
        columns: mapping of our column names to those of the data.
        kind: format of the files, if the suffix does not determine it.
        out: file to write the predictions to, as the command does; None: they are only returned.
        machine: device and precision; None: float32 on the best device.
        allow_pickle: whether the model may contain pickled weights.
        quiet: whether to print nothing.

    Raises:
        UserError: the model was not fine-tuned, or the data is malformed.
    """
    display, notes = Display(quiet=quiet), list[str]()
    predictor = open_predictor(model, machine, display, allow_pickle=allow_pickle)
    examples = predictor.read(data, columns=columns, kind=kind, notes=notes)
    predictions = predictor.run(examples, notes)
    for note in notes:
        display.say(note)
    if out is not None:
        save_predictions(predictor.task, Path(out), examples, predictions)
    return predictions


def write_features(
    model: str | Path,
    data: Data,
    layers: Sequence[int],
    out: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    tokenizer: str | Path | None = None,
    machine: Machine | None = None,
    allow_pickle: bool = False,
    quiet: bool = False,
) -> Path:
    """Write an encoder's hidden states for each token of texts; see `unmask.inference.features`.

    Args:
        model: run or model directory, an exported model with its last layer, or random:RECIPE with `tokenizer`.
        data: files or examples in memory, of texts or pairs; a `.txt` file has one text per line.
        layers: layer numbers; 0 is the embeddings, negative numbers count from the last layer.
        out: new directory for features.safetensors.
        columns: mapping of our column names to those of the data.
        kind: format of the files, if the suffix does not determine it.
        tokenizer: tokenizer for random:RECIPE.
        machine: device and precision; None: float32 on the best device.
        allow_pickle: whether the model may contain pickled weights.
        quiet: whether to print nothing.

    Returns:
        The file.

    Raises:
        UserError: the directory is not empty, the data is malformed, or the model has no such layer.
    """
    folder, notes, display = Path(out), list[str](), Display(quiet=quiet)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UserError("the directory is not empty", file=folder, remedy="choose another --out")
    rows = read_unlabeled(data, columns=columns or {}, kind=kind, notes=notes)
    predictor = open_predictor(model, machine, display, tokenizer=tokenizer, allow_pickle=allow_pickle)
    tokens, cut = predictor.write_features(rows, layers, folder / FILE)
    notes.append(f"{tokens:,} tokens of {len(rows):,} texts: {folder / FILE}")
    if cut:
        notes.append(
            f"{cut:,} texts are longer than the model's {predictor.model.encoder.longest} tokens and were truncated"
        )
    for note in notes:
        display.say(note)
    return folder / FILE
