"""How long samples are in which part of a run.

Stages are those of Devlin et al. 2019, appendix A.2: as attention grows with the square of the length, 90 % of the
steps read sequences of 128 tokens, and the rest those of 512, which teach the later positions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a run.

    Attributes:
        share: of the run's steps.
        length: tokens of a sequence at most, special ones included.
    """

    share: float
    length: int


def stage_ends(stages: Sequence[Stage], total: int) -> list[int]:
    """Return after how many steps of `total` each stage is over."""
    *shares, _ = accumulate(stage.share for stage in stages)
    return [*(round(share * total) for share in shares), total]


def stage_at(stages: Sequence[Stage], step: int, total: int) -> int:
    """Return the number of the stage in which a step (from 0) of `total` falls."""
    return bisect_right(stage_ends(stages, total)[:-1], step)
