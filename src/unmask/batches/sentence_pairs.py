"""Two texts in one sequence: the second one follows the first, or comes before it, or is from another document.

In: documents, sentence by sentence. Out: samples [CLS] A [SEP] B [SEP] with, for `second = "random"`, the label
`next_sentence` (0: B follows A; 1: B is from elsewhere), and for `second = "swapped"` the label `sentence_order`
(0: B follows A; 1: A follows B); where asked for, some [CLS] A [SEP].

Devlin et al. 2019, section 3.1, task 2, and create_pretraining_data.py of google-research/bert, whose cutting is
kept: sentences of a document are gathered up to a target length (with probability 0.1 a random shorter one), split at
a random sentence boundary into A and the rest; a random B starts at a random sentence of a random document, and the
rest is put back; of the longer text tokens are dropped at a random end until the pair fits.

Differences, on purpose. The paper says that half of the pairs are random; the reference code makes more of them
random, because a lone sentence always gets a random partner, and its ten tries may end in the same document. Here a
lone sentence takes its true successor where it has one, those that have none (the last of a document) are balanced
by drawing fewer random partners for the others, and the random document is always another one. Lone sentences that
could not be balanced are left out: of a corpus of nothing but one-sentence documents nothing is left. The shorter
target is drawn for each sample, by that code once for a document.

Swapped pairs are those of Lan et al. 2020 (ALBERT), section 3.1: two consecutive pieces of one document, half of them
in the wrong order. Its reference code gives a lone sentence a random partner and calls that swapped; here lone last
sentences are left out, as for `second = "next"`, so that order is all that there is to learn.

`second = "next"` is ELECTRA's (Clark et al. 2020; build_pretraining_dataset.py of google-research/electra), in which a
tenth of the samples are single texts, as in the tasks to come: `single_probability`. Where it is above 0, lone last
sentences are such samples too, and nothing is left out. Different from its code, which fills the first text to about
half of the length and cuts each at its end, the split is at random here too, what is too long loses tokens at random
ends, and the shorter targets are drawn as BERT's are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.corpus.corpus import Documents
from unmask.errors import UserError

Second = Literal["random", "next", "swapped"]
LABELS: dict[Second, str] = {"random": "next_sentence", "swapped": "sentence_order"}
"""What is asked of a pair, by its second text."""
MAX_DEBT = 8
"""How many random pairs a block may be ahead of one half."""


class SentencePairsSettings(
    LayoutSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sentence_pairs"
):
    """The recipe's [layout] for `kind = "sentence_pairs"`; see `LayoutSettings`.

    Attributes:
        second: "random" for next sentence prediction, "swapped" for sentence order prediction, "next" for always the
            true continuation.
        short_probability: how often a shorter target length is drawn.
        single_probability: how often, with `second = "next"`, the text is not split.
    """

    second: Second = "random"
    short_probability: float = 0.1
    single_probability: float = 0.0

    offers: ClassVar[Mapping[str, str]] = {
        label: f"layout.kind=sentence_pairs --set layout.second={second}" for second, label in LABELS.items()
    }
    without = "layout.second=next"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.short_probability <= 1:
            raise ValueError("short_probability must lie in [0, 1]")
        if not 0 <= self.single_probability <= 1:
            raise ValueError("single_probability must lie in [0, 1]")
        if self.single_probability and self.second != "next":
            raise ValueError(f'single texts have no answer to second = "{self.second}": single_probability must be 0')

    @property
    def gives(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({LABELS[self.second]} if self.second in LABELS else ())

    def build(self, frame: Frame, length: int) -> SentencePairs:
        """See `LayoutSettings`."""
        return SentencePairs(self, frame, length)


@dataclass
class _Balance:
    """Keeps random (or swapped) pairs at one half, whatever is forced."""

    debt: int = 0  # random pairs minus true ones
    forced: list[Sample] = field(default_factory=list)  # random for want of a successor

    def draw(self, rng: np.random.Generator) -> bool:
        is_random = self.debt < 0 if abs(self.debt) >= 2 else bool(rng.random() < 0.5)
        self.debt += 1 if is_random else -1
        return is_random

    def force(self, sample: Sample) -> Sample:
        self.debt += 1
        self.forced.append(sample)
        return sample


class SentencePairs:
    """See the module."""

    def __init__(self, settings: SentencePairsSettings, frame: Frame, length: int) -> None:
        self.settings = settings
        self.frame = frame
        self.room = frame.capacity(length, texts=2)
        self.room_alone = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`.

        Raises:
            UserError: a random partner is wanted and there is only one document.
        """
        if self.settings.second == "random" and len(documents) < 2:
            raise UserError(
                "next sentence prediction needs text from another document, and there is only one document",
                remedy="separate documents by blank lines, or pass --set layout.kind=document_sentences "
                "--set objective.next_sentence=false",
            )
        balance = _Balance()
        samples = [sample for index in indices for sample in self._document(documents, index, balance, rng)]
        surplus = {id(sample) for sample in balance.forced[-balance.debt :]} if balance.debt > 0 else set()
        return [sample for sample in samples if id(sample) not in surplus]

    def _document(self, documents: Documents, index: int, balance: _Balance, rng: np.random.Generator) -> list[Sample]:
        sentences = documents.sentences(index)
        samples = []
        at = 0
        while at < len(sentences):
            target = self._target(rng)
            stop, total = at, 0
            while stop < len(sentences) and total < target:
                total += len(sentences[stop])
                stop += 1
            if stop - at == 1 and stop < len(sentences):
                stop += 1  # a lone sentence as long as the target: its successor comes along
            single = self.settings.single_probability
            if single and (stop - at == 1 or rng.random() < single):
                text = np.concatenate(sentences[at:stop])
                samples.append(self.frame.wrap(_trim(text, max(0, len(text) - self.room_alone), rng)))
                at = stop
                continue
            if stop - at == 1:
                if self.settings.second == "random" and balance.debt < MAX_DEBT:
                    second = self._elsewhere(documents, index, target - len(sentences[at]), rng)
                    samples.append(balance.force(self._sample(sentences[at], second, 1, rng)))
                return samples
            middle = int(rng.integers(at + 1, stop))
            first = np.concatenate(sentences[at:middle])
            if self.settings.second == "random" and balance.draw(rng):
                second = self._elsewhere(documents, index, target - len(first), rng)
                samples.append(self._sample(first, second, 1, rng))
                at = middle  # what was not used is put back
            else:
                pair, label = (first, np.concatenate(sentences[middle:stop])), 0
                if self.settings.second == "swapped" and balance.draw(rng):
                    pair, label = pair[::-1], 1
                samples.append(self._sample(*pair, label, rng))
                at = stop
        return samples

    def _target(self, rng: np.random.Generator) -> int:
        if self.room > 2 and rng.random() < self.settings.short_probability:
            return int(rng.integers(2, self.room + 1))
        return self.room

    def _elsewhere(self, documents: Documents, index: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
        other = int(rng.integers(len(documents) - 1))
        sentences = documents.sentences(other + (other >= index))
        at = int(rng.integers(len(sentences)))
        taken = [sentences[at]]
        total = len(sentences[at])
        while total < wanted and (at := at + 1) < len(sentences):
            taken.append(sentences[at])
            total += len(sentences[at])
        return np.concatenate(taken)

    def _sample(self, first: np.ndarray, second: np.ndarray, label: int, rng: np.random.Generator) -> Sample:
        sample = self.frame.wrap(*truncate_pair(first, second, self.room, rng))
        name = LABELS.get(self.settings.second)
        return sample if name is None else sample.add(labels={name: np.array([label], np.int64)})


def truncate_pair(
    first: np.ndarray, second: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Drop tokens of the longer text, each from a random end, until both fit into `room`.

    The token-by-token loop of the reference code (truncate_seq_pair), drawn at once: how many tokens each text loses
    is fixed by the lengths, and how many of these go at the front is binomial.
    """
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    # the second text is cut on ties; the longer one comes down to the other first, then they take turns
    gap = len(first) - len(second)
    alone = min(excess, abs(gap))
    rest = excess - alone
    cut_first = (alone if gap > 0 else 0) + rest // 2
    cut_second = excess - cut_first
    return _trim(first, cut_first, rng), _trim(second, cut_second, rng)


def _trim(ids: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    front = int(rng.binomial(number, 0.5))
    return ids[front : len(ids) - (number - front)]
