"""Optional dependencies of a run: matplotlib for its plots, TensorBoard for its events (the extra `plots`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

INSTALL = "pip install 'unmask[plots]'"
"""Command that installs both."""


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed, without importing it, which takes half a second."""
    return find_spec("matplotlib") is not None


@contextmanager
def own_backend() -> Iterator[None]:
    """Import matplotlib without its variable MPLBACKEND: the backend that it names may not exist, and none is used."""
    before = os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["MPLBACKEND"] = before


def event_writer() -> Any:
    """Return TensorBoard's writer class, or None if it is not installed or cannot be imported."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except Exception:  # a broken installation may raise anything, and the numbers are in metrics.jsonl
        return None
    return SummaryWriter


def missing() -> str | None:
    """Return a message on what a run will not write and what to install for it; None if nothing is missing."""
    without = [
        *([] if has_matplotlib() else ["no plots (matplotlib)"]),
        *([] if event_writer() else ["no TensorBoard events (tensorboard)"]),
    ]
    return f"{' and '.join(without)} will be written; to get them: {INSTALL}" if without else None
