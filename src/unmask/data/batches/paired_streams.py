"""Streams in both directions: XLNet's windows of two segments, and windows of sentences for two language models.

**XLNet.** Text A [SEP] B [SEP] [CLS] (Yang et al. 2019, section 2.5).

Input: documents. Output: samples, each the next window of its stream (batches/streams.py). Its first `reuse` tokens
are plain text, and only these are remembered: the next window starts after them. The rest is two segments. A is the
text that follows; B continues it, or with probability 1/2 is text from elsewhere, for which there is no loss. Half of
the streams read the text backwards, from its end.

As in data_utils.py of zihangdai/xlnet, A ends with a sentence. Differences: A and B are not trimmed after they are
chosen, so that a continuation has no gap; in the middle of a long sentence A ends in the middle; B is text from
elsewhere with probability 1/2 in this case, too; and a [SEP] instead of an <eod> ends each document.

**ELMo.** Windows of sentences for two language models, one in each direction (bilm-tf, `bilm/data.py`).

Input: documents. Output: samples, each the next window of its stream (batches/streams.py), with the word that follows
each of its tokens as the label "following". Half of the streams read the text forwards, the others backwards, from its
end.

A sentence <S> w1 ... wn </S> has n + 1 tokens to read, <S> w1 ... wn, and as many to predict, w1 ... wn </S>; read
backwards both are swapped. Different from the reference, which shuffles sentences: they follow each other as in their
documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.sources import STREAMS
from unmask.data.batches.streams import Rows, StreamSettings
from unmask.data.batches.tokens import Reading

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents

DIRECTIONS = "streams in both directions"


class SentenceStreamsSettings(StreamSettings, frozen=True, kw_only=True, tag="sentence_streams"):
    """The recipe's [layout] for `kind = "sentence_streams"`; see `StreamSettings`. `streams` must be even."""

    directions = 2
    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        DIRECTIONS: {"layout.kind": "sentence_streams", "layout.streams": 8, "batch.sequences": 8}
    }

    @property
    def provides(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({STREAMS, DIRECTIONS})

    def capacity(self, frame: Frame) -> int:
        """See `StreamSettings`: rows are pairs of a token and the next one."""
        return self.length

    def sizes(self, documents: Documents) -> np.ndarray:
        """See `StreamSettings`."""
        return documents.lengths() + documents.sentence_counts()

    def read(self, frame: Frame, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """See `StreamSettings`; (tokens, 2)."""
        framed = [np.concatenate([[frame.cls], words, [frame.sep]]) for words in sentences]
        return np.concatenate([np.stack([words[:-1], words[1:]], 1) for words in framed])

    def window(self, frame: Frame, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """See `StreamSettings`."""
        ids, following = (rows[::-1, ::-1] if direction else rows).T
        labels = {"following": following.astype(np.int64)}
        return Sample(key=(), ids=frame.spell(ids), labels=labels, reading=Reading(backward=bool(direction)))


class PairedStreamsSettings(StreamSettings, frozen=True, kw_only=True, tag="paired_streams"):
    """The recipe's [layout] for `kind = "paired_streams"`; see `StreamSettings`. `streams` must be even.

    Attributes:
        reuse: number of tokens after which the next window starts; they are remembered.
    """

    reuse: int

    directions = 2
    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {STREAMS: {"layout.kind": "paired_streams"}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.reuse <= self.length - 5:
            raise ValueError(
                f"layout.reuse {self.reuse} is too long for a window of {self.length} tokens with two segments and "
                f"three special tokens: it must be between 1 and {self.length - 5}"
            )

    @property
    def remember(self) -> int:
        """See `LayoutSettings`."""
        return self.reuse

    def capacity(self, frame: Frame) -> int:
        """See `StreamSettings`."""
        return self.reuse + frame.capacity(self.length - self.reuse, texts=2)

    def advance(self, frame: Frame) -> int:
        """See `StreamSettings`."""
        return self.reuse

    def read(self, frame: Frame, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """See `StreamSettings`; (tokens, 2), ids and whether a sentence begins."""
        ids = np.concatenate([*sentences, [frame.sep]])
        begins = np.zeros(len(ids), ids.dtype)
        begins[np.cumsum([0, *map(len, sentences)])] = 1
        return np.stack([ids, begins], 1)

    def window(self, frame: Frame, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """See `StreamSettings`."""
        ids, cuts = _in_order(rows, direction)
        cuts = cuts[cuts > self.reuse] - self.reuse
        reused, text = ids[: self.reuse], ids[self.reuse :]
        cut = int(rng.choice(cuts)) if len(cuts) else len(text) // 2
        first, second = text[:cut], text[cut:]
        if rng.random() < 0.5:
            second = _in_order(other(), direction)[0][: len(second)]
        pair = frame.wrap(first, second)
        assert pair.segments is not None
        return replace(
            pair,
            ids=np.concatenate([reused, pair.ids]),
            segments=np.concatenate([np.zeros(len(reused), np.int64), pair.segments]),
            positions={name: at + len(reused) for name, at in pair.positions.items()},
            reading=Reading(backward=bool(direction), remember=self.reuse),
        )


def _in_order(rows: np.ndarray, direction: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ids as they are read, (tokens,), and how many tokens precede each border of two sentences, sorted."""
    cuts = 1 + np.flatnonzero(rows[1:, 1])
    return (rows[::-1, 0], len(rows) - cuts[::-1]) if direction else (rows[:, 0], cuts)
