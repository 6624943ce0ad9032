"""Mask tokens: what every masking has in common. Which tokens are masked together is the idea of each, a file a kind.

In: samples. Out: the same with ids replaced, `positions["masked"]` (which tokens are to be predicted) and
`labels["masked"]` (what stood there). Masking is a stage of its own: several objectives read the same masks.

Devlin et al. 2019, section 3.1 and appendix A.1: 15 % of the tokens, of which 80 % become [MASK], 10 % a random token,
10 % stay. As in the reference code the number is round(15 % of the sequence, special tokens counted), at least one.
Different from it: masks are drawn anew in each pass; [UNK] is never hidden, for nothing can be learnt from it; a
random token is never a special one; and there is no upper limit (google-research's programs hide at most 20 tokens of
128, 77 of 512). fairseq, RoBERTa's code, rounds up or down at random and hides <s> and </s> too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import msgspec
import numpy as np

from unmask.batches.batch import Sample

MASKED = "masked"
"""Name of the positions and of the labels."""
Begins = Callable[[np.ndarray], np.ndarray]
"""Ids of a sequence to whether a word begins at each."""
Masker = Callable[[Sample, np.random.Generator], Sample]
"""Returns a sample with some of its tokens masked."""


class Replace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the hidden tokens that become [MASK], become a random token, and stay as they are."""

    mask: float = 0.8
    random: float = 0.1
    keep: float = 0.1

    def __post_init__(self) -> None:
        shares = (self.mask, self.random, self.keep)
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # so that NaN is none
            raise ValueError("mask, random and keep must be shares that add up to 1")


class MaskingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What the recipe's [masking] holds for every kind.

    Attributes:
        rate: share of a sequence's tokens.
        final_rate: where the rate comes to at the end of the run, in a straight line; None: it stays.
        replace: what stands in their place.
        gives: what objectives can ask for.
        whole_words: whether no word is ever hidden in part.
        keeps_all: whether every token stays as it is, so that the answers could be read.
    """

    rate: float = 0.15
    final_rate: float | None = None
    replace: Replace = Replace()

    kept = ("rate", "final_rate", "replace")
    gives: ClassVar[frozenset[str]] = frozenset({MASKED})
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
        """How many words in a row are hidden together at most; 0: tokens are hidden, whatever their words."""
        return 0

    def rate_at(self, done: float) -> float:
        """Return the rate when so much of the run is over."""
        return self.rate if self.final_rate is None else self.rate + done * (self.final_rate - self.rate)

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> Masking:
        """Return what hides tokens; see `Masking`."""
        raise NotImplementedError


class Masking:
    """See the module. Subclasses choose.

    Args:
        settings: rate and shares.
        vocabulary: its size.
        mask: the id of [MASK].
        special: ids that are never hidden and never drawn.
        begins: tells where words begin; without it every token is one.
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
        self.is_special = np.zeros(vocabulary, bool)
        self.is_special[list(special)] = True
        self.ordinary = np.flatnonzero(~self.is_special)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """Return the sample with some of its tokens hidden; all randomness comes from `rng`."""
        candidates = np.flatnonzero(~self.is_special[sample.ids])
        number = min(len(candidates), max(1, round(len(sample) * self.settings.rate_at(sample.done))))
        hidden = self.choose(sample.ids, candidates, number, rng) if number else np.zeros(0, np.int64)
        ids = sample.ids.copy()
        draw = self.draw(hidden, rng)
        replace = self.settings.replace
        ids[hidden[draw < replace.mask]] = self.mask
        random = hidden[(draw >= replace.mask) & (draw < replace.mask + replace.random)]
        ids[random] = rng.choice(self.ordinary, len(random))
        return sample.add(ids=ids, positions={"masked": hidden}, labels={"masked": sample.ids[hidden].astype(np.int64)})

    @abstractmethod
    def choose(self, ids: np.ndarray, candidates: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
        """Return which tokens are hidden, in order; none where no word may be.

        Args:
            ids: of the sequence.
            candidates: which of its tokens may be hidden; at least one.
            number: how many are to be hidden, at least one.
            rng: all chance.
        """

    def draw(self, hidden: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a number in [0, 1) for each hidden token, which decides what stands in its place: each its own."""
        return rng.random(len(hidden))


def find_words(ids: np.ndarray, candidates: np.ndarray, begins: Begins) -> tuple[np.ndarray, np.ndarray]:
    """Return where the words of a sequence begin and end.

    A word of which a part may not be hidden (unigram vocabularies may not know a character in its middle) is none. What
    goes on after a special token is a word of its own.

    Args:
        ids: of the sequence.
        candidates: which of its tokens may be hidden, in order; at least one.
        begins: tells where words begin.

    Returns:
        (words,) first tokens, and (words,) the tokens after the last ones.
    """
    breaks, may_mask = begins(ids).astype(bool), np.zeros(len(ids), bool)
    may_mask[candidates] = True
    alone = breaks & ~may_mask
    breaks[1:] |= alone[:-1]
    breaks[0] = True
    first = np.flatnonzero(breaks)
    whole = np.logical_and.reduceat(may_mask, first)
    return first[whole], np.append(first[1:], len(ids))[whole]
