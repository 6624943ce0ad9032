"""Two texts per sequence: the second follows the first, precedes it, or comes from another document.

Input: documents, sentence by sentence. Output: samples [CLS] A [SEP] B [SEP]. For `second = "random"` they have the
label `next_sentence` (0: B follows A; 1: B comes from elsewhere), and for `second = "swapped"` the label
`sentence_order` (0: B follows A; 1: A follows B). Optionally some samples are [CLS] A [SEP].

Devlin et al. 2019, section 3.1, task 2. The procedure is that of create_pretraining_data.py of google-research/bert:
sentences of a document are collected up to a target length (with probability 0.1 a shorter, random one) and split at a
random sentence boundary into A and the rest; a random B starts at a random sentence of a random document, and the rest
is put back; tokens are dropped from a random end of the longer text until the pair fits.

Intentional differences: according to the paper half of the pairs are random. The reference code produces more of them,
because a single remaining sentence always gets a random partner, and its ten tries may all hit the same document. Here
a single sentence gets its true successor if it has one; sentences without one (the last of a document) are balanced by
drawing fewer random partners for the others; and the random document is always a different one. Single sentences that
could not be balanced are omitted: a corpus of only one-sentence documents yields no samples. The shorter target is
drawn for each sample; the reference code draws it once per document.

Swapped pairs are those of Lan et al. 2020 (ALBERT), section 3.1: two consecutive segments of one document, half of
them in the wrong order. Its reference code gives a single sentence a random partner and labels that as swapped; here
single last sentences are omitted, as for `second = "next"`, so that order is all there is to learn.

`second = "next"` is ELECTRA's method (Clark et al. 2020; build_pretraining_dataset.py of google-research/electra), in
which a tenth of the samples are single texts, as in downstream tasks: `single_probability`. If it is above 0, single
last sentences become such samples too, and nothing is omitted. Its code fills the first text to about half of the
length and truncates each text at its end; here the split is random too, tokens are dropped from random ends, and
shorter targets are drawn as for BERT.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.batches.samples import Cuts, Piece
from unmask.data.batches.sources import TextTooShortError
from unmask.data.tokenizers.words import Ragged
from unmask.support.messages import setting

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents

Second = Literal["random", "next", "swapped"]
LABELS: dict[Second, str] = {"random": "next_sentence", "swapped": "sentence_order"}
"""Name of the label of a pair, by `second`."""
MAX_DEBT = 8
"""Maximum number of random pairs in a block in excess of one half."""


class SentencePairsSettings(LayoutSettings, frozen=True, kw_only=True, tag="sentence_pairs"):
    """The recipe's [layout] for `kind = "sentence_pairs"`; see `LayoutSettings`.

    Attributes:
        second: "random" for next sentence prediction, "swapped" for sentence order prediction, "next" if the second
            text is always the true continuation.
        short_probability: probability of a shorter target length.
        single_probability: probability that the text is not split; only with `second = "next"`.
    """

    second: Second = "random"
    short_probability: float = 0.1
    single_probability: float = 0.0

    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        label: {"layout.kind": "sentence_pairs", "layout.second": second} for second, label in LABELS.items()
    }
    without: ClassVar[Mapping[str, Any]] = {"layout.second": "next"}

    def __post_init__(self) -> None:
        if not 0 <= self.short_probability <= 1:
            raise ValueError("short_probability must lie in [0, 1]")
        if not 0 <= self.single_probability <= 1:
            raise ValueError("single_probability must lie in [0, 1]")
        if self.single_probability and self.second != "next":
            raise ValueError(f'single texts have no label for second = "{self.second}": single_probability must be 0')

    @property
    def provides(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({LABELS[self.second]} if self.second in LABELS else ())

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """See `Layout`.

        Raises:
            TextTooShortError: a random partner is required and there is only one document.
        """
        if self.second == "random" and len(documents) < 2:
            raise TextTooShortError(
                "next sentence prediction needs text from other documents, but there is only one document",
                remedy=f"separate documents by blank lines, or pass {setting('layout.kind', 'document_sentences')} "
                f"{setting('objective.next_sentence', False)}",
            )
        balance, pairs = _Balance(), list[_Pair]()
        for index, lengths in zip(indices, documents.sentence_lengths(indices), strict=True):
            pairs += self._document(frame, documents, index, lengths.tolist(), balance, rng)
        surplus = set(map(id, balance.forced[-balance.debt :])) if balance.debt > 0 else set()
        pairs = [pair for pair in pairs if id(pair) not in surplus]
        return Cuts.of([pair.texts for pair in pairs], pairs=True, labels=[pair.label for pair in pairs])

    def samples(self, frame: Frame, texts: Sequence[Ragged], labels: np.ndarray) -> list[Sample]:
        """See `Layout`."""
        name = LABELS.get(self.second)
        return frame.wrap_all(*texts, labels={} if name is None else {name: labels[:, None]})

    def _document(
        self,
        frame: Frame,
        documents: Documents,
        index: int,
        lengths: Sequence[int],
        balance: _Balance,
        rng: np.random.Generator,
    ) -> list[_Pair]:
        """Return the samples of a document, given the lengths of its sentences."""
        capacity = frame.capacity(self.length, texts=2)
        ends = list(accumulate(lengths, initial=0))
        pairs = []
        start = 0
        while start < len(lengths):
            target = self._target(capacity, rng)
            stop = start
            while stop < len(lengths) and ends[stop] - ends[start] < target:
                stop += 1
            if stop - start == 1 and stop < len(lengths):
                stop += 1  # a single sentence that fills the target: add its successor
            single = self.single_probability
            if single and (stop - start == 1 or rng.random() < single):
                excess = max(0, ends[stop] - ends[start] - frame.capacity(self.length, texts=1))
                pairs.append(_Pair([_trim((index, ends[start], ends[stop]), excess, rng)]))
                start = stop
                continue
            if stop - start == 1:
                if self.second == "random" and balance.debt < MAX_DEBT:
                    first = index, ends[start], ends[stop]
                    second = _random_text(documents, index, target - lengths[start], rng)
                    pairs.append(balance.force(_Pair(truncate_pair(first, second, capacity, rng), 1)))
                return pairs
            middle = int(rng.integers(start + 1, stop))
            first = index, ends[start], ends[middle]
            if self.second == "random" and balance.draw(rng):
                second = _random_text(documents, index, target - (ends[middle] - ends[start]), rng)
                pairs.append(_Pair(truncate_pair(first, second, capacity, rng), 1))
                start = middle  # put back the unused sentences
            else:
                pair, label = (first, (index, ends[middle], ends[stop])), 0
                if self.second == "swapped" and balance.draw(rng):
                    pair, label = pair[::-1], 1
                pairs.append(_Pair(truncate_pair(*pair, capacity, rng), label))
                start = stop
        return pairs

    def _target(self, capacity: int, rng: np.random.Generator) -> int:
        if capacity > 2 and rng.random() < self.short_probability:
            return int(rng.integers(2, capacity + 1))
        return capacity


@dataclass(frozen=True)
class _Pair:
    """Where the texts of a sample are, one or two, and its label."""

    texts: Sequence[Piece]
    label: int = 0


@dataclass
class _Balance:
    """Keeps the share of random (or swapped) pairs at one half, including those that are forced."""

    debt: int = 0  # random pairs minus true ones
    forced: list[_Pair] = field(default_factory=list)  # random pairs due to a missing successor

    def draw(self, rng: np.random.Generator) -> bool:
        is_random = self.debt < 0 if abs(self.debt) >= 2 else bool(rng.random() < 0.5)
        self.debt += 1 if is_random else -1
        return is_random

    def force(self, pair: _Pair) -> _Pair:
        self.debt += 1
        self.forced.append(pair)
        return pair


def _random_text(documents: Documents, index: int, wanted: int, rng: np.random.Generator) -> Piece:
    """Return consecutive sentences of another document than `index`, if possible at least `wanted` tokens."""
    other = int(rng.integers(len(documents) - 1))
    other += other >= index
    (lengths,) = documents.sentence_lengths([other])
    ends = [0, *np.cumsum(lengths).tolist()]
    first = int(rng.integers(len(lengths)))
    stop = max(first + 1, bisect_left(ends, ends[first] + wanted))
    return other, ends[first], ends[min(stop, len(lengths))]


def truncate_pair(first: Piece, second: Piece, capacity: int, rng: np.random.Generator) -> tuple[Piece, Piece]:
    """Drop tokens of the longer text, each from a random end, until both texts fit into `capacity` tokens.

    Equivalent to the token-by-token loop of the reference code (truncate_seq_pair), but drawn at once: the number of
    tokens that each text loses follows from the lengths, and the number of these at the front is binomial.
    """
    lengths = [stop - start for _, start, stop in (first, second)]
    excess = sum(lengths) - capacity
    if excess <= 0:
        return first, second
    # first the longer text is reduced to the length of the other, then both alternate; on ties the second is cut
    gap = lengths[0] - lengths[1]
    longer = min(excess, abs(gap))
    remaining = excess - longer
    cut_first = (longer if gap > 0 else 0) + remaining // 2
    cut_second = excess - cut_first
    return _trim(first, cut_first, rng), _trim(second, cut_second, rng)


def _trim(text: Piece, number: int, rng: np.random.Generator) -> Piece:
    document, start, stop = text
    front = int(rng.binomial(number, 0.5))
    return document, start + front, stop - (number - front)
