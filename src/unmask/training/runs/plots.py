"""Plots of the metrics of a run, or of several runs, as SVG."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from unmask.support.errors import UserError, nearest
from unmask.support.pictures import Curve, Picture, curves, matrix, write
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.summary import Summary, metric_names

OVER = {
    "steps": ("step", 1, "steps"),
    "tokens": ("tokens", 1e6, "million tokens"),
    "minutes": ("seconds", 60, "minutes"),
}
"""Horizontal axes of plots of several runs: key in a training line of metrics.jsonl, divisor, axis label."""
HUES = ("#2f6db3", "#d9722e", "#3a8f3a", "#b8383d", "#7d5ba6", "#8a6150", "#c95f9f", "#6b6b6b", "#a0a028", "#2ba3b5")
"""Colors of several runs; more runs have them again."""


def plot_training(run: RunDirectory) -> None:
    """Draw plots/training.svg: loss and each objective's accuracy over tokens; dashed: a constant prediction."""
    train, heldout = run.read_metrics("train"), run.read_metrics("heldout")
    baselines = run.read_metrics("baseline")
    names = [name for name in metric_names(train) if name.endswith("_accuracy")]  # also those of earlier stages
    panels = [_panel(name, train, heldout, baselines) for name in ("loss", *names)]
    if drawn := [panel for panel in panels if panel]:
        write(run.plots / "training.svg", *drawn)


def _panel(
    name: str,
    train: Sequence[Mapping[str, Any]],
    heldout: Sequence[Mapping[str, Any]],
    baselines: Sequence[Mapping[str, Any]],
) -> Picture | None:
    """Return the curves of a metric over tokens; None: it has none."""
    x, y = _points(train, name, "tokens")
    lines = [Curve("training", _pairs(_smooth(x / 1e6), _smooth(y)), "pale")] if len(x) else []
    held, scores = _points(heldout, name, "tokens")
    if len(held):
        lines.append(Curve(f"held out: {scores[-1]:.3f}", _pairs(held / 1e6, scores), "best", dots=True))
    if not lines:
        return None
    last = max(x for line in lines for x, _ in line.points)
    constants = [((0.0, line[name]), (last, line[name])) for line in baselines if name in line]
    known, values = _points(heldout, f"{name.removesuffix('_accuracy')}_baseline", "tokens")
    for points in (*constants, *([_pairs(known / 1e6, values)] if len(known) else [])):
        lines.append(Curve(f"constant prediction: {points[-1][1]:.3f}", points, "constant"))
    return curves(lines, "million tokens", _title(name))


def plot_confusion(labels: Sequence[str], counts: np.ndarray, path: Path) -> None:
    """Draw a confusion matrix: rows are gold labels, columns predicted labels.

    Args:
        labels: the labels in order.
        counts: confusion matrix, (labels, labels).
        path: path of the plot.
    """
    write(path, matrix(labels, counts.tolist(), "predicted", "true"))


def draw_runs(runs: Sequence[Summary], path: str | Path, *, metric: str = "loss", over: str = "tokens") -> None:
    """Draw one metric of several runs: training smoothed and pale, held out with a dot for each evaluation.

    Args:
        runs: the runs, each in its own color and named by its path relative to their common folder.
        path: path of the plot.
        metric: name of the metric in metrics.jsonl.
        over: horizontal axis, a key of `OVER`.

    Raises:
        UserError: a run has not logged the metric.
    """
    lines = []
    for number, (run, name) in enumerate(zip(runs, _names([run.path for run in runs]), strict=True)):
        _check_metric(run, metric)
        color, (x, y) = HUES[number % len(HUES)], _points(run.heldout, metric, "step")
        if scored := len(x) > 0:
            shown = f"{name}: {y[-1]:.3f}"
            lines.append(Curve(shown, _pairs(_axis_values(run, over, x), y), color=color, dots=True))
        x, y = _points(run.train, metric, "step")
        if len(x):
            points = _pairs(_smooth(_axis_values(run, over, x)), _smooth(y))
            lines.append(Curve("" if scored else name, points, "pale" if scored else "other", color))
    write(Path(path), curves(lines, OVER[over][2], _title(metric)))


def _pairs(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _check_metric(run: Summary, metric: str) -> None:
    names = metric_names([*run.train, *run.heldout])
    if not names:
        raise UserError("nothing is logged yet", file=run.path, remedy="omit this run")
    if metric not in names:
        raise UserError(f"no metric '{metric}'; {nearest(metric, names)}", file=run.path)


def _axis_values(run: Summary, over: str, steps: np.ndarray) -> np.ndarray:
    """Return the axis values of steps, interpolated from the training log, because evaluations do not log the time."""
    name, unit, _ = OVER[over]
    known = np.array([(0, 0), *((line["step"], line[name]) for line in run.train)])
    return np.interp(steps, known[:, 0], known[:, 1] / unit)


def _points(lines: Sequence[Mapping[str, Any]], name: str, over: str) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the lines that have a finite value (the loss of a skipped step is null)."""
    values = [(line[over], line.get(name)) for line in lines]
    pairs = [(at, value) for at, value in values if isinstance(value, int | float) and isfinite(value)]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    return x, y


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the means of at most 50 consecutive sections."""
    return np.array([section.mean() for section in np.array_split(values, 50) if len(section)])


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the paths relative to their common folder."""
    paths = [path.resolve() for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    return [str(path.relative_to(common)) for path in paths]


def _title(name: str) -> str:
    return name.replace("_", " ").replace(" lm", " LM")
