"""The number of tokens that fit into memory at once, and the error for running out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from unmask.batches.batch import Sample
from unmask.errors import UnmaskError
from unmask.training.machine import Machine

SMALL, PROBE = 2048, 8192
"""Tokens of the two trial micro-batches. A step of at most `PROBE` tokens is one micro-batch, without trials."""


def find_micro_tokens(
    samples: Sequence[Sample], learn: Callable[[list[Sample]], None], machine: Machine, *, reserve: int
) -> int:
    """Return approximately the largest number of tokens whose forward and backward pass fits, at most two steps' worth.

    As long as sequences are no longer than those tried, memory grows linearly with the tokens, so the memory per token
    follows from two micro-batches of different size. Return `PROBE` if the machine does not provide its memory use.

    Args:
        samples: samples of one step, sorted by length; the longest are tried.
        learn: computes the gradient of a micro-batch.
        machine: machine that the trials run on.
        reserve: bytes that will be needed for other purposes.
    """
    whole = sum(map(len, samples))
    if whole <= PROBE:
        return PROBE
    used, tokens = [], []
    for limit in (SMALL, PROBE):
        micro_batch = _longest(samples, limit)
        measurable = machine.reset_peak_memory()
        learn(micro_batch)
        tokens.append(sum(map(len, micro_batch)))
        used.append(machine.memory())
    per_token = (used[1] - used[0]) / (tokens[1] - tokens[0])
    if not measurable or per_token <= 0:
        return PROBE
    machine.reset_peak_memory()  # also releases the memory of the trials
    available = machine.available_memory() - reserve
    return max(SMALL, min(2 * whole, int(available / per_token)))  # steps of a fixed number of sequences differ in size


def _longest(samples: Sequence[Sample], limit: int) -> list[Sample]:
    chosen: list[Sample] = []
    size = 0
    for sample in reversed(samples):
        if chosen and size + len(sample) > limit:
            break
        chosen.append(sample)
        size += len(sample)
    return chosen


@contextmanager
def name_remedy(micro_tokens: int) -> Iterator[None]:
    """Convert out-of-memory errors into an error that names the settings to change.

    Raises:
        UnmaskError: out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise UnmaskError(
            f"out of memory with {micro_tokens:,} tokens at once; the newest checkpoint is intact: continue with "
            f"--resume and --set batch.micro_tokens={max(1, micro_tokens // 2)}, or --set batch.recompute=true"
        ) from error
