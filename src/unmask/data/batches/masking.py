"""The base classes of all maskings. Kinds of masking differ in which tokens are masked together; each has its own file.

Input: samples. Output: the same samples with ids replaced, `positions["masked"]` (which tokens are to be predicted) and
`labels["masked"]` (their original ids). Masking is a separate stage: several objectives read the same masks.

Devlin et al. 2019, section 3.1 and appendix A.1: 15 % of the tokens, of which 80 % become [MASK], 10 % a random token,
10 % are kept. As in the reference code, the number is round(15 % of the sequence, including special tokens), at least
one. Differences from it: masks are redrawn in each epoch; [UNK] is never masked, since nothing can be learned from it;
a random token is never a special one; and there is no upper limit (google-research's programs mask at most 20 of 128
tokens, 77 of 512). fairseq, RoBERTa's code, rounds up or down at random and also masks <s> and </s>.

All samples of a batch are masked at once, as one text (`Joined`); the masks of each depend on the rng alone.

Masking of individual tokens, as in BERT (Devlin et al. 2019, section 3.1).

No masking: samples for left-to-right language models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.rng import SampleRng

MASKED = "masked"
"""Name of the positions and labels of masked tokens."""
Begins = Callable[[np.ndarray], np.ndarray]
"""Maps the ids of a text to whether a word begins at each token."""
Masker = Callable[[Sequence[Sample], SampleRng], list[Sample]]
"""Returns copies of samples with some of their tokens masked; all randomness comes from their rng."""


@dataclass(frozen=True)
class Joined:
    """The tokens of several samples as one text, in which a [MASK] precedes each sample, so that no word crosses.

    Attributes:
        ids: (tokens,), in the order of the text.
        sample: (tokens,), the index of each token's sample.
        place: (tokens,), the index of each token in its sample; -1 for the [MASK] before it.
        may_mask: (tokens,) bool, which tokens may be masked.
        number: (samples,), how many tokens to mask, at most as many as may be.
        begins: returns where words begin.
    """

    ids: np.ndarray
    sample: np.ndarray
    place: np.ndarray
    may_mask: np.ndarray
    number: np.ndarray
    begins: Begins

    @classmethod
    def of(
        cls, texts: Sequence[np.ndarray], number: np.ndarray, mask: int, ordinary: np.ndarray, begins: Begins
    ) -> Joined:
        """Return texts as one.

        Args:
            texts: the ids of each, (tokens,).
            number: (samples,), how many tokens to mask of each, if as many may be masked.
            mask: id of [MASK].
            ordinary: (vocabulary,) bool, which ids may be masked.
            begins: returns where words begin.
        """
        before = np.array([mask])
        ids = np.concatenate([part for text in texts for part in (before, text)])
        sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        sample = np.repeat(np.arange(len(texts)), sizes)
        place = np.arange(len(ids)) - (np.cumsum(sizes) - sizes + 1)[sample]
        may_mask = ordinary[ids] & (place >= 0)
        most = np.bincount(sample[may_mask], minlength=len(texts))
        return cls(ids, sample, place, may_mask, np.minimum(number, most), begins)


class Replace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the masked tokens that become [MASK], become a random token, or are kept."""

    mask: float = 0.8
    random: float = 0.1
    keep: float = 0.1

    def __post_init__(self) -> None:
        shares = (self.mask, self.random, self.keep)
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # also rejects NaN
            raise ValueError("mask, random and keep must be shares that sum to 1")


class MaskingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that [masking] of a recipe has for every kind.

    Attributes:
        rate: share of a sequence's tokens to mask.
        final_rate: rate at the end of the run, or of the consecutive stages with the same masking (see
            data/batches/curriculum.py), reached linearly; None: the rate is constant.
        replace: what replaces masked tokens.
        provides: what it gives to objectives.
        whole_words: whether words are only masked as a whole.
        keeps_all: whether all tokens are kept, so that the answers could be read from the input.
    """

    rate: float = 0.15
    final_rate: float | None = None
    replace: Replace = Replace()

    kept = ("rate", "final_rate", "replace")
    provides: ClassVar[frozenset[str]] = frozenset({MASKED})
    whole_words: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, rate in (("rate", self.rate), ("final_rate", self.final_rate)):
            if rate is not None and not 0 < rate < 1:
                raise ValueError(f"{name} must lie between 0 and 1")

    @property
    def keeps_all(self) -> bool:
        """See the class."""
        return self.replace.keep == 1

    @property
    def words(self) -> int:
        """Maximum number of consecutive words masked together; 0: tokens are masked regardless of words."""
        return 0

    def rate_at(self, done: float) -> float:
        """Return the rate when a fraction `done` of the run is completed."""
        return self.rate if self.final_rate is None else self.rate + done * (self.final_rate - self.rate)

    def check_length(self, length: int, remember: int | None) -> None:
        """Check that it fits samples of up to `length` tokens, of which the first ones are remembered (`Sample`).

        Raises:
            ValueError: it does not.
        """

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> Masking:
        """Return the masking; see `Masking`."""
        return Masking(self, vocabulary=vocabulary, mask=mask, special=special, begins=begins)

    @abstractmethod
    def choose(self, text: Joined, rng: SampleRng) -> np.ndarray:
        """Return the indices of the tokens to mask in a text of several samples, (masked,), in order.

        Args:
            text: the text.
            rng: source of all randomness.
        """

    def draw(self, text: Joined, masked: np.ndarray, rng: SampleRng) -> np.ndarray:
        """Return a number in [0, 1) for each masked token, which decides what replaces it; here all independent."""
        return rng.uniform("replacement", text.sample[masked], text.place[masked])


class Masking:
    """See the module.

    Args:
        settings: rate and shares, and which tokens are masked together.
        vocabulary: vocabulary size.
        mask: id of [MASK].
        special: ids that are never masked and never drawn as random tokens.
        begins: returns where words begin; by default every token is a word.
    """

    def __init__(
        self,
        settings: MaskingSettings,
        *,
        vocabulary: int,
        mask: int,
        special: frozenset[int],
        begins: Begins = np.ones_like,
    ) -> None:
        self.settings = settings
        self.mask = mask
        self.begins = begins
        self.is_ordinary = np.ones(vocabulary, bool)
        self.is_ordinary[list(special)] = False
        self.ordinary = np.flatnonzero(self.is_ordinary)

    def __call__(self, samples: Sequence[Sample], rng: SampleRng) -> list[Sample]:
        """Return samples, at least one, with some of their tokens masked; all randomness comes from `rng`."""
        backward = [bool(sample.reading.backward) for sample in samples]
        texts = [sample.ids[::-1] if reverse else sample.ids for sample, reverse in zip(samples, backward, strict=True)]
        rates = np.array([len(sample) * self.settings.rate_at(sample.done) for sample in samples])
        number = np.maximum(1, np.rint(rates).astype(np.int64))
        text = Joined.of(texts, number, self.mask, self.is_ordinary, self.begins)  # words are those of the text
        masked = self.settings.choose(text, rng)
        choice = f"{type(self.settings).__name__}.choose"
        assert text.may_mask[masked].all(), f"{choice} returns other indices than those of tokens that may be masked"
        assert (np.diff(masked) > 0).all(), f"{choice} returns indices that are not in order, or twice"
        sample, place, gold = text.sample[masked], text.place[masked], text.ids[masked].astype(np.int64)
        draw, replace = self.settings.draw(text, masked, rng), self.settings.replace
        text.ids[masked[draw < replace.mask]] = self.mask
        random = np.flatnonzero((draw >= replace.mask) & (draw < replace.mask + replace.random))
        drawn = rng.uniform("random token", sample[random], place[random]) * len(self.ordinary)
        text.ids[masked[random]] = self.ordinary[drawn.astype(np.int64)]
        ends = np.flatnonzero(np.diff(text.sample, append=len(samples))) + 1
        last = np.cumsum(np.bincount(sample, minlength=len(samples)))
        made, start, first = [], 0, 0
        for before, reverse, end, stop in zip(samples, backward, ends.tolist(), last.tolist(), strict=True):
            ids, at, labels = text.ids[start + 1 : end], place[first:stop], gold[first:stop]
            if reverse:
                ids, at, labels = ids[::-1], len(ids) - 1 - at[::-1], labels[::-1]
            made.append(before.add(ids=ids, positions={MASKED: at}, labels={MASKED: labels}))
            start, first = end, stop
        return made


def find_words(text: Joined) -> tuple[np.ndarray, np.ndarray]:
    """Return where the words of a text begin and end.

    A word is omitted if a part of it may not be masked (a unigram vocabulary may lack a character in its middle). A
    continuation after a special token is a separate word.

    Returns:
        Indices of the first tokens, (words,), and of the tokens after the last ones, (words,).
    """
    breaks = text.begins(text.ids).astype(bool) | (text.place < 0)
    alone = breaks & ~text.may_mask
    breaks[1:] |= alone[:-1]
    first = np.flatnonzero(breaks)
    whole = np.logical_and.reduceat(text.may_mask, first)
    return first[whole], np.append(first[1:], len(breaks))[whole]


class TokenMaskingSettings(MaskingSettings, frozen=True, kw_only=True, tag="token"):
    """The recipe's [masking] for `kind = "token"`; see `MaskingSettings`."""

    def choose(self, text: Joined, rng: SampleRng) -> np.ndarray:
        """See `MaskingSettings`."""
        candidates = np.flatnonzero(text.may_mask)
        sample = text.sample[candidates]
        shuffled = candidates[rng.shuffle("choice", sample, text.place[candidates])]
        counts = np.bincount(sample, minlength=len(text.number))
        rank = np.arange(len(sample)) - (np.cumsum(counts) - counts)[sample]  # in the shuffled candidates of its sample
        return np.sort(shuffled[rank < text.number[sample]])


WHOLE_TEXT = "unmasked text"


class NoMaskingSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="none"
):
    """The recipe's [masking] for `kind = "none"`."""

    provides: ClassVar[frozenset[str]] = frozenset({WHOLE_TEXT})
    words: ClassVar[int] = 0
    whole_words: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = False  # no token is to be predicted

    def rate_at(self, done: float) -> float:
        """See `MaskingSettings`."""
        return 0.0

    def check_length(self, length: int, remember: int | None) -> None:
        """See `MaskingSettings`."""

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> Masker:
        """See `MaskingSettings`."""
        return identity


def identity(samples: Sequence[Sample], rng: SampleRng) -> list[Sample]:
    """Return the samples unchanged."""
    return list(samples)
