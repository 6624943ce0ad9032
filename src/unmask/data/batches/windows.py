"""Long sequences of a batch in windows, one after the other: for bodies that remember the windows before.

Input: a ragged batch, and the length of a window. Output: for each window, counted from the start of the sequences, the
batch of the tokens there, of all sequences that are so long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Tokens
from unmask.data.batches.groups import group_sequences


@dataclass(frozen=True)
class Window:
    """One window of all sequences that reach it.

    Attributes:
        tokens: their tokens there, as a batch; its sequences are the last ones, which are the longest.
        index: (tokens,) where they are in the whole batch.
    """

    tokens: Tokens
    index: Tensor


def cut_windows(tokens: Tokens, size: int) -> Iterator[Window]:
    """Yield the windows of a batch without directions and orders.

    On a GPU this waits for the device, as the lengths of the sequences are needed on the host.

    Args:
        tokens: the batch.
        size: tokens per window.
    """
    offsets = tokens.offsets.cpu().numpy().astype(np.int64)
    lengths, device = np.diff(offsets), tokens.ids.device
    for start in range(0, int(lengths.max()), size):
        reaching = lengths > start  # the last sequences, as they are in order of length
        own = np.minimum(lengths[reaching] - start, size)
        bounds = np.concatenate([[0], np.cumsum(own)])
        position_ids = np.arange(bounds[-1]) - np.repeat(bounds[:-1], own)
        index = torch.from_numpy(np.repeat(offsets[:-1][reaching] + start, own) + position_ids).to(device)
        groups = group_sequences(own, bounds, len(own))
        yield Window(
            Tokens(
                ids=tokens.ids.index_select(0, index),
                segments=None if tokens.segments is None else tokens.segments.index_select(0, index),
                position_ids=torch.from_numpy(position_ids).to(device),
                offsets=torch.from_numpy(bounds.astype(np.int32)).to(device),
                groups=tuple(group.map(lambda values: values.to(device)) for group in groups),
            ),
            index,
        )
