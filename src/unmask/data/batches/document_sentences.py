"""Whole sentences of one document, packed up to the length: one text per sample.

Input: documents. Output: samples [CLS] sentences [SEP]. A sentence longer than a whole sequence is split.

Liu et al. 2019 (RoBERTa), section 4.2, DOC-SENTENCES.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.corpus.corpus import Documents


class DocumentSentencesSettings(
    LayoutSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="document_sentences"
):
    """The recipe's [layout] for `kind = "document_sentences"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> DocumentSentences:
        """See `LayoutSettings`."""
        return DocumentSentences(frame, length)


class DocumentSentences:
    """See the module."""

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        return [self.frame.wrap(text) for index in indices for text in self._pack(documents.sentences(index))]

    def _pack(self, sentences: list[np.ndarray]) -> list[np.ndarray]:
        packed: list[list[np.ndarray]] = [[]]
        capacity = self.capacity
        for sentence in sentences:
            for start in range(0, len(sentence), self.capacity):
                part = sentence[start : start + self.capacity]
                if len(part) > capacity:
                    packed.append([])
                    capacity = self.capacity
                packed[-1].append(part)
                capacity -= len(part)
        return [np.concatenate(parts) for parts in packed if parts]
