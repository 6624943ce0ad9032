"""`Sample`, one sequence in numpy, and `Batch`, many sequences concatenated in torch.

A batch has no padding: it is one stream of tokens with offsets. All indices are computed here, on the CPU, so that
nothing downstream has to read a shape from a device. `collate` sorts by length, so that little is padding in the groups
on which attention kernels without variable-length support work (groups.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.groups import Change, group_sequences, pack_sequences
from unmask.data.batches.tokens import PLAIN, Reading, Tokens, collate_readings, count_backward
from unmask.support.transfer import all_to_device

Key = tuple[int, ...]
"""Identifies a sample permanently, for example (epoch, block, item). Random generators are derived from it."""
TARGETS = "targets"
"""Name of the positions and labels of tokens that are predicted by queries, without reading them (XLNet)."""
UNSEEN = "unseen"
"""Name of the positions of tokens that attend to others, but that no token attends to; the last ones of a sequence."""
GROUP = "group"
"""Name of the label that tells which sequences of a batch come from the same sample."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sequence. Layouts create it, masking and objectives add to it; each name is added only once.

    Attributes:
        key: identifies the sample.
        ids: token ids, (length,), or several numbers per token, (length, any number).
        segments: 0 or 1 for each token, (length,); None if segments are not distinguished.
        positions: token indices in the sequence by name, such as "summary" or "masked".
        labels: values to predict by name, each (any number,).
        counts: number of terms that each part of the loss sums over in this sample.
        done: fraction of the run that is completed when the sample is read, 0 to 1, for settings that change during it.
        stage: index of the run's stage in which the sample is read.
        stream: index of the contiguous stream whose next window this is; None for an independent sample.
        fresh: whether the stream starts here, so that no state is carried over from the previous window.
        reading: how it is read, if not from left to right with all tokens in sight.
        parts: lengths of the sequences that it consists of, which stay in one batch, such as the choices of a question;
            each has the same number of labels, by name. Empty: it is one sequence.
    """

    key: Key
    ids: np.ndarray
    segments: np.ndarray | None = None
    positions: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    done: float = 0.0
    stage: int = 0
    stream: int | None = None
    fresh: bool = False
    reading: Reading = PLAIN
    parts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, samples: Sequence[Sample], labels: Mapping[str, np.ndarray]) -> Sample:
        """Return several sequences as one sample, without a key; `labels` are those of all, in order."""
        starts = np.cumsum([0, *map(len, samples)])[:-1]
        pairs = list(zip(samples, starts, strict=True))
        segments = [sample.segments for sample in samples if sample.segments is not None]
        return cls(
            key=(),
            ids=np.concatenate([sample.ids for sample in samples]),
            segments=np.concatenate(segments) if segments else None,
            positions={
                name: np.concatenate([sample.positions[name] + start for sample, start in pairs])
                for name in samples[0].positions
            },
            labels=labels,
            parts=tuple(map(len, samples)),
        )

    def sequences(self, number: int) -> list[Sample]:
        """Return its sequences, labeled with the number of the sample; itself, if it is one sequence."""
        if not self.parts:
            return [self]
        made, starts = [], np.cumsum([0, *self.parts])[:-1]
        for index, (start, length) in enumerate(zip(starts.tolist(), self.parts, strict=True)):
            labels = {name: np.split(values, len(self.parts))[index] for name, values in self.labels.items()}
            inside, end = slice(start, start + length), start + length
            positions = {name: at[(at >= start) & (at < end)] - start for name, at in self.positions.items()}
            made.append(
                self.changed(
                    key=(*self.key, index),
                    ids=self.ids[inside],
                    segments=None if self.segments is None else self.segments[inside],
                    positions=positions,
                    labels={**labels, GROUP: np.array([number])},
                    parts=(),
                )
            )
        return made

    def named(self, key: Key) -> Sample:
        """Return a copy with another key."""
        return self.changed(key=key)

    def at(self, done: float) -> Sample:
        """Return the sample as it is when this fraction of the run is completed."""
        return self if done == self.done else self.changed(done=done)

    def add(
        self,
        *,
        ids: np.ndarray | None = None,
        positions: Mapping[str, np.ndarray] | None = None,
        labels: Mapping[str, np.ndarray] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> Sample:
        """Return a copy with additional names (and, for masking, other ids).

        Raises:
            ValueError: a name is already in use.
        """
        return self.changed(
            ids=self.ids if ids is None else ids,
            positions=_merge(self.positions, positions) if positions else self.positions,
            labels=_merge(self.labels, labels) if labels else self.labels,
            counts=_merge(self.counts, counts) if counts else self.counts,
        )

    def changed(self, **values: object) -> Sample:
        """Return a copy with other values, in a fraction of the time of `dataclasses.replace`."""
        copy = object.__new__(Sample)
        copy.__dict__.update(self.__dict__, **values)
        return copy


@dataclass(frozen=True)
class Batch:
    """Concatenated samples, sorted by length; where they have directions, those in reverse order come last.

    Attributes:
        keys: the samples' keys, which map predictions back to examples.
        tokens: the input of the encoder.
        positions: as in `Sample`, but as indices in the batch.
        labels: concatenated.
        counts: summed; known on the host before any forward pass.
        streams: (sequences,) the stream of each, unique in a step; on the host; None if samples are independent.
        fresh: (sequences,) bool, whether the stream starts here; on the host; None without streams.
        read: the tokens that the objectives read, as one tensor, (rows,) int64, or () for all; None: not known yet (see
            `Learner.plan`).
        carry: the state of these streams, (sequences, ...) each, added by the training loop on the device.
    """

    keys: tuple[Key, ...]
    tokens: Tokens
    positions: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]
    counts: Mapping[str, int]
    streams: Tensor | None = None
    fresh: Tensor | None = None
    read: tuple[Tensor, ...] | None = None
    carry: Mapping[str, Tensor] = field(default_factory=dict)

    def map(self, change: Change) -> Batch:
        """Return a copy with `change` applied to all tensors that are read on the device, except `carry`."""
        return replace(
            self,
            tokens=self.tokens.map(change),
            positions={name: change(value) for name, value in self.positions.items()},
            labels={name: change(value) for name, value in self.labels.items()},
            read=None if self.read is None else tuple(map(change, self.read)),
        )

    def to(self, device: torch.device) -> Batch:
        """Return the batch, of the CPU, on a device, by one copy, which overlaps with computation on the device."""
        if device.type == "cpu":
            return self
        tensors: list[Tensor] = []

        def collect(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor

        self.map(collect)
        moved = iter(all_to_device(tensors, device))
        return self.map(lambda tensor: next(moved))  # in the same order


Prepare = Callable[[Sequence[Sample]], list[Sample]]
"""Masks samples and counts their targets; what it makes of a sample does not depend on the others."""


def collate(samples: Sequence[Sample]) -> Batch:
    """Concatenate samples, shortest first (samples of equal length keep their order), each direction by itself.

    Raises:
        ValueError: a stream occurs twice, only some of the samples belong to streams or have segments, or they are
            read in different ways; see `collate_readings`.
    """
    counts = add_counts(samples)
    samples = [sequence for number, sample in enumerate(samples) for sequence in sample.sequences(number)]
    samples = sorted(samples, key=lambda sample: (bool(sample.reading.backward), len(sample)))
    readings = [sample.reading for sample in samples]
    backward = count_backward(readings)
    streams = [sample.stream for sample in samples if sample.stream is not None]
    if streams and len(set(streams)) != len(samples):
        raise ValueError("the samples of a batch must be windows of different streams, or all belong to no stream")
    lengths = np.fromiter(map(len, samples), np.int64, len(samples))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = {name: [sample.positions[name] for sample in samples] for name in samples[0].positions}
    positions = {
        name: torch.from_numpy(np.concatenate(at) + np.repeat(offsets[:-1], list(map(len, at))))
        for name, at in places.items()
    }
    groups = tuple(group_sequences(lengths, offsets, len(samples) - (backward or 0)))
    packed = pack_sequences(lengths, offsets, groups) if backward is None else None
    if UNSEEN in positions and len(positions[UNSEEN]):
        groups, packed = tuple(group.without_keys(positions[UNSEEN].numpy()) for group in groups), None
    queries = list(map(len, places.get(TARGETS, [])))
    position_ids = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    tokens = Tokens(
        ids=torch.from_numpy(np.concatenate([sample.ids for sample in samples]).astype(np.int64)),
        segments=_segments(samples),
        position_ids=torch.from_numpy(position_ids),
        offsets=torch.from_numpy(offsets.astype(np.int32)),
        groups=groups,
        packed=packed,
        reading=collate_readings(readings, groups, positions.get(TARGETS), queries),
    )
    return Batch(
        keys=tuple(sample.key for sample in samples),
        tokens=tokens,
        positions=positions,
        labels={
            name: torch.from_numpy(np.concatenate([sample.labels[name] for sample in samples]))
            for name in samples[0].labels
        },
        counts=counts,
        streams=torch.tensor(streams) if streams else None,
        fresh=torch.tensor([sample.fresh for sample in samples]) if streams else None,
    )


def add_counts(samples: Sequence[Sample] | Sequence[Batch]) -> dict[str, int]:
    """Sum the counts of samples, or of batches, by part."""
    return {name: sum(sample.counts[name] for sample in samples) for name in samples[0].counts}


def total_length(samples: Sequence[Sample]) -> int:
    """Return the total number of tokens in samples."""
    return sum(map(len, samples))


def split(samples: Sequence[Sample], micro_tokens: int) -> list[list[Sample]]:
    """Split a step's samples into micro-batches of similar lengths.

    Each has at most `micro_tokens` tokens, or a single longer sample.

    Raises:
        ValueError: `micro_tokens` is not positive: the trainer has not been started, so its size is not known yet.
    """
    if micro_tokens < 1:
        raise ValueError("micro_tokens must be at least 1: call Trainer.start() or Trainer.resume() before a step")
    micro_batches: list[list[Sample]] = [[]]
    capacity = micro_tokens
    for sample in sorted(samples, key=len):
        if micro_batches[-1] and len(sample) > capacity:
            micro_batches.append([])
            capacity = micro_tokens
        micro_batches[-1].append(sample)
        capacity -= len(sample)
    return micro_batches


def _segments(samples: Sequence[Sample]) -> Tensor | None:
    """Return the concatenated segments of samples, (tokens,), or None if no sample has any."""
    segments = [sample.segments for sample in samples if sample.segments is not None]
    if segments and len(segments) != len(samples):
        raise ValueError("either all samples of a batch must have segments, or none")
    return torch.from_numpy(np.concatenate(segments).astype(np.int64)) if segments else None


def _merge(old: Mapping[str, _Value], new: Mapping[str, _Value]) -> dict[str, _Value]:
    if not old.keys().isdisjoint(new):
        raise ValueError(f"names already in use: {sorted(old.keys() & new.keys())}")
    return {**old, **new}
