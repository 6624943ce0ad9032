"""Samples in batches: the one way in which inference cuts them up, and hands the results back.

In: samples, and what computes a batch of them. Out: an array for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from unmask.batches.batch import Batch, Sample, collate, split, total_length
from unmask.runs.display import Display

BATCH_TOKENS = 8192
"""How many tokens are computed at once."""


def run_in_batches(
    samples: Sequence[Sample], compute: Callable[[Batch], np.ndarray], at: str | None, display: Display
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each sample's number and its rows of what is computed; short samples come first.

    One batch is in memory at once, if nobody keeps the rows.

    Args:
        samples: to compute.
        compute: returns the rows of a batch, (positions, ...), in the batch's order.
        at: the name of the positions that have a row; None: all tokens.
        display: shows how far it is.
    """
    numbered = [sample.named((number,)) for number, sample in enumerate(samples)]
    for micro_batch in display.count(split(numbered, BATCH_TOKENS), total_length) if numbered else ():
        batch = collate(micro_batch)
        numbers = [number for (number,) in batch.keys]
        sizes = [len(samples[n]) if at is None else len(samples[n].positions[at]) for n in numbers]
        yield from zip(numbers, np.split(compute(batch), np.cumsum(sizes)[:-1]), strict=True)


def in_order(found: Iterable[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    """Return what `run_in_batches` yields in the order of the samples."""
    return [rows for _, rows in sorted(found, key=lambda item: item[0])]
