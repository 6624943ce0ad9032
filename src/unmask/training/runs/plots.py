"""Plots of the metrics of a run, or of several runs."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.support.durable import replace_file
from unmask.support.errors import UserError, nearest
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.extras import INSTALL, has_matplotlib, own_backend
from unmask.training.runs.summary import Summary, metric_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2f6db3", "#d9722e", "#8a8a8a"
OVER = {
    "steps": ("step", 1, "steps"),
    "tokens": ("tokens", 1e6, "million tokens"),
    "minutes": ("seconds", 60, "minutes"),
}
"""Horizontal axes of plots of several runs: key in a training line of metrics.jsonl, divisor, axis label."""


FORMATS: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""Suffixes of plots, with the metadata that is not written, as it differs each time."""


def figure(columns: int, *, width: float = 5.0, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with some panels side by side.

    Raises:
        UserError: matplotlib is not installed.
    """
    if not has_matplotlib():
        raise UserError("plots need matplotlib, which is not installed", remedy=INSTALL)
    with own_backend():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    drawing = Figure(figsize=(width * columns, height), dpi=120, layout="constrained")
    FigureCanvasAgg(drawing)  # whatever backend is configured
    panels = list(np.atleast_1d(drawing.subplots(1, columns)))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    return drawing, panels


def save(drawing: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of the suffix, one of `FORMATS`; the same figure has the same bytes."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": path.stem}):
        drawing.savefig(content, format=path.suffix[1:], metadata=FORMATS[path.suffix])
    replace_file(path, content.getvalue())


def try_to_draw(draw: Callable[[], None], say: Callable[[str], None]) -> None:
    """Draw a plot of results that are already saved; a failure is only reported in a line.

    Args:
        draw: draws and saves the plot; not called if matplotlib is not installed (`extras.missing` reports that).
        say: prints a line.
    """
    if not has_matplotlib():
        return
    try:
        draw()
    except Exception as error:  # whatever a drawing library raises
        reason = str(error).partition("\n")[0]
        say(f"a plot could not be drawn; everything else is saved ({type(error).__name__}: {reason})")


def plot_training(run: RunDirectory) -> None:
    """Draw plots/training.png: loss and each objective's accuracy over tokens; dashed: a constant prediction."""
    train, heldout = run.read_metrics("train"), run.read_metrics("heldout")
    if not train:
        return
    baselines = run.read_metrics("baseline")
    names = [name for name in metric_names(train) if name.endswith("_accuracy")]  # also those of earlier stages
    drawing, panels = figure(1 + len(names))
    for panel, name in zip(panels, ["loss", *names], strict=True):
        x, y = _points(train, name, "tokens")
        panel.plot(_smooth(x / 1e6), _smooth(y), color=GREY, label="training")
        x, y = _points(heldout, name, "tokens")
        if len(x):
            panel.plot(x / 1e6, y, color=BLUE, marker="o", markersize=3, label="held out")
        for line in baselines:
            if name in line:
                panel.axhline(line[name], color=ORANGE, linestyle="--", label=f"constant prediction: {line[name]:.3f}")
        x, y = _points(heldout, f"{name.removesuffix('_accuracy')}_baseline", "tokens")
        if len(x):
            panel.plot(x / 1e6, y, color=ORANGE, linestyle="--", label=f"constant prediction: {y[-1]:.3f}")
        panel.set_xlabel("million tokens")
        panel.set_title(_title(name))
        panel.legend(frameon=False, fontsize=8)
    save(drawing, run.plots / "training.png")


def can_draw(labels: Sequence[str]) -> bool:
    """Return whether matplotlib's font has all characters of some labels; not if its configuration is broken."""
    try:
        with own_backend():
            from matplotlib.font_manager import FontProperties, findfont, get_font

        font = get_font(findfont(FontProperties()))
    except Exception:  # of a configuration file, for example
        return False
    return all(font.get_char_index(ord(character)) > 0 for label in labels for character in label)


def plot_confusion(labels: Sequence[str], counts: np.ndarray, path: Path) -> None:
    """Draw a confusion matrix: rows are gold labels, columns predicted labels.

    If the font cannot draw the labels, they are numbered from 1; report.md lists the numbers.

    Args:
        labels: the labels in order.
        counts: confusion matrix, (labels, labels).
        path: path of the plot.
    """
    size = max(3.2, 0.6 * len(labels) + 1.8)
    drawing, (panel,) = figure(1, width=size, height=size)
    panel.grid(False)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = labels if can_draw(labels) else [str(number) for number in range(1, len(labels) + 1)]
    panel.set_xticks(range(len(labels)), names, rotation=30, ha="right")
    panel.set_yticks(range(len(labels)), names)
    panel.set_xlabel("predicted")
    panel.set_ylabel("true")
    if len(labels) <= 20:
        for row, column in np.ndindex(counts.shape):
            color = "white" if shares[row, column] > 0.5 else "black"
            panel.text(column, row, f"{counts[row, column]}", ha="center", va="center", color=color)
    save(drawing, path)


def draw_runs(runs: Sequence[Summary], path: str | Path, *, metric: str = "loss", over: str = "tokens") -> None:
    """Draw one metric of several runs: training smoothed and pale, held out with a dot for each evaluation.

    Args:
        runs: the runs, each in its own color and named by its path relative to their common folder.
        path: path of the plot.
        metric: name of the metric in metrics.jsonl.
        over: horizontal axis, a key of `OVER`.

    Raises:
        UserError: a run has not logged the metric, or matplotlib is not installed.
    """
    drawing, (panel,) = figure(1, width=8.5, height=4.8)
    from matplotlib import colormaps

    count = len(runs)
    colors = colormaps["tab10"](range(count)) if count <= 10 else colormaps["turbo"](np.linspace(0.05, 0.95, count))
    scored = False
    for run, name, color in zip(runs, _names([run.path for run in runs]), colors, strict=True):
        _check_metric(run, metric)
        x, y = _points(run.heldout, metric, "step")
        if len(x):
            scored, label = True, f"{name}: {y[-1]:.3f}"
            panel.plot(_axis_values(run, over, x), y, color=color, marker="o", markersize=3, label=label)
        style = {"alpha": 0.35} if len(x) else {"label": name}
        x, y = _points(run.train, metric, "step")
        panel.plot(_smooth(_axis_values(run, over, x)), _smooth(y), color=color, **style)
    panel.set(xlabel=OVER[over][2], title=_title(metric))
    key = "dots: held out, with its last value\npale: training, smoothed" if scored else "training, smoothed"
    drawing.legend(loc="outside right upper", frameon=False, fontsize=8, title=key, title_fontsize=8, alignment="left")
    save(drawing, Path(path))


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
    """Return x and y of the lines that have a value (the loss of a skipped step is null)."""
    pairs = [(line[over], line[name]) for line in lines if isinstance(line.get(name), int | float)]
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
