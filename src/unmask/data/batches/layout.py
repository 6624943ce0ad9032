"""The base class of layout settings, and layouts of one text. A layout defines how samples are cut from documents.

Input: the recipe's [layout]. Output: the layout (others have files of their own, such as `sentence_pairs`), and the
source of samples that applies it to documents.

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


class SingleSettings(LayoutSettings, frozen=True, kw_only=True, tag="single"):
    """The recipe's [layout] for `kind = "single"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> Single:
        """See `LayoutSettings`."""
        return Single(frame, length)


class Single:
    """See the module."""

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        texts = (np.concatenate(documents.sentences(index))[: self.capacity] for index in indices)
        return [self.frame.wrap(text) for text in texts]


class FullSentencesSettings(LayoutSettings, frozen=True, kw_only=True, tag="full_sentences"):
    """The recipe's [layout] for `kind = "full_sentences"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> FullSentences:
        """See `LayoutSettings`."""
        return FullSentences(frame, length)


class FullSentences:
    """See the module."""

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        end = np.array([self.frame.sep])
        packed: list[list[np.ndarray]] = [[]]
        capacity = self.capacity
        for index in indices:
            between = [end] if packed[-1] else []
            for sentence in documents.sentences(index):
                for start in range(0, len(sentence), self.capacity):
                    part = sentence[start : start + self.capacity]
                    if len(part) + len(between) > capacity:
                        packed.append([])
                        between, capacity = [], self.capacity
                    packed[-1] += [*between, part]
                    capacity -= len(part) + len(between)
                    between = []
        return [self.frame.wrap(np.concatenate(parts)) for parts in packed if parts]


class DocumentSentencesSettings(LayoutSettings, frozen=True, kw_only=True, tag="document_sentences"):
    """The recipe's [layout] for `kind = "document_sentences"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> DocumentSentences:
        """See `LayoutSettings`."""
        return DocumentSentences(frame, length)


class DocumentSentences(FullSentences):
    """See the module."""

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        return [sample for index in indices for sample in FullSentences.cut(self, documents, [index], rng)]
