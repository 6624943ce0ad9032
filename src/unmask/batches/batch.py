"""One sequence in numpy (`Sample`) and many of them laid end to end in torch (`Batch`).

There is no padding: a batch is one stream of tokens with offsets. Every index is made here, on the CPU, so that
nothing downstream asks a device for a shape. `collate` sorts by length, so that an attention kernel without
variable-length support pads little: it works on `Group`s of neighbours of nearly the same length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Key = tuple[int, ...]
"""Names a sample for ever, for example (epoch, block of documents, item): all chance is drawn from it."""

MAX_WASTE = 0.125
"""Largest share of padding in an attention group,"""
CHEAP_WASTE = 128
"""unless it is so few tokens that another group would cost more."""

Change = Callable[[Tensor], Tensor]

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sequence. Layouts make it, masking and objectives add to it; each name has one owner.

    Attributes:
        key: its name.
        ids: token ids, (length,), or several numbers a token, (length, any number).
        segments: 0 or 1 a token, (length,); None where what frames the texts tells none apart.
        positions: token numbers, counted from the sequence's start, by name: "summary", "masked".
        labels: values to predict by name, each (any number,).
        counts: how many terms each part of the loss sums over in this sample.
        done: how much of the run is over when it is read, 0 to 1, for what changes along the way.
        stream: the number of the continuing stream whose next window this is; None: independent.
        fresh: whether its stream begins here, so that nothing is carried over from the window before.
    """

    key: Key
    ids: np.ndarray
    segments: np.ndarray | None = None
    positions: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    done: float = 0.0
    stream: int | None = None
    fresh: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    def named(self, key: Key) -> Sample:
        """Return a copy with another name."""
        return replace(self, key=key)

    def at(self, done: float) -> Sample:
        """Return a copy that is read when so much of the run is over."""
        return replace(self, done=done)

    def add(
        self,
        *,
        ids: np.ndarray | None = None,
        positions: Mapping[str, np.ndarray] | None = None,
        labels: Mapping[str, np.ndarray] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> Sample:
        """Return a copy with more names (and, from masking, other ids).

        Raises:
            ValueError: a name has an owner already.
        """
        return replace(
            self,
            ids=self.ids if ids is None else ids,
            positions=_merge(self.positions, positions or {}),
            labels=_merge(self.labels, labels or {}),
            counts=_merge(self.counts, counts or {}),
        )


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences of nearly the same length: the unit of an attention kernel that pads inside itself.

    Attributes:
        start, stop: its tokens in the batch.
        sequences, longest: its padded shape.
        index: where each of its tokens stands in (sequences * longest); None where nothing is padded, or where the
            batch itself has the padding (`unmask.encoders.padded`).
        slots: (sequences * longest,): which token of the batch stands there, any at padding; None as `index` is.
        real: (sequences, longest) bool, False at padding; None where nothing is padded.
    """

    start: int
    stop: int
    sequences: int
    longest: int
    index: Tensor | None
    slots: Tensor | None
    real: Tensor | None

    def map(self, change: Change) -> Group:
        """Return it with its tensors changed."""
        index, slots, real = (None if old is None else change(old) for old in (self.index, self.slots, self.real))
        return replace(self, index=index, slots=slots, real=real)


@dataclass(frozen=True)
class Tokens:
    """All that an encoder reads.

    Attributes:
        ids: (tokens,), or (tokens, any number) for bodies that read several numbers a token, such as its characters.
        segments: (tokens,); None where what framed the texts tells none apart: the same in all batches of a run.
        position_ids: (tokens,), each token's index in its sequence.
        offsets: (sequences + 1,) int32.
        groups: see `Group`; together they cover all tokens in order.
    """

    ids: Tensor
    segments: Tensor | None
    position_ids: Tensor
    offsets: Tensor
    groups: tuple[Group, ...]

    def map(self, change: Change) -> Tokens:
        """Return them with all tensors changed."""
        return Tokens(
            ids=change(self.ids),
            segments=None if self.segments is None else change(self.segments),
            position_ids=change(self.position_ids),
            offsets=change(self.offsets),
            groups=tuple(group.map(change) for group in self.groups),
        )


@dataclass(frozen=True)
class Batch:
    """Samples laid end to end, sorted by length.

    Attributes:
        keys: the samples' names, so that a prediction finds its example.
        tokens: what the encoder reads.
        positions: as in `Sample`, now counted from the batch's start.
        labels: concatenated.
        counts: summed; known on the host before any forward pass.
        streams: (sequences,) the stream of each, none twice in a step; on the host; None: they are independent.
        fresh: (sequences,) bool, whether the stream begins here; on the host; None without streams.
        carry: the state of these streams, (sequences, ...) each, put in by the loop on the device.
    """

    keys: tuple[Key, ...]
    tokens: Tokens
    positions: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]
    counts: Mapping[str, int]
    streams: Tensor | None = None
    fresh: Tensor | None = None
    carry: Mapping[str, Tensor] = field(default_factory=dict)

    def map(self, change: Change) -> Batch:
        """Return it with all tensors that are read on the device changed, but for `carry`."""
        return replace(
            self,
            tokens=self.tokens.map(change),
            positions={name: change(value) for name, value in self.positions.items()},
            labels={name: change(value) for name, value in self.labels.items()},
        )

    def to(self, device: torch.device) -> Batch:
        """Return it on a device; from pinned memory the copy runs beside what the device computes."""
        return self if device.type == "cpu" else self.map(lambda tensor: tensor.to(device, non_blocking=True))


def collate(samples: Sequence[Sample]) -> Batch:
    """Lay samples end to end, shortest first (samples of one length keep their order).

    Raises:
        ValueError: a stream occurs twice, or only some samples are windows of streams, or have segments.
    """
    samples = sorted(samples, key=len)
    streams = [sample.stream for sample in samples if sample.stream is not None]
    if streams and len(set(streams)) != len(samples):
        raise ValueError("each sample of a batch must be the window of another stream, or none of any")
    lengths = np.array([len(sample) for sample in samples])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    starts = list(zip(samples, offsets[:-1], strict=True))
    position_ids = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    tokens = Tokens(
        ids=torch.from_numpy(np.concatenate([sample.ids for sample in samples]).astype(np.int64)),
        segments=_segments(samples),
        position_ids=torch.from_numpy(position_ids),
        offsets=torch.from_numpy(offsets.astype(np.int32)),
        groups=tuple(_groups(lengths, offsets)),
    )
    return Batch(
        keys=tuple(sample.key for sample in samples),
        tokens=tokens,
        positions={
            name: torch.from_numpy(np.concatenate([sample.positions[name] + start for sample, start in starts]))
            for name in samples[0].positions
        },
        labels={
            name: torch.from_numpy(np.concatenate([sample.labels[name] for sample in samples]))
            for name in samples[0].labels
        },
        counts=add_counts(samples),
        streams=torch.tensor(streams) if streams else None,
        fresh=torch.tensor([sample.fresh for sample in samples]) if streams else None,
    )


def add_counts(samples: Sequence[Sample] | Sequence[Batch]) -> dict[str, int]:
    """Sum the counts of samples, or of batches, by part."""
    return {name: sum(sample.counts[name] for sample in samples) for name in samples[0].counts}


def total_length(samples: Sequence[Sample]) -> int:
    """Return how many tokens samples have together."""
    return sum(map(len, samples))


def split(samples: Sequence[Sample], micro_tokens: int) -> list[list[Sample]]:
    """Cut one step's samples into pieces of at most `micro_tokens` tokens (at least one sample), alike in length."""
    pieces: list[list[Sample]] = [[]]
    room = micro_tokens
    for sample in sorted(samples, key=len):
        if pieces[-1] and len(sample) > room:
            pieces.append([])
            room = micro_tokens
        pieces[-1].append(sample)
        room -= len(sample)
    return pieces


def _segments(samples: Sequence[Sample]) -> Tensor | None:
    """Return the segments of samples, (tokens,); None where none has any."""
    given = [sample.segments for sample in samples if sample.segments is not None]
    if given and len(given) != len(samples):
        raise ValueError("either all samples of a batch have segments, or none has")
    return torch.from_numpy(np.concatenate(given).astype(np.int64)) if given else None


def _groups(lengths: np.ndarray, offsets: np.ndarray) -> list[Group]:
    groups = []
    first = 0
    while first < len(lengths):
        last = first + 1  # sorted: the longest of sequences first..last-1 is the last one
        while last < len(lengths):
            padded = int(lengths[last]) * (last + 1 - first)
            if padded - (offsets[last + 1] - offsets[first]) > max(MAX_WASTE * padded, CHEAP_WASTE):
                break
            last += 1
        groups.append(_group(lengths[first:last], int(offsets[first]), int(offsets[last])))
        first = last
    return groups


def _group(lengths: np.ndarray, start: int, stop: int) -> Group:
    longest = int(lengths[-1])
    if lengths[0] == longest:
        return Group(start, stop, len(lengths), longest, None, None, None)
    real = np.arange(longest) < lengths[:, None]  # (sequences, longest)
    index = np.flatnonzero(real)
    slots = np.full(real.size, start)
    slots[index] = np.arange(start, stop)
    return Group(start, stop, len(lengths), longest, *map(torch.from_numpy, (index, slots, real)))


def _merge(old: Mapping[str, _Value], new: Mapping[str, _Value]) -> dict[str, _Value]:
    if both := old.keys() & new.keys():
        raise ValueError(f"two owners of {sorted(both)}")
    return {**old, **new}
