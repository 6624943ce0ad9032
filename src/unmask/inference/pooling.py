"""The vector of a text, made of the hidden states of its tokens; checkpoints/pooling.py has how models state it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.families.checkpoints.pooling import Pooling
from unmask.inference.backend import Backend
from unmask.nn.encoders.encoder import Encoder
from unmask.support.errors import UserError

TINY = 1e-12
"""Smallest norm that vectors are divided by, as in `torch.nn.functional.normalize`."""


def supported(pooling: Pooling | None) -> Pooling:
    """Return the pooling of a model, by default the mean.

    Raises:
        UserError: it has a step that is not supported.
    """
    if pooling is not None and pooling.unsupported:
        raise UserError(
            f"the vectors of this model need {pooling.unsupported}, which is not supported",
            remedy="choose pooling='mean' or 'cls' (--pooling) for other vectors than its own",
        )
    return pooling or Pooling()


def embed_samples(
    backend: Backend, encoder: Encoder, samples: Sequence[Sample], kind: Literal["mean", "cls"]
) -> np.ndarray:
    """Return the vector of each text, (texts, width) float32; `kind` as in `pooled`."""
    vectors = np.empty((len(samples), encoder.width), np.float32)
    for number, rows in backend.layers(samples, [encoder.num_layers]):  # (tokens, 1, width)
        vectors[number] = pooled(rows[:, 0], samples[number], kind)
    return vectors


def pooled(rows: np.ndarray, sample: Sample, kind: Literal["mean", "cls"]) -> np.ndarray:
    """Return the vector of a text, (width,).

    Args:
        rows: the last layer of its tokens, (tokens, width).
        sample: the text.
        kind: "mean" of all tokens, or "cls", where the model reads the vector of a text.
    """
    found: np.ndarray = rows[sample.positions["summary"][0]] if kind == "cls" else rows.mean(0)
    return found


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, (texts, width), divided by their norms."""
    found: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)
    return found
