"""The base class of layouts, and layouts of one text. A layout defines how samples are cut from documents.

Input: the recipe's [layout], and documents. Output: samples, and the source of all of them in seeded order. Others
have files of their own, such as `sentence_pairs`.

**Single.** One sample per document: documents longer than a sequence are truncated at the end.

For texts that are short by nature (reviews, queries, notes), one per line.

**Full sentences.** Whole sentences packed up to the length, across document boundaries.

Input: documents. Output: samples [CLS] sentences [SEP], with an additional [SEP] at a document boundary inside. A
sentence longer than a whole sequence is split; no token is lost or read twice. Documents follow each other in the
seeded order of the epoch; a sample also ends where a block of documents ends (about 250,000 tokens).

Liu et al. 2019 (RoBERTa), section 4.2, FULL-SENTENCES.

**Document sentences.** Whole sentences of one document, packed up to the length: one text per sample.

Input: documents. Output: samples [CLS] sentences [SEP]. A sentence longer than a whole sequence is split.

Liu et al. 2019 (RoBERTa), section 4.2, DOC-SENTENCES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.sources import CorpusSource, Source, Stage

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

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """Return the samples of documents; see `Layout`."""
        raise NotImplementedError

    def source(self, documents: Documents, frame: Frame, *, seed: int, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource`."""
        layouts = [(Stage(share=1.0, length=self.length), self)]
        return CorpusSource(documents, layouts, frame, seed=seed, block_tokens=block_tokens)

    def heldout(self, num_tokens: int, batch_tokens: int) -> LayoutSettings:
        """Return the layout that cuts fixed evaluation batches.

        Args:
            num_tokens: approximate number of tokens in all of them.
            batch_tokens: maximum number of tokens in each.
        """
        return self


class SingleSettings(LayoutSettings, frozen=True, kw_only=True, tag="single"):
    """The recipe's [layout] for `kind = "single"`; see `LayoutSettings`."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        capacity = frame.capacity(self.length, texts=1)
        return [frame.wrap(np.concatenate(documents.sentences(index))[:capacity]) for index in indices]


class FullSentencesSettings(LayoutSettings, frozen=True, kw_only=True, tag="full_sentences"):
    """The recipe's [layout] for `kind = "full_sentences"`; see `LayoutSettings`."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        end, capacity = np.array([frame.sep]), frame.capacity(self.length, texts=1)
        packed: list[list[np.ndarray]] = [[]]
        left = capacity
        for index in indices:
            between = [end] if packed[-1] else []
            for sentence in documents.sentences(index):
                for start in range(0, len(sentence), capacity):
                    part = sentence[start : start + capacity]
                    if len(part) + len(between) > left:
                        packed.append([])
                        between, left = [], capacity
                    packed[-1] += [*between, part]
                    left -= len(part) + len(between)
                    between = []
        return [frame.wrap(np.concatenate(parts)) for parts in packed if parts]


class DocumentSentencesSettings(FullSentencesSettings, frozen=True, kw_only=True, tag="document_sentences"):
    """The recipe's [layout] for `kind = "document_sentences"`; see `LayoutSettings`."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        return [
            sample for index in indices for sample in FullSentencesSettings.cut(self, frame, documents, [index], rng)
        ]
