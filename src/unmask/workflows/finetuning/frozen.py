"""Fine-tuning that leaves out what does not learn: a frozen encoder, or the embeddings of words that do not occur.

Input: a learner and its samples. Output: the learner with stored features in place of the encoder, and samples whose
token ids are row indices. An epoch then costs only as much as the small model. The features are computed without
dropout and stored in float16, which has the size of bf16 and an eighth of its error: outputs of a LayerNorm are far
below the largest float16 number (otherwise the run stops with an error). A linear model of whole texts reads only
[CLS], or the mean of a text: then only that row is stored, pooled if the task pools it.

Of the tens of thousands of token embeddings, the examples of a task use a few thousand. The others never have a
gradient: weight decay scales them all by the same factor, and nothing else changes them. Without them a short step is
faster and needs less memory, and the result is the same up to rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from unmask.data.batches.batch import Sample
from unmask.inference.backend import TorchBackend
from unmask.inference.features import open_table, write_features
from unmask.model.model import Model
from unmask.nn.encoders.encoder import POOLER
from unmask.nn.encoders.stored import Stored
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.durable import replace_file
from unmask.support.fingerprint import sha256
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.restoring import deliver
from unmask.training.runs.directory import MARK
from unmask.training.runs.display import Display

Reindex = Callable[[Sample], Sample]
"""Replaces the token ids of a sample by those of a reduced table."""


@contextmanager
def only_used_rows(
    tables: Sequence[nn.Embedding], train: Sequence[Sample], held: Sequence[Sample]
) -> Iterator[Reindex]:
    """Reduce tables of token embeddings to the rows of the samples' tokens; restore the others at the end.

    Within the context the first table has one more row, of ones, which weight decay turns into the factor by which it
    scales the rows of tokens that are not trained. The optimizer must therefore treat each row by itself: AdamW does,
    LAMB does not. Tokens of `held` alone are in the table to be looked up; in the end, they are as if it were empty.

    Args:
        tables: the table that is trained, and those of models that read the same samples and are not trained; each
            (vocabulary, its width), modified in place. Their rows are used for nothing but looking up tokens.
        train, held: samples to train on and to evaluate on.

    Yields:
        A function that gives a sample the ids of the reduced tables.
    """
    table, *others = tables
    whole, frozen = table.weight.detach(), [other.weight for other in others]
    ids = [np.concatenate([np.zeros(0, np.int32), *(sample.ids for sample in part)]) for part in (train, held)]
    is_trained, is_held = (np.bincount(part, minlength=len(whole)) > 0 for part in ids)
    used = np.flatnonzero(is_trained | is_held)
    rows = torch.from_numpy(used).to(whole.device)
    table.weight = nn.Parameter(torch.cat([whole[rows], torch.ones_like(whole[:1])]))
    table.num_embeddings = len(table.weight)
    for other in others:
        other.weight = nn.Parameter(other.weight[rows], requires_grad=False)
    index = np.zeros(len(whole), np.int64)
    index[used] = np.arange(len(used))
    yield lambda sample: sample.add(ids=index[sample.ids])
    weight, trained = table.weight.detach(), torch.from_numpy(is_trained[used]).to(whole.device)
    table.weight = nn.Parameter((whole * weight[-1]).index_copy_(0, rows[trained], weight[:-1][trained]))
    table.num_embeddings = len(whole)
    for other, weight in zip(others, frozen, strict=True):
        other.weight = weight


SUMMARY = "summary"
"""Name of the position that represents a whole text."""


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
    """Store the features of all samples, unless they are stored already, and replace the encoder by them.

    Args:
        learner: the learner; modified in place.
        base: the model whose encoder is frozen.
        recipe: the recipe, with the downstream model over the encoder.
        samples: the samples to train on and to evaluate on.
        folder: where features are stored, under names that identify them, so that runs can share them.
        weights: hash of the encoder's weights.
        machine: device and precision of the computation.
        processes: the processes; the main one computes.
        display: shows the progress.

    Returns:
        The samples, with indices of stored rows as token ids, and a line about the stored features.
    """
    encoder, body, chosen = base.encoder, learner.encoder, recipe.downstream
    numbers = body.reads
    texts = learner.parts[recipe.task.part].at == SUMMARY
    linear, direct = chosen is not None and chosen.kind == "linear", body is encoder
    at = SUMMARY if texts and linear and (direct or not encoder.head.mean) else None
    every = [*samples[0], *samples[1]]
    sequences = [sequence for number, sample in enumerate(every) for sequence in sample.sequences(number)]
    offsets = np.cumsum([0, *(len(sequence if at is None else sequence.positions[at]) for sequence in sequences)])
    read = at == SUMMARY or encoder.head.pools_tokens  # what the head reads, if there is no other model in between
    pooled = direct and read and (POOLER in encoder.provides or encoder.head.mean)
    path = folder / f"{_digest(f'{weights} {numbers} {at} {pooled} {machine.dtype}', sequences, at)}.safetensors"

    def store() -> None:
        if _is_intact(path, display):
            return
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / MARK, b"")  # if the run ends before its first checkpoint, it may start again with them
        rows = TorchBackend(base, machine, display).layers(sequences, numbers, at=at, pooled=pooled)
        _checksum(path).unlink(missing_ok=True)
        write_features(path, rows, offsets, (len(numbers), encoder.width), half=True)
        replace_file(_checksum(path), sha256(path).encode())

    processes.lead(store)
    deliver(processes, folder)
    table = open_table(path)
    stored = Stored(table, numbers, encoder.head, encoder.num_layers, encoder.longest).to(machine.device)
    learner.encoder = body.over(stored)
    firsts = offsets[np.cumsum([0, *(max(1, len(sample.parts)) for sample in every)])[:-1]]
    made = [_by_row(sample, first, at) for sample, first in zip(every, firsts.tolist(), strict=True)]
    about = f"features of {len(every):,} samples: {len(table):,} rows, {table.nbytes / 2**20:,.1f} MiB"
    return (made[: len(samples[0])], made[len(samples[0]) :]), about


def _checksum(path: Path) -> Path:
    """Return the file with the checksum of stored features."""
    return path.with_suffix(".sha256")


def _is_intact(path: Path, display: Display) -> bool:
    """Return whether features are stored; report damaged ones."""
    if not path.exists() or not _checksum(path).exists():  # the second if the run was killed before it was written
        return False
    if sha256(path).encode() == _checksum(path).read_bytes():
        return True
    display.say(f"{path}: the stored features are damaged, and are computed again")
    return False


def _digest(how: str, samples: Sequence[Sample], at: str | None) -> str:
    """Return a digest that identifies features: how they are computed, and for which samples."""
    digest = hashlib.sha256(how.encode())
    for sample in samples:
        where = None if at is None else sample.positions[at]
        parts = [part for part in (sample.ids, sample.segments, where) if part is not None]
        digest.update(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
        digest.update(len(sample).to_bytes(8, "little"))
    return digest.hexdigest()[:16]


def _by_row(sample: Sample, first: int, at: str | None) -> Sample:
    """Return a sample whose token ids are row indices, of all tokens or only of those at the positions named `at`."""
    if at is None:
        return sample.add(ids=first + np.arange(len(sample)))
    rows = np.arange(len(sample.positions[at]))
    parts = (1,) * len(sample.parts)
    return replace(sample, ids=first + rows, segments=None, positions={at: rows}, parts=parts)
