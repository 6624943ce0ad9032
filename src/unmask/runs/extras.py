"""What a run can do without: matplotlib for its pictures, TensorBoard for its events (the extra `plots`)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

INSTALL = "pip install 'unmask[plots]'"
"""What brings both."""


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed; it is not imported, which takes half a second."""
    return find_spec("matplotlib") is not None


def event_writer() -> Any:
    """Return TensorBoard's class of writers; None where it is not installed, or cannot be imported."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except Exception:  # a broken installation may raise anything, and the numbers are in metrics.jsonl
        return None
    return SummaryWriter


def missing() -> str | None:
    """Return a line that tells what a run does not write here, and what would bring it; None: nothing is missing."""
    without = [
        *([] if has_matplotlib() else ["no pictures (matplotlib)"]),
        *([] if event_writer() else ["no TensorBoard events (tensorboard)"]),
    ]
    return f"{' and '.join(without)} will be written; to have them: {INSTALL}" if without else None
