"""Samples of one text: whole documents, or whole sentences packed up to the length.

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

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents


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
