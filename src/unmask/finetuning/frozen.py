"""Freeze an encoder for fine-tuning: its features are computed once, and looked up in every pass.

In: a learner and its samples. Out: the learner with stored features in the encoder's place, and samples whose token ids
are numbers of rows. An epoch then costs what the small model costs.

The features are computed without dropout. They are kept in float16, as large as bf16 and with an eighth of its error:
what comes out of a LayerNorm is nowhere near float16's largest number (if it is, the run ends and says so). A linear
model of whole texts reads nothing but [CLS]: then only that row is stored, pooled where the task pools it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.batches.batch import Sample
from unmask.encoders.encoder import POOLER
from unmask.encoders.stored import Stored
from unmask.inference.backend import TorchBackend
from unmask.inference.features import open_table, write_features
from unmask.model import Model
from unmask.objectives.learner import Learner
from unmask.recipe import FinetuningRecipe
from unmask.runs.display import Display
from unmask.training.machine import Machine
from unmask.training.processes import Processes

FEATURES = "features"
"""The folder of a run, or of several, that holds them while it trains."""
SUMMARY = "summary"
"""The position that stands for a whole text."""


def freeze(
    learner: Learner,
    base: Model,
    recipe: FinetuningRecipe,
    samples: tuple[Sequence[Sample], Sequence[Sample]],
    folder: Path,
    weights: str,
    machine: Machine,
    processes: Processes,
    display: Display,
) -> tuple[tuple[list[Sample], list[Sample]], str]:
    """Store the features of all samples, unless they are there, and put them in the encoder's place.

    Args:
        learner: is changed.
        base: the model whose encoder is frozen.
        recipe: says what sits on it.
        samples: to train and to score on.
        folder: where they are stored, each under a name that tells what they are of, so that runs can share them.
        weights: a digest of the encoder's.
        machine: where and how precisely they are computed.
        processes: of which the first one computes.
        display: shows how far that is.

    Returns:
        The samples, their token ids now numbers of stored rows, and a line about what is stored.
    """
    encoder, body, chosen = base.encoder, learner.encoder, recipe.downstream
    numbers = body.reads
    texts = learner.parts[recipe.task.part].at == SUMMARY
    at = SUMMARY if texts and chosen is not None and chosen.kind == "linear" else None
    every = [*samples[0], *samples[1]]
    offsets = np.cumsum([0, *(len(sample if at is None else sample.positions[at]) for sample in every)])
    pooled = body is encoder and at == SUMMARY and POOLER in encoder.gives
    path = folder / f"{_digest(f'{weights} {numbers} {at} {pooled} {machine.dtype}', every, at)}.safetensors"
    if processes.is_main and not path.exists():
        rows = TorchBackend(base, machine, display).layers(every, numbers, at=at, pooled=pooled)
        write_features(path, rows, offsets, (len(numbers), encoder.width), half=True)
    processes.barrier()
    table = open_table(path)
    stored = Stored(table, numbers, encoder.head, encoder.num_layers, encoder.longest).to(machine.device)
    learner.encoder = body.over(stored)
    made = [_by_row(sample, first, at) for sample, first in zip(every, offsets[:-1].tolist(), strict=True)]
    about = f"features of {len(every):,} samples: {len(table):,} rows, {table.nbytes / 2**20:,.1f} MiB"
    return (made[: len(samples[0])], made[len(samples[0]) :]), about


def _digest(how: str, samples: Sequence[Sample], at: str | None) -> str:
    """Return what tells features from others: how they are computed, and of which samples."""
    digest = hashlib.sha256(how.encode())
    for sample in samples:
        where = None if at is None else sample.positions[at]
        parts = [part for part in (sample.ids, sample.segments, where) if part is not None]
        digest.update(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
        digest.update(len(sample).to_bytes(8, "little"))
    return digest.hexdigest()[:16]


def _by_row(sample: Sample, first: int, at: str | None) -> Sample:
    """Return a sample whose token ids are numbers of rows, of all tokens or only of those `at` some positions."""
    if at is None:
        return sample.add(ids=first + np.arange(len(sample)))
    rows = np.arange(len(sample.positions[at]))
    return replace(sample, ids=first + rows, segments=None, positions={at: rows})
