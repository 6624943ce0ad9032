"""Sparse vectors of many texts: rows over the vocabulary of which only the weights above 0 are stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SparseRows:
    """Rows of which only some values are not 0.

    Attributes:
        offsets: where the values of each row begin, and their number, (rows + 1,) int64.
        columns: the column of each value, (values,) int64, in increasing order in a row.
        values: (values,) float32.
        width: number of columns.
    """

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    width: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def dense(self, rows: slice) -> Tensor:
        """Return some of the rows with all columns, (rows, width)."""
        first, last, _ = rows.indices(len(self))
        made, starts = torch.zeros(last - first, self.width), self.offsets[first : last + 1]
        inside = slice(starts[0], starts[-1])
        numbers = np.repeat(np.arange(last - first), np.diff(starts))
        made[torch.from_numpy(numbers), torch.from_numpy(self.columns[inside])] = torch.from_numpy(self.values[inside])
        return made

    def tensor(self) -> Tensor:
        """Return the rows as a sparse tensor of torch, (rows, width)."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        indices, size = torch.from_numpy(np.stack([rows, self.columns])), (len(self), self.width)
        values = torch.from_numpy(self.values)
        return torch.sparse_coo_tensor(indices, values, size, check_invariants=False, is_coalesced=True)
