"""The number of tokens that fit into memory at once, and the error for running out of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from unmask.data.batches.batch import Sample
from unmask.support.environment import naming_shortage
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


def name_remedy(micro_tokens: int) -> AbstractContextManager[None]:
    """Return a context that converts out-of-memory errors into an error that names the settings to change."""
    return naming_shortage(
        f"with {micro_tokens:,} tokens at once; the newest checkpoint is intact",
        f"continue with --resume and --set batch.micro_tokens={max(1, micro_tokens // 2)}, or --set "
        "batch.recompute=true",
    )
