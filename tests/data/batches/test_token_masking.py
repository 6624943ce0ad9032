"""Masking of individual tokens: a uniform choice among the candidates, regardless of words."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.rng import derive_rng

from .conftest import CLS, CONTINUATION, MASK, SEP, SPECIAL, UNK, VOCABULARY, begins

MASKING = TokenMaskingSettings().build(vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL), begins=begins)


class PrefersTheStart(TokenMaskingSettings, tag="prefers_the_start"):
    """Chooses among the first half of the candidates as long as they suffice."""

    def choose(self, ids, candidates, number, begins, rng):
        return super().choose(ids, candidates[: max(number, len(candidates) // 2)], number, begins, rng)


def check_uniform(settings):
    candidates, chosen = np.arange(1, 41), np.zeros(42, int)
    for seed in range(2000):
        positions = settings.choose(np.full(42, 9), candidates, 6, begins, derive_rng(seed, "masking"))
        assert len(positions) == 6
        assert (np.diff(positions) > 0).all()
        chosen[positions] += 1
    assert chosen[0] == chosen[41] == 0
    assert chosen[1:41] == pytest.approx(np.full(40, 300), abs=80)  # about 5 standard deviations


def test_all_candidates_are_chosen_equally_often():
    check_uniform(TokenMaskingSettings())


def test_an_uneven_choice_is_found():
    with pytest.raises(AssertionError):
        check_uniform(PrefersTheStart())


def test_tokens_of_a_word_are_masked_separately():
    sample = Frame(CLS, SEP).wrap(np.array([5, *[CONTINUATION] * 39]))
    masked = MASKING(sample, derive_rng(0, "masking"))
    assert len(masked.positions["masked"]) == round(0.15 * 42)
    assert TokenMaskingSettings().words == 0


def test_all_candidates_may_be_masked():
    ids, candidates = np.array([CLS, 9, UNK, 8, SEP]), np.array([1, 3])
    positions = TokenMaskingSettings().choose(ids, candidates, 2, begins, derive_rng(0, "masking"))
    assert positions.tolist() == [1, 3]
