"""Sizes of Arrow's values as Python objects, computed before they are made.

Input: arrays and batches of pyarrow, validated. Output: bytes of each row: the bytes of texts, and 8 for a number. An
array can be much smaller than its values: in an array of categories, and in a view, many rows name the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

NUMBER = 8
"""Bytes of a number or of a truth value."""


def sizes_of_rows(batch: Any) -> np.ndarray:
    """Return the bytes of each row of a batch, (rows,) float64."""
    return sum((sizes_of_values(column) for column in batch.columns), np.zeros(batch.num_rows))


def sizes_of_values(array: Any) -> np.ndarray:
    """Return the bytes of each value of an array, (rows,) float64: texts, numbers, categories, lists, structures."""
    from pyarrow import compute, types

    kind = array.type
    if types.is_dictionary(kind):
        sizes = np.append(sizes_of_values(array.dictionary), 0.0)
        return sizes[compute.fill_null(array.indices, len(array.dictionary)).to_numpy(zero_copy_only=False)]
    if types.is_list(kind) or types.is_large_list(kind):
        ends = np.cumsum(compute.fill_null(compute.list_value_length(array), 0).to_numpy(zero_copy_only=False))
        totals = np.concatenate([[0.0], np.cumsum(NUMBER + sizes_of_values(array.flatten()))])
        return np.diff(totals[ends], prepend=0.0)
    if types.is_struct(kind):
        return np.full(len(array), float(NUMBER * kind.num_fields))  # of numbers
    if types.is_string_view(kind):  # views of 16 bytes, which begin with the length
        lengths = np.frombuffer(array.buffers()[1] or b"", np.int32).reshape(-1, 4)[:, 0]
        lengths = lengths[array.offset : array.offset + len(array)].astype(np.float64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0.0)
    if types.is_string(kind) or types.is_large_string(kind):
        return compute.fill_null(compute.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.full(len(array), float(NUMBER))


def split_rows(sizes: np.ndarray, most: int, total: float) -> Iterator[tuple[int, int]]:
    """Yield start and end of rows that are converted together: at most `most`, of `total` bytes unless it is one row.

    Args:
        sizes: the bytes of each row.
        most: maximum number of rows.
        total: maximum number of bytes.
    """
    sums, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = sums[start - 1] if start else 0.0
        stop = int(np.searchsorted(sums, before + total, side="right"))
        stop = min(max(stop, start + 1), start + most)
        yield start, stop
        start = stop
