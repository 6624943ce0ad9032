"""Masking of individual tokens: a uniform choice among the candidates, regardless of words."""

from dataclasses import replace

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import Joined, TokenMaskingSettings
from unmask.data.batches.rng import SampleRng

from .conftest import CLS, CONTINUATION, MASK, SEP, SPECIAL, UNK, VOCABULARY, begins, mask_samples

MASKING = TokenMaskingSettings().build(vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL), begins=begins)


class PrefersTheStart(TokenMaskingSettings, tag="prefers_the_start"):
    """Chooses among the first half of the candidates as long as they suffice."""

    def choose(self, text, rng):
        few = text.may_mask & (text.place <= 20)
        return super().choose(replace(text, may_mask=few), rng)


def check_uniform(settings):
    chosen, ids = np.zeros(42, int), np.array([CLS, *[9] * 40, SEP])
    for seed in range(2):
        text = Joined.of([ids] * 1000, np.full(1000, 6), MASK, np.arange(VOCABULARY) >= 5, begins)
        masked = settings.choose(text, SampleRng(seed, "masking", [(0, key) for key in range(1000)]))
        assert (np.diff(masked) > 0).all()
        assert (np.bincount(text.sample[masked]) == 6).all()
        chosen += np.bincount(text.place[masked], minlength=42)
    assert chosen[0] == chosen[41] == 0
    assert chosen[1:41] == pytest.approx(np.full(40, 300), abs=80)  # about 5 standard deviations


def test_all_candidates_are_chosen_equally_often():
    check_uniform(TokenMaskingSettings())


def test_an_uneven_choice_is_found():
    with pytest.raises(AssertionError):
        check_uniform(PrefersTheStart())


def test_tokens_of_a_word_are_masked_separately():
    sample = Frame(CLS, SEP).wrap(np.array([5, *[CONTINUATION] * 39]))
    (masked,) = mask_samples(MASKING, [sample])
    assert len(masked.positions["masked"]) == round(0.15 * 42)
    assert TokenMaskingSettings().words == 0


def test_all_candidates_may_be_masked():
    every = TokenMaskingSettings(rate=0.9).build(
        vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL), begins=begins
    )
    (masked,) = mask_samples(every, [Sample(key=(), ids=np.array([CLS, 9, UNK, 8, SEP]))])
    assert masked.positions["masked"].tolist() == [1, 3]
