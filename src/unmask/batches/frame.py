"""[CLS] A [SEP], or [CLS] A [SEP] B [SEP]: how one text or two become one sequence (Devlin et al. 2019, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmask.batches.batch import Sample

SUMMARY = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Frame:
    """The special tokens around the texts.

    Attributes:
        cls, sep: ids of [CLS] and [SEP].
    """

    cls: int
    sep: int

    def room(self, length: int, texts: int) -> int:
        """How many tokens of text fit into a sequence of `length` beside the special ones."""
        return length - 1 - texts

    def wrap(self, first: np.ndarray, second: np.ndarray | None = None) -> Sample:
        """Return the sample of one text or a pair of texts (ids without special tokens), with an empty key.

        The position "summary" is that of [CLS]; segments are 0 up to the first [SEP], 1 after it.
        """
        if second is None:
            ids = np.concatenate([[self.cls], first, [self.sep]])
            segments = np.zeros(len(ids), np.int64)
        else:
            ids = np.concatenate([[self.cls], first, [self.sep], second, [self.sep]])
            segments = np.zeros(len(ids), np.int64)
            segments[len(first) + 2 :] = 1
        return Sample(key=(), ids=ids, segments=segments, positions={"summary": SUMMARY})
