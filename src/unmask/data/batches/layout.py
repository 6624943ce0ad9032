"""The base class of layout settings. A layout defines how samples are cut from documents.

Input: the recipe's [layout]. Output: the layout (one file per method, such as `sentence_pairs`), and the source of
samples that applies it to documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from unmask.data.batches.frame import Frame
from unmask.data.batches.sources import CorpusSource, Layout, Source, Stage

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents


class LayoutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that [layout] of a recipe has for every kind.

    Attributes:
        length: maximum tokens per sequence, including special tokens.
        offers: what this kind of layout can give to objectives, with the settings that enable it.
        without: the settings with which it gives nothing.
    """

    length: int

    kept = ("length",)
    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    without: ClassVar[Mapping[str, Any]] = {}

    @property
    def provides(self) -> frozenset[str]:
        """What it gives to objectives."""
        return frozenset()

    @property
    def requires(self) -> frozenset[str]:
        """What the encoder must give."""
        return frozenset()

    @property
    def num_streams(self) -> int:
        """Number of contiguous streams that a step reads a window of; 0 if samples are independent."""
        return 0

    @property
    def remember(self) -> int | None:
        """Number of a sample's first tokens that bodies with memory remember; None: all."""
        return None

    def build(self, frame: Frame, length: int) -> Layout:
        """Return the layout at one length."""
        raise NotImplementedError

    def layouts(self, frame: Frame) -> Sequence[tuple[Stage, Layout]]:
        """Return the layout as that of a run's only stage."""
        return [(Stage(share=1.0, length=self.length), self.build(frame, self.length))]

    def source(self, documents: Documents, frame: Frame, *, seed: int, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource`."""
        return CorpusSource(documents, self, frame, seed=seed, block_tokens=block_tokens)

    def heldout(self, num_tokens: int, batch_tokens: int) -> LayoutSettings:
        """Return the layout that cuts fixed evaluation batches.

        Args:
            num_tokens: approximate number of tokens in all of them.
            batch_tokens: maximum number of tokens in each.
        """
        return self
