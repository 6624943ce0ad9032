"""Groups of sequences for attention kernels without variable-length support, which pad them to one length.

Input: the lengths of sequences, in order. Output: groups of adjacent sequences of nearly equal length, so that little
is padding; and, where few short sequences would make several groups, one group whose rows hold several sequences each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

MAX_WASTE = 0.125
"""Maximum share of padding in an attention group."""
CHEAP_WASTE = 128
"""Number of padding tokens that is always allowed in a group: a separate group would cost more."""
ROW = 64
"""Minimum length of a row that holds several sequences: two registers of bf16 numbers."""
ROW_STEP = 16
"""Longer rows are a multiple of this: oneDNN compiles kernels for each length."""
GROUP_COST = 2**14
"""Number of attention scores per head that take as long as the many small operations of a further group."""

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Group:
    """Adjacent sequences of nearly equal length: the unit of attention kernels that pad internally.

    Attributes:
        start, stop: range of its tokens in the batch.
        sequences, longest: its padded shape; if packed, the number of rows and their length.
        index: (tokens,) index of each of its tokens in (sequences * longest); None if nothing is padded, or if the
            batch itself contains the padding (`unmask.nn.encoders.stored`).
        slots: (sequences * longest,) index in the batch of the token in each slot, arbitrary at padding; None whenever
            `index` is None.
        real: (sequences, longest) bool, False at padding; None if nothing is padded.
        backward: whether its sequences are in reverse order.
        owner: (sequences, longest), the sequence that the token in each slot belongs to, -1 at padding, if rows hold
            several sequences, one after another (see `pack_sequences`); None: a row is a sequence.
        keys: (sequences, longest) bool, False at padding and at tokens that no token attends to; None: as `real`.
    """

    start: int
    stop: int
    sequences: int
    longest: int
    index: Tensor | None
    slots: Tensor | None
    real: Tensor | None
    backward: bool = False
    owner: Tensor | None = None
    keys: Tensor | None = None

    @property
    def attended(self) -> Tensor | None:
        """Which slots are attended to, (sequences, longest) bool; None: all."""
        return self.real if self.keys is None else self.keys

    @property
    def real_in_batch(self) -> Tensor | None:
        """`real`, if the batch itself contains the padding; otherwise None."""
        return self.real if self.index is None else None

    @property
    def masked(self) -> bool:
        """Whether the batch contains what no token attends to."""
        return self.keys is not None or self.real_in_batch is not None

    def map(self, change: Change) -> Group:
        """Return a copy with `change` applied to each tensor."""
        tensors = (self.index, self.slots, self.real, self.owner, self.keys)
        index, slots, real, owner, keys = (None if old is None else change(old) for old in tensors)
        return replace(self, index=index, slots=slots, real=real, owner=owner, keys=keys)

    def without_keys(self, unseen: np.ndarray) -> Group:
        """Return a copy in which no token attends to some tokens, given by their indices in the batch."""
        inside = unseen[(unseen >= self.start) & (unseen < self.stop)] - self.start
        if not len(inside):
            return self
        slots = inside if self.index is None else self.index.numpy()[inside]
        keys = np.ones((self.sequences, self.longest), bool) if self.real is None else self.real.numpy().copy()
        keys.reshape(-1)[slots] = False
        return replace(self, keys=torch.from_numpy(keys))


def group_sequences(lengths: np.ndarray, offsets: np.ndarray, border: int) -> list[Group]:
    """Return the groups of sequences, which are in order of length.

    Args:
        lengths: (sequences,).
        offsets: (sequences + 1,), where each sequence starts.
        border: number of the first sequence in reverse order; from there on they are in order of length again.
    """
    groups, sizes, starts = [], lengths.tolist(), offsets.tolist()
    first = 0
    while first < len(lengths):
        last = first + 1  # in order of length: the last of the sequences first..last-1 is the longest
        while last < len(lengths) and last != border:
            padded = sizes[last] * (last + 1 - first)
            if padded - (starts[last + 1] - starts[first]) > max(MAX_WASTE * padded, CHEAP_WASTE):
                break
            last += 1
        groups.append(_group(lengths[first:last], starts[first], backward=first >= border))
        first = last
    return groups


def pack_sequences(lengths: np.ndarray, offsets: np.ndarray, groups: Sequence[Group]) -> Group | None:
    """Return one group of all sequences whose rows hold several of them, or None if the groups cost less.

    Each sequence, the longest first, is put into the first row with enough slots left (first-fit decreasing).

    Args:
        lengths: (sequences,).
        offsets: (sequences + 1,), where each sequence starts.
        groups: the groups of the sequences.
    """
    longest = max(ROW, -(-int(lengths.max()) // ROW_STEP) * ROW_STEP)
    allowed = (len(groups) - 1) * GROUP_COST + sum(group.sequences * group.longest**2 for group in groups)
    if -(-int(offsets[-1]) // longest) * longest**2 >= allowed:  # even if nothing were padding
        return None
    first_slots = _first_fit(lengths, longest)
    rows = int(first_slots.max()) // longest + 1
    if rows * longest**2 >= allowed:
        return None
    index = np.arange(offsets[-1]) + np.repeat(first_slots - offsets[:-1], lengths)
    slots, owner = np.zeros(rows * longest, int), np.full((rows, longest), -1)
    slots[index] = np.arange(offsets[-1])
    owner.reshape(-1)[index] = np.repeat(np.arange(len(lengths)), lengths)
    tensors = torch.from_numpy(index), torch.from_numpy(slots), torch.from_numpy(owner >= 0)
    return Group(0, int(offsets[-1]), rows, longest, *tensors, owner=torch.from_numpy(owner))


def _first_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return the slot of the first token of each sequence, (sequences,), in rows of `capacity` slots."""
    left = np.full(len(lengths), capacity)  # slots of each row
    first_slots = np.empty(len(lengths), int)
    for sequence in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[sequence])
        row = int((left >= length).argmax())  # the first one
        first_slots[sequence] = (row + 1) * capacity - left[row]
        left[row] -= length
    return first_slots


def group_queries(counts: np.ndarray, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the queries of each group, padded like tokens.

    Args:
        counts: (sequences,), how many queries each has.
        groups: the groups of the sequences.
    """
    query_groups, first, start = [], 0, 0
    for group in groups:
        numbers = counts[first : first + group.sequences]
        query_groups.append(_group(numbers, start, backward=group.backward))
        first, start = first + group.sequences, query_groups[-1].stop
    return tuple(query_groups)


def _group(lengths: np.ndarray, start: int, *, backward: bool) -> Group:
    longest, stop = int(lengths.max()), start + int(lengths.sum())
    if lengths.min() == longest:
        return Group(start, stop, len(lengths), longest, None, None, None, backward)
    real = np.arange(longest) < lengths[:, None]  # (sequences, longest)
    index = np.flatnonzero(real)
    slots = np.full(real.size, start)
    slots[index] = np.arange(start, stop)
    tensors = torch.from_numpy(index), torch.from_numpy(slots), torch.from_numpy(real)
    return Group(start, stop, len(lengths), longest, *tensors, backward)
