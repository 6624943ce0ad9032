"""Files of vectors of texts: NumPy's `.npy`, or `.safetensors` with a tensor `vectors`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import safetensors.numpy

from unmask.support.durable import replace_file
from unmask.support.errors import UserError

SUFFIXES = (".npy", ".safetensors")


def check_target(path: Path) -> None:
    """Raise an error, before anything is computed, if vectors cannot be written to a path."""
    if path.suffix not in SUFFIXES:
        raise UserError("the suffix determines the format", file=path, remedy=f"use {' or '.join(SUFFIXES)}")
    if path.exists():
        raise UserError("the file exists", file=path, remedy="choose another --out")
    if not path.parent.is_dir():
        raise UserError("there is no such directory", file=path.parent, remedy="create it")


def write_vectors(path: Path, vectors: np.ndarray, model: str) -> None:
    """Write vectors, (texts, width), in the format of the suffix.

    Args:
        path: the file; see `check_target`.
        vectors: the vectors.
        model: fingerprint of the model, for the metadata of `.safetensors`.
    """
    if path.suffix == ".npy":
        content = io.BytesIO()
        np.save(content, vectors, allow_pickle=False)
        replace_file(path, content.getvalue())
    else:
        replace_file(path, safetensors.numpy.save({"vectors": vectors}, {"model": model}))
