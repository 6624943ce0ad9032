"""Stages: consecutive parts of a run, each with its own layout, masking and objectives.

Devlin et al. 2019, appendix A.2: as the cost of attention is quadratic in the length, 90 % of the steps read sequences
of 128 tokens, and the rest sequences of 512, from which the later positions are learned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a run, as the training loop sees it.

    Attributes:
        share: share of the run's steps.
        length: maximum tokens per sequence, including special tokens.
        name: what distinguishes it from the other stages, for display.
        weights: the weights of parts of the loss that differ from the learner's.
    """

    share: float
    length: int
    name: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)


def stage_ends(stages: Sequence[Stage], total: int) -> list[int]:
    """Return the number of steps, out of `total`, after which each stage ends."""
    *shares, _ = accumulate(stage.share for stage in stages)
    return [*(round(share * total) for share in shares), total]


def stage_at(stages: Sequence[Stage], step: int, total: int) -> int:
    """Return the index of the stage that a step (from 0, out of `total`) belongs to."""
    return bisect_right(stage_ends(stages, total)[:-1], step)
