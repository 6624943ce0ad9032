"""How many tokens fit into memory at once, and what to say when they did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from unmask.batches.batch import Sample
from unmask.errors import UnmaskError
from unmask.training.machine import Machine

SMALL, PROBE = 2048, 8192
"""Tokens of the two trial micro-batches. A step of at most `PROBE` tokens is one micro-batch, without a trial."""


def find_micro_tokens(
    samples: Sequence[Sample], learn: Callable[[list[Sample]], None], machine: Machine, *, reserve: int
) -> int:
    """Return about the largest number of tokens whose forward and backward pass fits, at most two such steps'.

    Memory grows linearly with the tokens, as long as sequences are no longer than those tried: so two micro_batches of
    different size tell how much a token takes. Where the machine does not tell, it is `PROBE`.

    Args:
        samples: of one step, sorted by length; the longest are tried.
        learn: computes the gradient of a micro_batch.
        machine: where.
        reserve: bytes that will be needed for other things.
    """
    whole = sum(map(len, samples))
    if whole <= PROBE:
        return PROBE
    used, tokens = [], []
    for limit in (SMALL, PROBE):
        micro_batch = _longest(samples, limit)
        told = machine.forget_memory()
        learn(micro_batch)
        tokens.append(sum(map(len, micro_batch)))
        used.append(machine.memory())
    each = (used[1] - used[0]) / (tokens[1] - tokens[0])
    if not told or each <= 0:
        return PROBE
    machine.forget_memory()  # so that what the micro_batches took is available again
    room = machine.available_memory() - reserve
    return max(SMALL, min(2 * whole, int(room / each)))  # steps of so many sequences differ in size


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
    """Turn running out of memory into an error that says which setting to change.

    Raises:
        UnmaskError: memory ran out.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise UnmaskError(
            f"out of memory with {micro_tokens:,} tokens at once; the newest checkpoint is intact: go on with --resume "
            f"and --set batch.micro_tokens={max(1, micro_tokens // 2)}, or --set batch.recompute=true"
        ) from error
