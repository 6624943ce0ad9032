"""Batching for inference: split samples into batches, and return results per sample.

Input: samples, and a function that computes a batch. Output: an array for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from unmask.data.batches.batch import Batch, Sample, collate, split, total_length
from unmask.training.runs.display import Display


def run_in_batches(
    samples: Sequence[Sample], compute: Callable[[Batch], np.ndarray], at: str | None, tokens: int, display: Display
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each sample's index and its rows of the computed output; short samples come first.

    Only one batch is in memory at a time, unless the caller keeps the rows.

    Args:
        samples: inputs.
        compute: returns the rows of a batch, (positions, ...), in the batch's order.
        at: name of the positions that have a row each; None: all tokens.
        tokens: maximum number of tokens per batch.
        display: shows the progress.
    """
    numbered = [sample.named((number,)) for number, sample in enumerate(samples)]
    for micro_batch in display.count(split(numbered, tokens), total_length) if numbered else ():
        batch = collate(micro_batch)
        numbers = [number for (number,) in batch.keys]
        sizes = [len(samples[n]) if at is None else len(samples[n].positions[at]) for n in numbers]
        yield from zip(numbers, np.split(compute(batch), np.cumsum(sizes)[:-1]), strict=True)


def in_order(numbered_rows: Iterable[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    """Return the rows that `run_in_batches` yields, in the order of the samples."""
    return [rows for _, rows in sorted(numbered_rows, key=lambda item: item[0])]
