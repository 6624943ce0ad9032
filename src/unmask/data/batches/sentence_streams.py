"""Windows of sentences for two language models, one in each direction (bilm-tf, `bilm/data.py`).

Input: documents. Output: samples, each the next window of its stream (batches/streams.py), with the word that follows
each of its tokens as the label "following". Half of the streams read the text forwards, the others backwards, from its
end.

A sentence <S> w1 ... wn </S> has n + 1 tokens to read, <S> w1 ... wn, and as many to predict, w1 ... wn </S>; read
backwards both are swapped. Different from the reference, which shuffles sentences: they follow each other as in their
documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.streams import STREAMS, Rows, StreamSettings
from unmask.data.corpus.corpus import Documents

DIRECTIONS = "streams in both directions"


class SentenceStreamsSettings(
    StreamSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sentence_streams"
):
    """The recipe's [layout] for `kind = "sentence_streams"`; see `StreamSettings`. `streams` must be even."""

    directions = 2
    offers = {  # noqa: RUF012
        DIRECTIONS: "layout.kind=sentence_streams --set layout.streams=8 --set batch.sequences=8"
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.streams % 2:
            raise ValueError("layout.streams must be even: half of the streams read backwards")

    @property
    def gives(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({STREAMS, DIRECTIONS})

    def text(self, frame: Frame) -> SentenceText:
        """See `StreamSettings`."""
        return SentenceText(frame, self.length)


class SentenceText:
    """Pairs of a token and the next one; implements `StreamText`.

    Args:
        frame: the special tokens.
        length: tokens per window.
    """

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = self.advance = length

    def sizes(self, documents: Documents) -> np.ndarray:
        """See `StreamText`."""
        return documents.lengths() + documents.sentence_counts()

    def read(self, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """See `StreamText`; (tokens, 2)."""
        framed = [np.concatenate([[self.frame.cls], words, [self.frame.sep]]) for words in sentences]
        return np.concatenate([np.stack([words[:-1], words[1:]], 1) for words in framed])

    def window(self, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """See `StreamText`."""
        ids, following = (rows[::-1, ::-1] if direction else rows).T
        labels = {"following": following.astype(np.int64)}
        return Sample(key=(), ids=self.frame.spell(ids), labels=labels, backward=bool(direction))
