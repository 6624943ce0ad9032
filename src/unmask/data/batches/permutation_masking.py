"""Which tokens are predicted, and in which order: for permutation language modeling (Yang et al. 2019, XLNet).

Input: samples. Output: the same samples with an `order` (see `Sample`), and the last tokens in it as
`positions["targets"]` and `labels["targets"]`. No id is replaced.

One of `context` tokens is a target (K in section 2.3; a sample's number is rounded down). They are drawn as spans of 1
to `longest` tokens, each in a context of `context` times its length, which is split to its left and right at random
(section 3.1). The paper gives no distribution of lengths; as in its code p(n) is proportional to 1 / n, a span starts
with a word, in reading order, its context comes in addition to the span, and single tokens are drawn at random for what
is missing at the end. Special tokens are never targets. Different from the code, they are not counted as targets
either, and at least one ordinary token of a sample stays visible.

Ordinary tokens that are not targets come first in the order, where all see them; targets and special tokens follow, in
a random order. If only the first tokens of a window are remembered, as the windows of a stream overlap, they and the
rest are ordered separately, and those that are remembered see nothing of the rest (`_local_perm` in data_utils.py):
otherwise memory would contain what the next window asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unmask.data.batches.batch import TARGETS, Sample
from unmask.data.batches.masking import Begins, NoMaskingSettings
from unmask.data.batches.rng import SampleRng


class PermutationMaskingSettings(NoMaskingSettings, frozen=True, kw_only=True, tag="permutation"):
    """The recipe's [masking] for `kind = "permutation"`.

    Attributes:
        context: number of tokens of which one is a target.
        longest: maximum number of tokens in a span.
    """

    context: int = 6
    longest: int = 5

    provides = frozenset({TARGETS})

    def __post_init__(self) -> None:
        if self.context < 2:
            raise ValueError("context must be at least 2")
        if self.longest < 1:
            raise ValueError("longest must be at least 1")

    def check_length(self, length: int, remember: int | None) -> None:
        """See `MaskingSettings`: each part of a sample needs a target."""
        first, last = self.targets(length, remember)
        parts = "sample" if remember is None else f"part of a sample ({remember} and {length - remember} tokens)"
        if not first or (remember is not None and not last):
            raise ValueError(
                f"layout: with masking.context {self.context} not every {parts} of length {length} has a token to "
                "predict: increase layout.length, or decrease masking.context"
            )

    def targets(self, length: int, remember: int | None) -> tuple[int, int]:
        """Return the number of targets in both parts of a sample."""
        number = length // self.context
        first = number if remember is None else -(-number * remember // length)
        return first, number - first

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> PermutationMasking:
        """See `MaskingSettings`."""
        return PermutationMasking(self, vocabulary=vocabulary, special=special, begins=begins)


class PermutationMasking:
    """See the module.

    Args:
        settings: context and lengths of spans.
        vocabulary: vocabulary size.
        special: ids that are never targets.
        begins: returns where words begin; by default every token is a word.
    """

    def __init__(
        self,
        settings: PermutationMaskingSettings,
        *,
        vocabulary: int,
        special: frozenset[int],
        begins: Begins = np.ones_like,
    ) -> None:
        self.settings = settings
        self.begins = begins
        self.is_ordinary = np.ones(vocabulary, bool)
        self.is_ordinary[list(special)] = False
        probabilities = 1 / np.arange(1, settings.longest + 1)
        self.sums = (probabilities / probabilities.sum()).cumsum()[:-1]

    def __call__(self, samples: Sequence[Sample], rng: SampleRng) -> list[Sample]:
        """Return the samples with an order and targets; all randomness comes from `rng`."""
        return [self._permute(sample, rng.generator(number)) for number, sample in enumerate(samples)]

    def _permute(self, sample: Sample, rng: np.random.Generator) -> Sample:
        ordinary, reading = self.is_ordinary[sample.ids], sample.reading  # (length,)
        in_text = slice(None, None, -1 if reading.backward else 1)  # what begins a word depends on the token before it
        words = self.begins(sample.ids[in_text])[in_text].astype(bool) & ordinary  # (length,)
        border = len(sample) if reading.remember is None else reading.remember
        first, last = self.settings.targets(len(sample), reading.remember)
        targets = np.zeros(len(sample), bool)
        order = np.zeros(len(sample), np.int64)
        lowest = 0
        for part, wanted in ((slice(0, border), first), (slice(border, None), last)):
            here, spare = ordinary[part], int(part.start == 0)
            wanted = max(0, min(wanted, int(here.sum()) - spare))
            chosen = self._choose(here, words[part], wanted, bool(reading.backward), rng)
            targets[part] = chosen
            ranked = chosen | ~here
            order[part] = lowest
            order[part][ranked] += 1 + rng.permutation(int(ranked.sum()))
            lowest += 1 + int(ranked.sum())
        at = np.flatnonzero(targets)
        labels = {TARGETS: sample.ids[at].astype(np.int64)}
        return sample.changed(reading=replace(reading, order=order)).add(positions={TARGETS: at}, labels=labels)

    def _choose(
        self, ordinary: np.ndarray, words: np.ndarray, wanted: int, backward: bool, rng: np.random.Generator
    ) -> np.ndarray:
        """Return whether each token of a part of a sample is a target, (length,).

        Args:
            ordinary: whether a token may be a target, (length,).
            words: whether a word begins at a token, (length,).
            wanted: number of targets.
            backward: whether the part is in reverse order.
            rng: source of all randomness.
        """
        if backward:
            return self._choose(ordinary[::-1], words[::-1], wanted, False, rng)[::-1]
        chosen = np.zeros(len(ordinary), bool)
        starts = np.flatnonzero(words)
        here, left = 0, wanted
        while left:
            length = min(left, 1 + int(np.searchsorted(self.sums, rng.random(), side="right")))
            context = length * self.settings.context
            before = int(rng.integers(context))
            word = int(np.searchsorted(starts, here + before))
            if word == len(starts) or starts[word] + length >= len(ordinary):
                break
            start = int(starts[word])
            span = start + np.flatnonzero(ordinary[start : start + length])
            chosen[span] = True
            left -= len(span)
            here = start + length + context - before
        if left:
            chosen[rng.choice(np.flatnonzero(ordinary & ~chosen), left, replace=False)] = True
        return chosen
