"""Sparse vectors of many texts: rows over the vocabulary of which only the weights above 0 are stored.

Input: a model of the task `sparse`, and texts. Output: their vectors, computed in windows, so that no more than
`predictor.MAX_WEIGHTS` weights, most of them 0, are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.inference.predictor import Predictor
from unmask.inference.stream import summed
from unmask.tasks.rows import as_rows
from unmask.tasks.sparse import SparseVector


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


def embed_sparse(predictor: Predictor, texts: Sequence[str], notes: list[str]) -> SparseRows:
    """Return the sparse vectors of texts.

    Args:
        predictor: a model of the task `sparse`.
        texts: the texts.
        notes: receives notes that count texts.

    Raises:
        UserError: the outputs of the model are not numbers.
    """
    sizes, columns, values, own_notes = [0], [np.empty(0, np.int64)], [np.empty(0, np.float32)], list[str]()
    for window in predictor.stream(iter(as_rows(texts)), own_notes):
        vectors: list[SparseVector] = window
        for vector in vectors:
            order = np.argsort(vector.ids)
            sizes.append(len(order))
            columns.append(np.array(vector.ids, np.int64)[order])
            values.append(np.fromiter(vector.weights.values(), np.float32, len(order))[order])
    notes += summed(own_notes)
    width = predictor.model.tokenizer.size
    return SparseRows(np.cumsum(sizes), np.concatenate(columns), np.concatenate(values), width)
