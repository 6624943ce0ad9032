"""[CLS] A [SEP] or [CLS] A [SEP] B [SEP]: how one or two texts become one sequence (Devlin et al. 2019, figure 2).

RoBERTa puts two separators between a pair: <s> A </s></s> B </s> (fairseq, models/roberta/hub_interface.py). The
inputs of GPT's tasks begin with a start token, have a delimiter in between, and end with an extract token, where the
vector of the text is read (Radford et al. 2018, section 3.3): here these are [CLS], [SEP] and [MASK], which GPT does
not use otherwise. XLNet puts [CLS] last: A [SEP] [CLS], A [SEP] B [SEP] [CLS] (Yang et al. 2019, section 2.5).

Long sequences of a batch in windows, one after the other: for bodies that remember the windows before.

Input: a ragged batch, and the length of a window. Output: for each window, counted from the start of the sequences, the
batch of the tokens there, of all sequences that are so long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.batches.groups import group_sequences
from unmask.data.batches.tokens import Tokens
from unmask.data.tokenizers.words import Ragged, spans
from unmask.support.errors import UserError

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Tokenizer
    from unmask.support.choices import SummaryKind

FIRST = np.zeros(1, np.int64)
EMPTY = Sample(key=(), ids=FIRST)


def _ids(ids: np.ndarray) -> np.ndarray:
    return ids


@dataclass(frozen=True)
class Frame:
    """The special tokens around texts.

    Attributes:
        cls, sep: ids of [CLS] and [SEP].
        between: number of separators between two texts.
        extract: id of the last token, where the vector of a text is read; None: the last token is [SEP], and the
            vector is read at [CLS].
        last: whether [CLS] is at the end.
        spell: returns what the model reads of tokens: their ids, or their characters; see `Tokenizer.spell`.
        second: segment id of the second text of a pair; 0 where texts are not marked.
    """

    cls: int
    sep: int
    between: int = 1
    extract: int | None = None
    last: bool = False
    spell: Callable[[np.ndarray], np.ndarray] = _ids
    second: int = 1

    @classmethod
    def of(cls, tokenizer: Tokenizer, summary: SummaryKind | None = None) -> Frame:
        """Return the frame of a tokenizer.

        Args:
            tokenizer: supplies the special tokens.
            summary: where the vector of a text is read; None: as set by the tokenizer.
        """
        summary = summary or tokenizer.summary
        extract = tokenizer.mask if summary == "extract" else None
        between = 2 if tokenizer.ends_twice and extract is None else 1
        second = int(tokenizer.segments)
        return cls(tokenizer.cls, tokenizer.sep, between, extract, summary == "last", tokenizer.spell, second)

    @property
    def start(self) -> int:
        """Index of the first text's first token."""
        return 0 if self.last else 1

    def capacity(self, length: int, texts: int) -> int:
        """Return the number of text tokens that fit into a sequence of `length`, besides special tokens."""
        return length - 2 - (self.between if texts == 2 else 0)

    def wrap(self, first: np.ndarray, second: np.ndarray | None = None) -> Sample:
        """Return the sample of a text or a pair of texts (ids without special tokens), with an empty key.

        The position "summary" is that of [CLS], or of the extract token; segments are 0 up to and including the
        separators in between, and 1 after them, but 2 at a [CLS] at the end.
        """
        start, length = self.start, len(first) + 2
        after = start + len(first) + self.between
        if second is not None:
            length += self.between + len(second)
        ids, segments = np.empty(length, np.int64), np.zeros(length, np.int64)
        ids[start : start + len(first)] = first
        if second is not None:
            ids[start + len(first) : after] = self.sep
            ids[after : after + len(second)] = second
            segments[after:] = self.second
        ids[-1 - self.last] = self.sep if self.extract is None else self.extract
        ids[-1 if self.last else 0] = self.cls
        if self.last:
            segments[-1] = 2 * self.second
        summary = FIRST if self.extract is None and not self.last else np.array([length - 1])
        return EMPTY.changed(ids=self.spell(ids), segments=segments, positions={"summary": summary})

    def spread(self, first: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """Return one number per token of a framed text or pair: those of the texts' tokens, and -1 at special ones."""
        extract = None if self.extract is None else -1
        return replace(self, cls=-1, sep=-1, extract=extract, spell=_ids).wrap(first, second).ids

    def wrap_all(
        self, first: Ragged, second: Ragged | None = None, *, labels: Mapping[str, np.ndarray] | None = None
    ) -> list[Sample]:
        """Return the samples of many texts or pairs of texts, as `wrap` does, with the keys (0, index).

        Args:
            first: the texts, without special tokens.
            second: the second texts of pairs.
            labels: the labels of each sample by name, (samples, any number) each.
        """
        texts = first.lengths if second is None else first.lengths + self.between + second.lengths
        ends = np.cumsum(texts + 2)
        starts = ends - texts - 2
        ids = np.full((texts + 2).sum(), self.sep, np.int64)  # (tokens,)
        segments = np.zeros(len(ids), np.int64)  # (tokens,)
        ids[spans(starts + self.start, first.lengths)] = first.ids
        if second is not None:
            after = starts + self.start + first.lengths + self.between
            ids[spans(after, second.lengths)] = second.ids
            segments[spans(after, ends - after)] = self.second
        if self.extract is not None:
            ids[ends - 1 - self.last] = self.extract
        if self.last:
            segments[ends - 1] = 2 * self.second
        ids[ends - 1 if self.last else starts] = self.cls
        summary = texts + 1 if self.last or self.extract is not None else np.zeros_like(texts)  # (samples,)
        positions = _rows({"summary": summary[:, None]}, len(ends))
        ids = self.spell(ids)
        return [
            EMPTY.changed(key=(0, number), ids=ids[start:end], segments=segments[start:end], positions=at, labels=gold)
            for number, ((start, end), at, gold) in enumerate(
                zip(pairwise([0, *ends.tolist()]), positions, _rows(labels or {}, len(ends)), strict=True)
            )
        ]


def adopt_framing(tokenizer: Tokenizer, directory: Path) -> None:
    """Mark and separate two texts as transformers does, and check that the frame is the same otherwise.

    Args:
        tokenizer: the tokenizer of a model, with its `summary`.
        directory: the directory of the model.

    Raises:
        UserError: transformers puts other tokens around texts.
    """
    framing = tokenizer.framing
    if framing is None or tokenizer.summary == "extract":  # published GPTs have no special tokens
        return
    tokenizer.segments = framing.segments
    text = np.array(framing.text, np.int64)
    for twice in (tokenizer.ends_twice, not tokenizer.ends_twice):
        tokenizer.ends_twice = twice
        frame = replace(Frame.of(tokenizer), spell=_ids)
        if [frame.wrap(text).ids.tolist(), frame.wrap(text, text).ids.tolist()] == [framing.single, framing.pair]:
            return
    around = " ".join(tokenizer.token(id) if id not in framing.text else "A" for id in framing.pair)
    raise UserError(
        f"transformers puts other special tokens around texts ({around}) than unmask",
        file=directory,
        remedy="save the tokenizer with the post-processor of the model",
    )


def _rows(values: Mapping[str, np.ndarray], samples: int) -> list[dict[str, np.ndarray]]:
    """Return what each sample has of arrays by name, (samples, any number) each."""
    if not values:
        return [{}] * samples
    return [dict(zip(values, rows, strict=True)) for rows in zip(*values.values(), strict=True)]


@dataclass(frozen=True)
class Window:
    """One window of all sequences that reach it.

    Attributes:
        tokens: their tokens there, as a batch; its sequences are the last ones, which are the longest.
        index: (tokens,) where they are in the whole batch.
    """

    tokens: Tokens
    index: Tensor


def cut_windows(tokens: Tokens, size: int) -> Iterator[Window]:
    """Yield the windows of a batch without directions and orders.

    On a GPU this waits for the device, as the lengths of the sequences are needed on the host.

    Args:
        tokens: the batch.
        size: tokens per window.
    """
    offsets = tokens.offsets.cpu().numpy().astype(np.int64)
    lengths, device = np.diff(offsets), tokens.ids.device
    for start in range(0, int(lengths.max()), size):
        reaching = lengths > start  # the last sequences, as they are in order of length
        sizes = np.minimum(lengths[reaching] - start, size)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        position_ids = np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes)
        index = torch.from_numpy(np.repeat(offsets[:-1][reaching] + start, sizes) + position_ids).to(device)
        groups = group_sequences(sizes, bounds, len(sizes))
        yield Window(
            Tokens(
                ids=tokens.ids.index_select(0, index),
                segments=None if tokens.segments is None else tokens.segments.index_select(0, index),
                position_ids=torch.from_numpy(position_ids).to(device),
                offsets=torch.from_numpy(bounds.astype(np.int32)).to(device),
                groups=tuple(group.map(lambda values: values.to(device)) for group in groups),
            ),
            index,
        )
