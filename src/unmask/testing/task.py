"""Check of a task: a toy model is fine-tuned for it, and everything is done with the model that unmask can do.

Input: the name of a task, and a file of labeled examples. Output: what can be done with it, and why the rest cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.inference.stream import save_predictions
from unmask.metrics.intervals import lowest
from unmask.model.model import Model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.support.settings import Overrides
from unmask.tasks import TASKS
from unmask.tasks.routes import Route
from unmask.workflows.distillation.distill import distill
from unmask.workflows.finetuning.finetune import finetune

SHAPE = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=128, init_std=0.2)
SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".conll", ".txt")
"""Suffixes of the files that predictions are written to."""
CLOSE = 1e-3
"""Largest difference of the outputs of an exported model, as a ratio of the largest output."""
SETTINGS = {"batch.sequences": 8, "budget.steps": 2}
MACHINE: Any = {"device": "cpu", "precision": "float32"}
"""Settings of the runs, which only show that training works."""
NEEDED = {
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "serve": ("starlette", "prometheus_client"),
    "playground": ("starlette", "prometheus_client"),
    "estimator": ("sklearn",),
}
"""Packages that an operation needs."""


def check_task(kind: str, data: str | Path, folder: Path, settings: Overrides | None = None) -> dict[str, str]:
    """Check a task: fine-tune a toy model for it, and do everything with the model that unmask can do.

    Args:
        kind: name of the task; the package that has it is installed.
        data: file of at least 20 labeled examples.
        folder: an empty folder to write to.
        settings: settings of fine-tuning, for example `{"task.length": 64}`; at most 128 tokens are read.

    Returns:
        For each of `OPERATIONS` whether it works, "", or why it cannot be done with this task: the message of the
        `UserError` that refuses it. Operations whose packages are not installed are missing.

    Raises:
        AssertionError: the results of an operation contradict those of another one, or the task.
        UserError: the model cannot be fine-tuned.
    """
    check_members(kind)
    toy, model = folder / "toy", folder / "run"
    save_model(toy, toy_model(Path(data).read_text(encoding="utf8")), "A toy.")
    chosen = {**SETTINGS, "task.length": 48, **(settings or {})}
    finetune(kind, toy, data, model, dev=data, settings=chosen, **MACHINE, quiet=True)
    table = {}
    for name, operation in OPERATIONS.items():
        if all(map(find_spec, NEEDED.get(name, ()))):
            table[name] = _reason(lambda operation=operation: operation(model, data, folder))  # type: ignore[misc]
    return table


def check_members(kind: str) -> None:
    """Check what a task declares of itself.

    Raises:
        AssertionError: a member is missing, or of another type.
    """
    task = TASKS[kind]
    for name in ("part", "metric"):
        value = getattr(task, name, None)
        assert isinstance(value, str) and value, f"{task.__name__}.{name} is not a text"
    assert isinstance(getattr(task, "card", None), Card), f"{task.__name__}.card is not a Card"
    assert task().part.isidentifier(), f"{task.__name__}.part is part of the names of tensors"
    rate, epochs = task.training.rate, task.training.epochs
    assert rate > 0 and epochs > 0, f"{task.__name__}.training has a rate or a number of epochs of 0"
    for name in task.training.tuned:
        assert name in task.__struct_fields__, f"{task.__name__}.training.tuned: there is no setting {name}"
    if isinstance(task.route, Route):
        task.route.request_to(task())


def toy_model(text: str) -> Model:
    """Return a random encoder, whose vocabulary is that of a text."""
    torch.manual_seed(0)
    tokenizer = train_wordpiece(text.splitlines(), size=300)
    encoder = SHAPE.build(tokenizer.size)
    return Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).published()}, tokens=1000)


def _reason(operation: Callable[[], None]) -> str:
    try:
        operation()
    except UserError as error:
        return str(error)
    return ""


def _predict(model: Path, data: str | Path, folder: Path) -> None:
    """Predict in memory and as a stream, and write the predictions in every format that the task accepts."""
    predictor = load(model, device="cpu")
    task, examples = predictor.task, predictor.read(data)
    predictions = predictor.run(examples)
    assert len(predictions) == len(examples), "there is not one prediction for each example"
    assert all(isinstance(task.line(prediction), str) for prediction in predictions)
    streamed = [prediction for window in predictor.stream(iter(examples)) for prediction in window]
    assert msgspec.json.encode(streamed) == msgspec.json.encode(predictions), "a stream has other predictions"
    written = 0
    for suffix in SUFFIXES:
        out = folder / f"predictions{suffix}"
        with suppress(UserError):  # not a format of this task
            save_predictions(task, out, examples, predictions)
            assert out.stat().st_size, f"nothing was written to {out.name}"
            written += 1
    assert written, "the predictions cannot be written in any format"


def _evaluate(model: Path, data: str | Path, folder: Path) -> None:
    """Evaluate a model against itself, with a page of its mistakes."""
    page = folder / "errors.html"
    result = evaluate(model, data, against=model, errors=page, **MACHINE, quiet=True)
    trained = load(model, device="cpu").model
    task, metrics = trained.task, result["metrics"]
    assert task is not None and task.metric in metrics, "its metric is not measured"
    compared = task.metrics_of(task.read([data], columns={}), trained.labels)
    wrong = [name for name in compared if name not in metrics or lowest(name) is None]
    assert compared and not wrong, f"{', '.join(wrong)}: in `metrics_of`, but not measured, or without a known range"
    assert all(map(np.isfinite, result["metrics"].values())), "a metric is not a number"
    assert result["against"]["metrics"] == result["metrics"], "the same model has other scores"
    assert page.stat().st_size


def _export(model: Path, data: str | Path, folder: Path) -> None:
    """Export a model as ONNX, and compare its outputs."""
    predictor = load(model, device="cpu")
    export_model(predictor.model, Export("onnx", head=predictor.task.part), folder / "exported")
    exported = load(folder / "exported")
    assert exported.task == predictor.task, "the exported model has another task"
    examples = predictor.read(data)
    for outputs, exported_outputs in zip(_outputs(predictor, examples), _outputs(exported, examples), strict=True):
        finite = np.isfinite(outputs)
        assert (finite == np.isfinite(exported_outputs)).all(), "other outputs of the exported model are infinite"
        off = np.abs(outputs[finite] - exported_outputs[finite]).max(initial=0.0)
        assert off <= CLOSE * max(1.0, np.abs(outputs[finite]).max(initial=0.0)), f"outputs differ by {off:.2g}"


def _outputs(predictor: Predictor, examples: list[Any]) -> list[np.ndarray]:
    task = predictor.task
    framed = task.frame(predictor.model.tokenizer, examples, predictor.labels, gold=False)
    return predictor.backend.logits(task.part, framed.samples)


def _serve(model: Path, data: str | Path, folder: Path) -> None:
    """Serve a model, and ask it the example of its route; the answer is that of the predictor."""
    from unmask.serving.metrics import Meter
    from unmask.serving.served import Served
    from unmask.serving.service import Service
    from unmask.serving.types import Limits

    predictor = load(model, device="cpu")
    task = predictor.task
    if not isinstance(task.route, Route):
        raise UserError(task.route.why, remedy=task.route.remedy)
    limits, meter = Limits(), Meter()
    served = Served("toy", predictor, limits, meter)
    service = Service([served], limits, meter)
    try:
        served.warm_up()
        assert task.route.path in service.describe(served).routes, "the server does not list the route"
        request: Any = task.route.request_to(task)
        job = service.find(None, task.route.path).ask(request)
        answer = job.read(asyncio.run(served.batcher.run(job)))
        msgspec.json.decode(msgspec.json.encode(answer), type=task.route.response)
        direct = job.read(predictor.backend.logits(task.part, job.samples))
        assert msgspec.json.encode(answer) == msgspec.json.encode(direct), "the server answers otherwise"
    finally:
        service.close()


def _playground(model: Path, data: str | Path, folder: Path) -> None:
    """Describe a model as the page of the server shows it."""
    from unmask.serving.metrics import Meter
    from unmask.serving.playground import describe
    from unmask.serving.served import Served
    from unmask.serving.types import Limits

    predictor = load(model, device="cpu")
    views = describe(Served("toy", predictor, Limits(), Meter())).views
    route = predictor.task.route
    if not isinstance(route, Route):
        raise UserError(route.why, remedy=route.remedy)
    if not route.view:
        raise UserError("its route declares no view of the page", remedy="ask it by its route")
    assert route.view in views, f"the page does not show its view, {route.view}"


def _estimate(model: Path, data: str | Path, folder: Path) -> None:
    """Predict by the estimator of the task, if it has one."""
    from unmask.workflows.estimators import ESTIMATORS

    predictor = load(model, device="cpu")
    kind = predictor.task.kind
    if kind not in ESTIMATORS:
        raise UserError("no estimator of scikit-learn predicts this", remedy="use unmask.finetune")
    inputs, targets = ESTIMATORS[kind].examples(predictor.task.read([data], columns={}))
    estimator = ESTIMATORS[kind](folder / "toy", settings=SETTINGS, device="cpu")
    assert len(estimator.fit(inputs, targets).predict(inputs)) == len(inputs)


def _distil(model: Path, data: str | Path, folder: Path) -> None:
    """Distil a model to a student of one layer, which can do the same."""
    student = distill(
        read_recipe("tinybert-mini"),
        model,
        folder / "student",
        train=data,
        dev=data,
        layers=1,
        settings={**SETTINGS, "objective.layer_matching": False},
        **MACHINE,
        quiet=True,
    )
    task = load(model, device="cpu").task
    assert load(student, device="cpu").task.part == task.part


OPERATIONS: dict[str, Callable[[Path, str | Path, Path], None]] = {
    "predict": _predict,
    "evaluate": _evaluate,
    "export": _export,
    "serve": _serve,
    "playground": _playground,
    "estimator": _estimate,
    "distil": _distil,
}
"""What can be done with a fine-tuned model, in the order of the documentation."""
