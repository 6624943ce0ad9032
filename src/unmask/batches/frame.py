"""[CLS] A [SEP], or [CLS] A [SEP] B [SEP]: how one text or two become one sequence (Devlin et al. 2019, figure 2).

RoBERTa's pairs have two separators between: <s> A </s></s> B </s> (fairseq, models/roberta/hub_interface.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmask.batches.batch import Sample
from unmask.tokenizers.tokenizer import Tokenizer

SUMMARY = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Frame:
    """The special tokens around the texts.

    Attributes:
        cls, sep: ids of [CLS] and [SEP].
        between: how many separators there are between two texts.
    """

    cls: int
    sep: int
    between: int = 1

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
        """Return the frame that goes with a tokenizer."""
        return cls(tokenizer.cls, tokenizer.sep, 2 if tokenizer.ends_twice else 1)

    def room(self, length: int, texts: int) -> int:
        """How many tokens of text fit into a sequence of `length` beside the special ones."""
        return length - 2 - (self.between if texts == 2 else 0)

    def wrap(self, first: np.ndarray, second: np.ndarray | None = None) -> Sample:
        """Return the sample of one text or a pair of texts (ids without special tokens), with an empty key.

        The position "summary" is that of [CLS]; segments are 0 up to the separators between, 1 after them.
        """
        if second is None:
            ids = np.concatenate([[self.cls], first, [self.sep]])
            segments = np.zeros(len(ids), np.int64)
        else:
            ids = np.concatenate([[self.cls], first, [self.sep] * self.between, second, [self.sep]])
            segments = np.zeros(len(ids), np.int64)
            segments[1 + len(first) + self.between :] = 1
        return Sample(key=(), ids=ids, segments=segments, positions={"summary": SUMMARY})
