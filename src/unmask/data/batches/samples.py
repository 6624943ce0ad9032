"""Samples that are not read yet: their lengths, and where their text is.

All processes of a run, and all workers of each, find out which samples each step has and who takes which of them; only
the few that a process takes are read. Input: where layouts cut documents (`Cuts`), from the lengths of sentences alone,
or samples of any other origin. Output: `Samples`, whose lengths are known, and which are read by their indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from unmask.data.batches.batch import Sample
from unmask.data.tokenizers.words import Ragged, spans

Read = Callable[[Sequence[int]], list[Sample]]
"""Returns the samples with some indices, in the order of the indices."""
Piece = tuple[int, int, int]
"""Index of a document, its first token in a text, and the one after its last."""


class Samples(Sequence[Sample]):
    """Samples of one stage whose lengths are known; each is read when it is asked for.

    Args:
        lengths: (samples,), number of tokens of each.
        read: reads some of them.
        stage: index of the run's stage in which they are read.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], read: Read, stage: int = 0) -> None:
        self.lengths = lengths
        self.read = read
        self.stage = stage

    @classmethod
    def of(cls, samples: Sequence[Sample], stage: int = 0) -> Samples:
        """Return samples that are in memory."""
        lengths = np.fromiter(map(len, samples), np.int64, len(samples))
        return cls(lengths, lambda indices: [samples[index] for index in indices], stage)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Samples, int, int]]) -> Samples:
        """Return parts of samples of one stage, one after another, each from one index to before another."""
        lengths = np.concatenate([samples.lengths[start:stop] for samples, start, stop in parts])
        ends = np.cumsum([stop - start for _, start, stop in parts])

        def read(indices: Sequence[int]) -> list[Sample]:
            chosen = np.array(indices, np.int64)
            owner = np.searchsorted(ends, chosen, side="right")
            found: dict[int, Sample] = {}
            for number, (samples, _, stop) in enumerate(parts):
                own = chosen[owner == number]
                found |= zip(own.tolist(), samples.read((own - ends[number] + stop).tolist()), strict=True)
            return [found[index] for index in indices]

        return cls(lengths, read, parts[0][0].stage)

    @property
    def tokens(self) -> int:
        """Number of tokens of all samples."""
        return int(self.lengths.sum())

    def map(self, change: Callable[[Sample], Sample]) -> Samples:
        """Return samples that are changed when they are read, which leaves their lengths as they are."""
        return Samples(self.lengths, lambda indices: list(map(change, self.read(indices))), self.stage)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        chosen = range(len(self))[index]
        return self.read(chosen) if isinstance(chosen, range) else self.read([chosen])[0]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.read(range(len(self))))


@dataclass(frozen=True)
class Cuts:
    """Where samples are cut from documents.

    Attributes:
        pieces: (pieces, 3) int64, the pieces of documents that samples consist of (see `Piece`), in order.
        first: (samples + 1,), the first piece of each sample, and the number of pieces; each sample has some.
        pairs: (samples,) bool, whether a sample's two pieces are two texts; otherwise all its pieces are one text, with
            a separator between any two.
        labels: (samples,) int64, what is to be predicted of samples; 0 if that is nothing.
    """

    pieces: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.bool_]
    labels: npt.NDArray[np.int64]

    @classmethod
    def of(cls, samples: Sequence[Sequence[Piece]], *, pairs: bool = False, labels: Sequence[int] = ()) -> Cuts:
        """Return the cuts of samples.

        Args:
            samples: the pieces of each.
            pairs: whether each one with two pieces is a pair of texts.
            labels: the label of each; (): none.
        """
        counts = np.fromiter(map(len, samples), np.int64, len(samples))
        pieces = np.array([piece for sample in samples for piece in sample], np.int64).reshape(-1, 3)
        given = np.array(labels or [0] * len(samples), np.int64)
        return cls(pieces, np.concatenate([[0], np.cumsum(counts)]), pairs & (counts == 2), given)

    def __len__(self) -> int:
        return len(self.labels)

    def lengths(self, between: int) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each sample, (samples,), with `between` separators between two texts."""
        if not len(self):
            return np.zeros(0, np.int64)
        text = np.add.reduceat(self.pieces[:, 2] - self.pieces[:, 1], self.first[:-1])
        return text + np.diff(self.first) + 1 + (between - 1) * self.pairs  # [CLS], and [SEP] after each piece

    def documents(self, samples: npt.NDArray[np.int64]) -> set[int]:
        """Return the documents of some samples."""
        return set(self.pieces[spans(self.first[samples], np.diff(self.first)[samples]), 0].tolist())

    def texts(self, samples: npt.NDArray[np.int64], ids: Mapping[int, npt.NDArray[np.int32]], sep: int) -> list[Ragged]:
        """Return the texts of samples, or the first and the second texts of pairs.

        Args:
            samples: their indices; all are pairs, or none.
            ids: the ids of the tokens of their documents, (tokens,) each.
            sep: id of the separator.
        """
        counts = np.diff(self.first)[samples]
        pieces = self.pieces[spans(self.first[samples], counts)]
        parts, lengths = [ids[index][start:stop] for index, start, stop in pieces.tolist()], pieces[:, 2] - pieces[:, 1]
        if self.pairs[samples[0]]:
            return [Ragged(np.concatenate(parts[text::2]), lengths[text::2]) for text in (0, 1)]
        ends = np.cumsum(counts)
        between = np.ones(len(parts), bool)  # whether a separator precedes a piece
        between[ends - counts] = False
        for index in np.flatnonzero(between).tolist():
            parts[index] = np.concatenate([[sep], parts[index]])
        return [Ragged(np.concatenate(parts), np.add.reduceat(lengths + between, ends - counts))]
