"""What a student costs and is worth, beside its teacher and the same student without a teacher.

Input: the models, and texts. Output: RUN/comparison.json, a table in RUN/report.md and RUN/plots/comparison.svg. Times
are those of this machine in float32, the best of several rounds: the median of single texts, and many texts together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from unmask.data.batches.batch import Batch
from unmask.data.batches.masking import MASKED
from unmask.families.checkpoints.safetensors_file import INDEX, read_index, weights_file
from unmask.inference.backend import TorchBackend, finite, inference_copy
from unmask.inference.evaluation.scoring import score_examples
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import intervals
from unmask.model.directory import find
from unmask.model.model import Model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.durable import only_writer, replace_file
from unmask.support.pictures import Point, scatter, write
from unmask.training.machine import Machine
from unmask.training.runs.report import write_section

HEADING = "## Teacher and student"
FILE = "comparison.json"
BASELINE = "baseline"
"""Folder of a run with the same student, trained without a teacher."""
SAME_ALONE = "now the same student without a teacher:"
SINGLE, MANY = 50, 256
"""Numbers of texts that are run one by one, and together."""
ROUNDS = 4
MASKED_ACCURACY = "accuracy at masked tokens"
"""Share of the masked tokens that are predicted, in percent."""


class ComparedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it was measured.

    Attributes:
        name: "teacher", "student" or "without a teacher".
        parameters: number of parameters.
        bytes: size of its weights on disk.
        milliseconds: time of one text.
        per_second: number of texts per second, in batches.
        metric, score, interval: what it was scored by, the score, and its 95 % interval; None: it was not scored.
    """

    name: str
    parameters: int
    bytes: int
    milliseconds: float
    per_second: float
    metric: str = ""
    score: float | None = None
    interval: Sequence[float] | None = None


@dataclass(frozen=True)
class Subject:
    """A model that is compared.

    Attributes:
        name: see `ComparedModel`.
        source, model: its directory, and what is in it.
        run: computes its outputs of some texts.
        scored: metric, score and interval; empty if it was not scored.
    """

    name: str
    source: str | Path
    model: Model
    run: Callable[[Sequence[Any]], Any]
    scored: Mapping[str, Any]


def of_task(name: str, source: str | Path, model: Model, examples: Sequence[Any], machine: Machine) -> Subject:
    """Return a fine-tuned model, scored on examples."""
    assert model.task is not None
    predictor, metric = Predictor(model, machine), model.task.metric
    scores = score_examples(predictor, examples)
    scored = {"metric": metric, "score": scores["metrics"][metric], "interval": scores["intervals"].get(metric)}
    return Subject(name, source, model, predictor.run, scored)


def of_text(name: str, source: str | Path, model: Model, batches: Sequence[Batch], machine: Machine) -> Subject:
    """Return an encoder; its masked-LM head is scored on batches with masked tokens, if there are both."""
    backend, scored = TorchBackend(model, machine), dict[str, Any]()
    if batches and "masked_lm" in model.heads:
        head = MaskedLM(BuildContext(model.encoder, tokenizer_size=model.tokenizer.size))
        if not model.take("masked_lm", head):
            learner = inference_copy(Learner(model.encoder, {"masked_lm": head}), machine)
            scored = {"metric": MASKED_ACCURACY, **_with_interval(*_masked(learner, batches, machine))}
    last = [model.encoder.num_layers]
    return Subject(name, source, model, lambda samples: list(backend.layers(samples, last)), scored)


def measure(subjects: Sequence[Subject], texts: Sequence[Any]) -> list[ComparedModel]:
    """Measure models on the same texts, in turns, so that other programs slow down none of them alone.

    Args:
        subjects: the models.
        texts: what they can run, at least one.
    """
    single, many = texts[:SINGLE], texts[:MANY]
    for subject in subjects:
        subject.run(single[:1])  # what is done once does not count
    alone = [[_turn(subjects, [text], first) for text in single] for first in range(ROUNDS)]
    together = [_turn(subjects, many, first) for first in range(ROUNDS)]
    best = np.median(np.min(alone, axis=0), axis=0)  # (subjects,), of the fastest round of each text
    return [
        ComparedModel(
            name=subject.name,
            **_size(subject),
            milliseconds=1000 * float(best[index]),
            per_second=len(many) / float(np.min(together, axis=0)[index]),
            **subject.scored,
        )
        for index, subject in enumerate(subjects)
    ]


def write_comparison(run: Path, models: Sequence[ComparedModel], say: Callable[[str], None]) -> None:
    """Write comparison.json, and add the table and the plot to the report."""
    with only_writer(run / FILE):
        replace_file(run / FILE, msgspec.json.format(msgspec.json.encode(models)))
        lines = table(models)
        if any(model.score is not None for model in models):
            plot(models, run / "plots" / "comparison.svg")
            lines += ["", "![quality over latency](plots/comparison.svg)"]
        write_section(run / "report.md", HEADING, lines)
        for line in summary(models):
            say(line)


