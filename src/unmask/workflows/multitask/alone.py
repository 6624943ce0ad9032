"""What learning together is worth to each task: the same examples, learned by a model of their own.

RUN/alone/TASK is the run that `unmask.finetune` makes of a task by itself. Both models predict the same dev examples,
and the difference has the paired interval of `unmask.evaluate`. RUN/alone.json has the numbers, RUN/report.md a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import differences, measure_all
from unmask.model.model import load_model
from unmask.support.durable import only_writer, replace_file
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.job import FinetuningJob
from unmask.workflows.finetuning.run_job import run_job
from unmask.workflows.multitask.mixture import Mixture
from unmask.workflows.pretraining.restarts import started

ALONE = "alone"
"""Folder of the runs of single tasks, and name of the file of the comparison."""
HEADING = "## Together and alone"


@dataclass(frozen=True)
class Comparison:
    """A task learned together with others, and alone, on the same dev examples.

    Attributes:
        metric: what is compared.
        together, alone: its two values.
        interval: 95 % interval of their difference, together minus alone, by a paired bootstrap.
        p: the p-value of the difference.
    """

    metric: str
    together: float
    alone: float
    interval: tuple[float, float]
    p: float

    @property
    def verdict(self) -> str:
        """What it amounts to."""
        low, high = self.interval
        return "helped" if low > 0 else "hurt" if high < 0 else "no difference shown"


def compare_with_alone(
    mixture: Mixture, jobs: Mapping[str, FinetuningJob], out: Path, machine: Machine, display: Display, *, resume: bool
) -> None:
    """Train each task alone, unless that is done, and compare the models; write the comparison."""
    compared, exact = {}, replace(machine, precision="float32")
    for name, part in mixture.parts.items():
        run = out / ALONE / name
        display.say(f"now {name} alone:")
        run_job(jobs[name], run, resume=resume and started(run))
        together, own = (Predictor(load_model(folder), exact, display) for folder in (out / "model" / name, run))
        compared[name] = compare(together, own, part.data.held)
    _write(out, compared)
    for name, task in compared.items():
        low, high = task.interval
        display.say(
            f"{name}: {task.verdict}: {task.metric} {task.together:.2f}, alone {task.alone:.2f}, "
            f"difference {task.together - task.alone:+.2f} [{low:+.2f}, {high:+.2f}]"
        )


def compare(together: Predictor, alone: Predictor, examples: Sequence[Any]) -> Comparison:
    """Compare two models on the same examples."""
    task = together.task
    first, second = (task.measure(examples, model.run(examples), model.labels) for model in (together, alone))
    tested: dict[str, Any] = differences(first, second, len(examples), groups=task.groups(examples))
    metric = task.metric if task.metric in tested else next(iter(tested))
    both, own = (measure_all(measure, len(examples))[metric] for measure in (first, second))
    low, high = tested[metric]["interval"]
    return Comparison(metric, both, own, (low, high), tested[metric]["p"])


def _write(out: Path, compared: Mapping[str, Comparison]) -> None:
    """Write the comparison, and add its table to the report."""
    lines = ["| task | metric | together | alone | difference [95 %] | p | |", "|---" * 7 + "|"]
    for name, task in compared.items():
        low, high = task.interval
        difference = f"{task.together - task.alone:+.2f} [{low:+.2f}, {high:+.2f}]"
        scores = f"{task.together:.2f} | [{task.alone:.2f}]({ALONE}/{name}/report.md)"
        lines.append(f"| {name} | {task.metric} | {scores} | {difference} | {task.p:.2g} | {task.verdict} |")
    records = {name: {**msgspec.to_builtins(task), "verdict": task.verdict} for name, task in compared.items()}
    with only_writer(out / f"{ALONE}.json"):
        replace_file(out / f"{ALONE}.json", msgspec.json.format(msgspec.json.encode(records)))
        report = out / "report.md"
        before = report.read_text(encoding="utf8").partition(HEADING)[0].rstrip()
        replace_file(report, "\n".join([before, "", HEADING, "", *lines, ""]).encode())
