"""Pictures of a run, drawn from its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.runs.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2f6db3", "#d9722e", "#8a8a8a"


def figure(columns: int, *, width: float = 5.0, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Return an empty picture of some panels side by side."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width * columns, height), dpi=120, layout="constrained")
    panels = list(np.atleast_1d(drawing.subplots(1, columns)))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    return drawing, panels


def save(drawing: Figure, path: Path) -> None:
    """Write a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path)


def plot_training(run: RunDirectory) -> None:
    """Draw plots/training.png: loss, and each objective's accuracy, over tokens; dashed, what a guess would reach."""
    train, heldout = run.read_metrics("train"), run.read_metrics("heldout")
    if not train:
        return
    guesses = run.read_metrics("guess")
    names = [name for name in train[-1] if name.endswith("_accuracy")]
    drawing, panels = figure(1 + len(names))
    for panel, name in zip(panels, ["loss", *names], strict=True):
        _curve(panel, train, name, "training", GREY)
        _points(panel, heldout, name, "held out", BLUE)
        for line in guesses:
            if name in line:
                panel.axhline(line[name], color=ORANGE, linestyle="--", label=f"always the same: {line[name]:.3f}")
        panel.set_xlabel("million tokens")
        panel.set_title(name.replace("_", " ").replace(" lm", " LM"))
        panel.legend(frameon=False, fontsize=8)
    save(drawing, run.plots / "training.png")


def plot_confusion(labels: Sequence[str], counts: np.ndarray, path: Path) -> None:
    """Draw a confusion matrix: rows are what is true, columns what was said.

    Args:
        labels: in order.
        counts: (labels, labels).
        path: of the picture.
    """
    size = max(3.2, 0.6 * len(labels) + 1.8)
    drawing, (panel,) = figure(1, width=size, height=size)
    panel.grid(False)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    panel.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
    panel.set_yticks(range(len(labels)), labels)
    panel.set_xlabel("predicted")
    panel.set_ylabel("true")
    if len(labels) <= 20:
        for row, column in np.ndindex(counts.shape):
            colour = "white" if shares[row, column] > 0.5 else "black"
            panel.text(column, row, f"{counts[row, column]}", ha="center", va="center", color=colour)
    save(drawing, path)


def _curve(panel: Axes, lines: Sequence[Mapping[str, Any]], name: str, label: str, colour: str) -> None:
    """Draw a smoothed curve: the mean of 50 pieces of the run at most."""
    found = [(line["tokens"], line[name]) for line in lines if line.get(name) is not None]
    pieces = np.array_split(np.array(found), min(50, len(found)))
    x, y = np.array([piece.mean(0) for piece in pieces]).T
    panel.plot(x / 1e6, y, color=colour, label=label)


def _points(panel: Axes, lines: Sequence[Mapping[str, Any]], name: str, label: str, colour: str) -> None:
    found = [(line["tokens"] / 1e6, line[name]) for line in lines if line.get(name) is not None]
    if found:
        panel.plot(*zip(*found, strict=True), color=colour, marker="o", markersize=3, label=label)
