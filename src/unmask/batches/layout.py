"""What a layout is, and how long its samples are in which part of a run.

In: the recipe's [layout]. Out: the layout of each stage (an idea of a paper a file, such as `sentence_pairs`).

Stages are those of Devlin et al. 2019, appendix A.2: as attention grows with the square of the length, 90 % of the
steps read sequences of 128 tokens, and the rest those of 512, which teach the later positions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, Protocol

import msgspec
import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.corpus.corpus import Documents


class Layout(Protocol):
    """Cuts samples from documents."""

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """Return all samples of these documents, in order, with empty keys. Pure but for `rng`."""
        ...


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a run.

    Attributes:
        share: of the run's steps.
        length: tokens of a sequence at most, special ones included.
    """

    share: float
    length: int


class LayoutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What the recipe's [layout] holds for every kind: exactly one of length and stages.

    Attributes:
        length: tokens of a sequence, special ones included, throughout the run.
        stages: one after the other; their shares add up to 1.
        offers: what a layout of this kind can give to objectives, with the settings (KEY=VALUE) that make it.
        without: the setting with which it gives nothing.
    """

    length: int | None = None
    stages: tuple[Stage, ...] | None = None

    either = ("length", "stages")
    kept = ("length", "stages")
    offers: ClassVar[Mapping[str, str]] = {}
    without: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if (self.length is None) == (self.stages is None):
            raise ValueError("a layout has exactly one of length and stages")
        shares = [stage.share for stage in self.all_stages]
        if not all(share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            raise ValueError("the shares of layout.stages must be positive and add up to 1")

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The stages; where there is a length instead, the one that it stands for."""
        if self.length is not None:
            return (Stage(share=1.0, length=self.length),)
        return self.stages or ()

    @property
    def gives(self) -> frozenset[str]:
        """What objectives can ask for."""
        return frozenset()

    @property
    def num_streams(self) -> int:
        """How many continuing streams a step reads a window of; 0: samples are independent."""
        return 0

    def build(self, frame: Frame, length: int) -> Layout:
        """Return the layout at one length."""
        raise NotImplementedError


def stage_ends(stages: Sequence[Stage], total: int) -> list[int]:
    """Return after how many steps of `total` each stage is over."""
    *shares, _ = accumulate(stage.share for stage in stages)
    return [*(round(share * total) for share in shares), total]


def stage_at(stages: Sequence[Stage], step: int, total: int) -> int:
    """Return the number of the stage in which a step (from 0) of `total` falls."""
    return bisect_right(stage_ends(stages, total)[:-1], step)
