"""The candidate tokens of the windows of a batch, as rows of a table: one row per window, one column per position.

Softmaxes over the tokens of a window need the table; heads and their outputs have one row per candidate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch


class Candidates:
    """See the module. Windows without candidates have no row; with labels, all shapes are known on the host.

    Args:
        batch: its sequences are windows, and its positions "passage" the candidates.
        windows: number of windows with candidates; None: it is found.

    Attributes:
        row: (candidates,) window of each candidate.
        position: (candidates,) its position in its sequence.
        sequence: (windows,) sequence of each window in the batch.
    """

    def __init__(self, batch: Batch, windows: int | None = None) -> None:
        at, tokens = batch.positions["passage"], batch.tokens
        sequence = torch.bucketize(at, tokens.offsets[1:].long(), right=True)  # (candidates,)
        self.row = (sequence.diff(prepend=sequence[:1]) > 0).cumsum(0)
        self.windows = windows if windows is not None else (int(self.row[-1]) + 1 if len(self.row) else 0)
        self.longest = max(group.longest for group in tokens.groups)
        self.position = tokens.position_ids.index_select(0, at)
        self.sequence = sequence.new_zeros(self.windows).scatter(0, self.row, sequence)
        self._index = self.row * self.longest + self.position

    def table(self, values: Tensor) -> Tensor:
        """Return values of the candidates, (candidates, ...), as a table, (windows, longest, ...), -inf elsewhere."""
        empty = values.new_full((self.windows * self.longest, *values.shape[1:]), -torch.inf)
        return empty.index_copy(0, self._index, values).view(self.windows, self.longest, *values.shape[1:])

    def of_table(self, table: Tensor) -> Tensor:
        """Return the values of the candidates, (candidates,), from a table, (windows, longest)."""
        return table.reshape(-1).index_select(0, self._index)

    def find(self, positions: Tensor) -> Tensor:
        """Return the candidate at a position of each window, (windows,), given its position in the sequence."""
        numbers = self.row.new_zeros(self.windows * self.longest)
        numbers = numbers.index_copy(0, self._index, torch.arange(len(self.row), device=self.row.device))
        return numbers.view(self.windows, self.longest).gather(1, positions[:, None]).squeeze(1)
