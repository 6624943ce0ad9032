"""Base of the tasks over whole texts, or pairs of texts: long texts are truncated, or read in overlapping windows.

Input: rows and their labels. Output: samples, and the outputs of the head for each text.

The vectors of a text's windows are averaged before the linear layer, as in Sun et al. 2019 (hierarchical methods with
mean pooling; their parts of a text do not overlap). In training the windows of a text are one sample (`Sample.parts`),
so that the loss is that of the text. Otherwise each window is a sample: as the layer is linear, the mean of their
outputs is its output for the mean vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.tasks.rows import RowTask, frame_rows


class FramedTexts(NamedTuple):
    """Texts, or pairs of texts, as samples.

    Attributes:
        samples: one or several per text, in order.
        cut: for each text, whether it was truncated.
        notes: messages for the user.
        ends: where the samples of each text end, preceded by 0, (texts + 1,).
    """

    samples: list[Sample]
    cut: list[bool]
    notes: tuple[str, ...]
    ends: np.ndarray

    def mean(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the outputs of each text's samples, (1, outputs) each, as (texts, outputs)."""
        rows = np.concatenate(outputs)  # (samples, outputs)
        found: np.ndarray = np.add.reduceat(rows, self.ends[:-1]) / np.diff(self.ends)[:, None].astype(rows.dtype)
        return found


class TextTask(RowTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of tasks over whole texts, or pairs of texts; see `RowTask`.

    Attributes:
        length: maximum number of tokens of a sequence, special tokens included.
        windows: maximum number of windows of this length in which a text is read; what is beyond is truncated.
        stride: number of tokens between the starts of two windows; 0: three quarters of those in a window.
        pairs: whether the inputs are pairs of texts, which have no windows; None: decided by the training examples
            (unknown for a model that was not trained here).
    """

    windows: int = 1
    stride: int = 0
    pairs: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows < 1:
            raise ValueError("windows must be at least 1")
        if self.windows == 1 and self.stride:
            raise ValueError("stride has no effect on a single window: increase windows, or remove it")
        if self.windows > 1:
            capacity = self.length - 2
            if self.stride == 0:  # stored with a model, even if the rule changes later
                msgspec.structs.force_setattr(self, "stride", max(1, 3 * capacity // 4))
            if not 1 <= self.stride <= capacity:
                raise ValueError(f"stride must be from 1 to {capacity}, the tokens of a text in a window")

    @property
    def grouped(self) -> bool:
        """See `Task`: the windows of a text."""
        return self.windows > 1

    def frame_texts(
        self, tokenizer: Tokenizer, rows: Sequence[Row], labels: Mapping[str, np.ndarray] | None
    ) -> FramedTexts:
        """Convert rows to samples.

        Args:
            tokenizer: the tokenizer.
            rows: the texts, or pairs of them.
            labels: the labels of each row by name, (rows, any number) each; the samples are then one per row. None: one
                per window.

        Raises:
            UserError: see `frame_rows`.
        """
        if self.windows == 1:
            framed = frame_rows(tokenizer, rows, self.length, pairs=self.pairs, labels=labels)
            return FramedTexts(framed.samples, framed.cut, framed.notes, np.arange(len(rows) + 1))
        framed = frame_rows(tokenizer, rows, self.length, pairs=self.pairs, windows=self.windows, stride=self.stride)
        samples, ends = framed.samples, framed.ends
        if labels is not None:
            samples = [
                Sample.joined(
                    samples[start:end], {name: np.tile(values[number], end - start) for name, values in labels.items()}
                ).named((0, number))
                for number, (start, end) in enumerate(pairwise(ends))
            ]
            ends = np.arange(len(rows) + 1)
        return FramedTexts(samples, framed.cut, framed.notes, ends)