def table(models: Sequence[ComparedModel]) -> list[str]:
    """Return the lines of a table of models, and what they amount to."""
    metric = next((model.metric for model in models if model.metric), "")
    lines = [
        f"| | parameters | on disk | one text | texts per second |{f' {metric} |' if metric else ''}",
        f"|---|---|---|---|---|{'---|' if metric else ''}",
    ]
    for model in models:
        cells = [
            model.name,
            f"{model.parameters / 1e6:.1f} M",
            f"{model.bytes / 1e6:.0f} MB",
            f"{model.milliseconds:.1f} ms",
            f"{model.per_second:,.0f}",
        ]
        if metric:
            interval = "" if model.interval is None else " ({:.2f} to {:.2f})".format(*model.interval)
            cells.append("-" if model.score is None else f"{model.score:.2f}{interval}")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, *(part for line in summary(models) for part in ("", line))]


def summary(compared: Sequence[ComparedModel]) -> list[str]:
    """Return what a student amounts to, in sentences."""
    models = {model.name: model for model in compared}
    teacher, student, alone = models["teacher"], models["student"], models.get("without a teacher")
    faster, smaller = teacher.milliseconds / student.milliseconds, teacher.parameters / student.parameters
    lines = [f"The student is {smaller:.1f} times smaller and {faster:.1f} times faster than its teacher."]
    if teacher.score is not None and student.score is not None and teacher.score > 0 <= student.score:  # correlations
        lines.append(f"It keeps {100 * student.score / teacher.score:.1f} % of its {student.metric}.")
    if alone is not None and alone.score is not None and student.score is not None:
        lines.append(f"The teacher is worth {student.score - alone.score:+.2f} to the same student.")
    return lines


def plot(models: Sequence[ComparedModel], path: Path) -> None:
    """Draw the scores of models that have one over the time of one text."""
    points = [
        Point(
            model.name, model.milliseconds, model.score, model.interval, "best" if model.name == "student" else "other"
        )
        for model in models
        if model.score is not None
    ]
    write(path, scatter(points, "milliseconds of one text", next(model.metric for model in models if model.metric)))


def _masked(learner: Learner, batches: Sequence[Batch], machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return how many masked tokens of each sequence are predicted, and how many there are, (sequences,) each.

    Raises:
        UserError: the logits are not numbers.
    """
    correct, masked = [], []
    for batch in batches:
        moved = batch.to(machine.device)
        with torch.inference_mode():
            encoded = learner.encoder(moved.tokens)
            logits = learner.parts["masked_lm"].predict(learner.encoder, encoded, moved)  # (masked, vocabulary)
            finite(logits.amax(1).cpu().numpy())
            right = (logits.argmax(1) == moved.labels[MASKED]).cpu().numpy()
        owners = np.searchsorted(batch.tokens.offsets.numpy(), batch.positions[MASKED].numpy(), side="right") - 1
        correct.append(np.bincount(owners, right, len(batch.keys)))
        masked.append(np.bincount(owners, minlength=len(batch.keys)))
    return np.concatenate(correct), np.concatenate(masked)


def _with_interval(correct: np.ndarray, masked: np.ndarray) -> Mapping[str, Any]:
    """Return the share of correct tokens in percent, and its interval over sequences."""

    def measure(chosen: np.ndarray) -> dict[str, float]:
        return {"share": 100 * float(correct[chosen].sum()) / max(1.0, float(masked[chosen].sum()))}

    number = len(correct)
    return {"score": measure(np.arange(number))["share"], "interval": intervals(measure, number)["share"]}


def _size(subject: Subject) -> Mapping[str, Any]:
    """Return the number of parameters of a model, and the size of its weights on disk."""
    model, folder = subject.model, find(subject.source)
    heads = sum(value.numel() for head in model.heads.values() for value in head.values())
    weights = sum(value.numel() for value in model.encoder.parameters())
    file = weights_file(folder)
    assert file is not None, "they have been read"
    shards = {*read_index(file).values()} if file.name == INDEX else {file}
    return {"parameters": weights + heads, "bytes": sum(path.stat().st_size for path in shards)}


def _turn(subjects: Sequence[Subject], texts: Sequence[Any], first: int) -> list[float]:
    """Return the seconds of each model, of which another one is the first in each round: it is often interrupted."""
    seconds = [0.0] * len(subjects)
    for number in range(len(subjects)):
        index = (first + number) % len(subjects)
        start = time.perf_counter()
        subjects[index].run(texts)
        seconds[index] = time.perf_counter() - start
    return seconds
