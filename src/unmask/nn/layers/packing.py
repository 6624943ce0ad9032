"""The order in which recurrent networks read a ragged batch: step by step, in each step the longer sequences first.

Tokens of a batch are ordered by sequence, the shortest first; torch's recurrent networks and `Lstm` want them ordered
by time step, so that each step is a few contiguous rows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pack(position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the order in which recurrent networks read a batch, and the number of sequences in each time step.

    The longest sequence, which is the last of the batch, comes first in each step. The sizes must be on the CPU, so on
    a GPU this synchronizes.

    Args:
        position_ids: (tokens,), each token's index in its sequence; sequences must be in order of length.

    Returns:
        Token indices, (tokens,), and sizes, (longest,) int64 on the CPU.
    """
    count = len(position_ids)
    # at equal positions, later tokens belong to later and therefore longer sequences
    order = (position_ids * count + (count - 1 - torch.arange(count, device=position_ids.device))).argsort()
    return order, torch.bincount(position_ids).cpu()


def mirror(position_ids: Tensor, offsets: Tensor) -> Tensor:
    """Return for each token the one as far from the end of its sequence as it is from the start, (tokens,).

    Args:
        position_ids: (tokens,), each token's index in its sequence.
        offsets: (sequences + 1,), where each sequence starts.
    """
    starts = torch.arange(len(position_ids), device=position_ids.device) - position_ids  # (tokens,)
    sequence = torch.bucketize(starts, offsets[1:], right=True)
    return offsets[1:].long().index_select(0, sequence) - 1 - position_ids
