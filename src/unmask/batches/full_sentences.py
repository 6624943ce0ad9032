"""Whole sentences packed up to the length, on across the ends of documents.

In: documents. Out: samples [CLS] sentences [SEP], with one more [SEP] where a document ends within. A sentence longer
than a whole sequence is cut into pieces; no token is lost or read twice. Documents follow each other in the seeded
order of the pass; where a block of them ends (about 250,000 tokens), a sample ends too.

Liu et al. 2019 (RoBERTa), section 4.2, FULL-SENTENCES.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.corpus.corpus import Documents


class FullSentencesSettings(
    LayoutSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="full_sentences"
):
    """The recipe's [layout] for `kind = "full_sentences"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> FullSentences:
        """See `LayoutSettings`."""
        return FullSentences(frame, length)


class FullSentences:
    """See the module."""

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.room = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        end = np.array([self.frame.sep])
        packed: list[list[np.ndarray]] = [[]]
        room = self.room
        for index in indices:
            between = [end] if packed[-1] else []
            for sentence in documents.sentences(index):
                for at in range(0, len(sentence), self.room):
                    piece = sentence[at : at + self.room]
                    if len(piece) + len(between) > room:
                        packed.append([])
                        between, room = [], self.room
                    packed[-1] += [*between, piece]
                    room -= len(piece) + len(between)
                    between = []
        return [self.frame.wrap(np.concatenate(pieces)) for pieces in packed if pieces]
