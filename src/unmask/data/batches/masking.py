"""The base classes of all maskings. Kinds of masking differ in which tokens are masked together; each has its own file.

Input: samples. Output: the same samples with ids replaced, `positions["masked"]` (which tokens are to be predicted) and
`labels["masked"]` (their original ids). Masking is a separate stage: several objectives read the same masks.

Devlin et al. 2019, section 3.1 and appendix A.1: 15 % of the tokens, of which 80 % become [MASK], 10 % a random token,
10 % are kept. As in the reference code, the number is round(15 % of the sequence, including special tokens), at least
one. Differences from it: masks are redrawn in each epoch; [UNK] is never masked, since nothing can be learned from it;
a random token is never a special one; and there is no upper limit (google-research's programs mask at most 20 of 128
tokens, 77 of 512). fairseq, RoBERTa's code, rounds up or down at random and also masks <s> and </s>.

Masking of individual tokens, as in BERT (Devlin et al. 2019, section 3.1).

No masking: samples for left-to-right language models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample

MASKED = "masked"
"""Name of the positions and labels of masked tokens."""
Begins = Callable[[np.ndarray], np.ndarray]
"""Maps the ids of a sequence to whether a word begins at each token."""
Masker = Callable[[Sample, np.random.Generator], Sample]
"""Returns a copy of a sample with some of its tokens masked."""


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
    def choose(
        self, ids: np.ndarray, candidates: np.ndarray, number: int, begins: Begins, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the positions of the tokens to mask, in order; none if no word can be masked.

        Args:
            ids: ids of the sequence, in the order of the text.
            candidates: positions of the tokens that may be masked; at least one.
            number: number of tokens to mask; at least one.
            begins: returns where words begin.
            rng: source of all randomness.
        """

    def draw(self, masked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a number in [0, 1) for each masked token, which decides what replaces it; here all independent."""
        return rng.random(len(masked))


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

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """Return the sample with some of its tokens masked; all randomness comes from `rng`."""
        backward, ids = sample.reading.backward, sample.ids.copy()
        text = ids[::-1] if backward else ids  # words are those of the text
        (candidates,) = self.is_ordinary[text].nonzero()
        number = min(len(candidates), max(1, round(len(sample) * self.settings.rate_at(sample.done))))
        masked = np.zeros(0, np.int64)
        if number:
            masked = self.settings.choose(text, candidates, number, self.begins, rng)
        masked = len(ids) - 1 - masked[::-1] if backward else masked
        draw = self.settings.draw(masked, rng)
        replace = self.settings.replace
        ids[masked[draw < replace.mask]] = self.mask
        random = masked[(draw >= replace.mask) & (draw < replace.mask + replace.random)]
        ids[random] = self.ordinary[rng.integers(0, len(self.ordinary), len(random))]
        return sample.add(ids=ids, positions={MASKED: masked}, labels={MASKED: sample.ids[masked].astype(np.int64)})


def find_words(ids: np.ndarray, candidates: np.ndarray, begins: Begins) -> tuple[np.ndarray, np.ndarray]:
    """Return where the words of a sequence begin and end.

    A word is omitted if a part of it may not be masked (a unigram vocabulary may lack a character in its middle). A
    continuation after a special token is a separate word.

    Args:
        ids: ids of the sequence.
        candidates: positions of the tokens that may be masked, in order; at least one.
        begins: returns where words begin.

    Returns:
        Positions of the first tokens, (words,), and of the tokens after the last ones, (words,).
    """
    breaks, may_mask = begins(ids).astype(bool), np.zeros(len(ids), bool)
    may_mask[candidates] = True
    alone = breaks & ~may_mask
    breaks[1:] |= alone[:-1]
    breaks[0] = True
    first = np.flatnonzero(breaks)
    whole = np.logical_and.reduceat(may_mask, first)
    return first[whole], np.append(first[1:], len(ids))[whole]


class TokenMaskingSettings(MaskingSettings, frozen=True, kw_only=True, tag="token"):
    """The recipe's [masking] for `kind = "token"`; see `MaskingSettings`."""

    def choose(
        self, ids: np.ndarray, candidates: np.ndarray, number: int, begins: Begins, rng: np.random.Generator
    ) -> np.ndarray:
        """See `MaskingSettings`."""
        masked = candidates[rng.choice(len(candidates), number, replace=False)]
        masked.sort()
        return masked


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


def identity(sample: Sample, rng: np.random.Generator) -> Sample:
    """Return the sample unchanged."""
    return sample
