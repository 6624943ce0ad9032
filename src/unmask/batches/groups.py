"""Groups of sequences for attention kernels without variable-length support, which pad them to one length.

Input: the lengths of sequences, in order. Output: groups of adjacent sequences of nearly equal length, so that little
is padding.
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

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Group:
    """Adjacent sequences of nearly equal length: the unit of attention kernels that pad internally.

    Attributes:
        start, stop: range of its tokens in the batch.
        sequences, longest: its padded shape.
        index: (tokens,) index of each of its tokens in (sequences * longest); None if nothing is padded, or if the
            batch itself contains the padding (`unmask.encoders.padded`).
        slots: (sequences * longest,) index in the batch of the token in each slot, arbitrary at padding; None whenever
            `index` is None.
        real: (sequences, longest) bool, False at padding; None if nothing is padded.
        backward: whether its sequences are in reverse order.
    """

    start: int
    stop: int
    sequences: int
    longest: int
    index: Tensor | None
    slots: Tensor | None
    real: Tensor | None
    backward: bool = False

    def map(self, change: Change) -> Group:
        """Return a copy with `change` applied to each tensor."""
        index, slots, real = (None if old is None else change(old) for old in (self.index, self.slots, self.real))
        return replace(self, index=index, slots=slots, real=real)


def group_sequences(lengths: np.ndarray, offsets: np.ndarray, border: int) -> list[Group]:
    """Return the groups of sequences, which are in order of length.

    Args:
        lengths: (sequences,).
        offsets: (sequences + 1,), where each sequence starts.
        border: number of the first sequence in reverse order; from there on they are in order of length again.
    """
    groups = []
    first = 0
    while first < len(lengths):
        last = first + 1  # in order of length: the last of the sequences first..last-1 is the longest
        while last < len(lengths) and last != border:
            padded = int(lengths[last]) * (last + 1 - first)
            if padded - (offsets[last + 1] - offsets[first]) > max(MAX_WASTE * padded, CHEAP_WASTE):
                break
            last += 1
        groups.append(_group(lengths[first:last], int(offsets[first]), backward=first >= border))
        first = last
    return groups


def group_queries(counts: np.ndarray, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the queries of each group, padded like tokens.

    Args:
        counts: (sequences,), how many queries each has.
        groups: the groups of the sequences.
    """
    found, first, start = [], 0, 0
    for group in groups:
        own = counts[first : first + group.sequences]
        found.append(_group(own, start, backward=group.backward))
        first, start = first + group.sequences, found[-1].stop
    return tuple(found)


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
