"""Masking follows BERT's rules, and the checks fail on planted faults."""

from functools import cache, lru_cache

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import Joined, Masking, MaskingSettings, Replace, TokenMaskingSettings, find_words
from unmask.data.batches.rng import SampleRng

from .conftest import mask_samples

PAD, UNK, CLS, SEP, MASK = SPECIAL = range(5)
VOCABULARY = 60
CONTINUATION = 40
"""Ids from here on continue a word."""


@cache
def texts(number, longest=120):
    """Return pairs of random texts, with [UNK] among their tokens."""
    rng, found = np.random.default_rng(0), []
    for _ in range(number):
        first, second = (rng.integers(5, VOCABULARY, rng.integers(1, longest // 2)) for _ in range(2))
        first[rng.random(len(first)) < 0.05] = UNK
        found.append(Frame(CLS, SEP).wrap(first, second))
    return found


def build(settings=TokenMaskingSettings(), kind=Masking):  # noqa: B008 (frozen)
    return kind(settings, vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL))


class MasksSpecial(Masking):
    """Treats all tokens as candidates."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.is_ordinary[:] = True


class DrawsSpecial(Masking):
    """Draws random tokens from the whole vocabulary, as the reference code does."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.ordinary = np.arange(VOCABULARY)


class DrawsFew(Masking):
    """Draws random tokens from a part of the vocabulary."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.ordinary = np.arange(5, VOCABULARY // 2)


class ReusesMasks(Masking):
    """Draws the same masks in each epoch."""

    def __call__(self, samples, rng):
        return super().__call__(samples, SampleRng(0, "masking", [sample.key[1:] for sample in samples]))


class AlwaysMasks(Masking):
    """Replaces every masked token by [MASK]."""

    def __call__(self, samples, rng):
        made = super().__call__(samples, rng)
        for masked in made:
            masked.ids[masked.positions["masked"]] = MASK
        return made


class LeaksTargets(Masking):
    """Takes the labels after the replacement, not before it."""

    def __call__(self, samples, rng):
        made = super().__call__(samples, rng)
        return [masked.changed(labels={"masked": masked.ids[masked.positions["masked"]]}) for masked in made]


@lru_cache(maxsize=1)
def mask_all(masking, count=500):
    """Return pairs of a sample before and after masking."""
    samples = [sample.named((0, number)) for number, sample in enumerate(texts(count))]
    return list(zip(samples, mask_samples(masking, samples), strict=True))


def check_number(masking):
    """Check for round(15 % of the sequence), including special tokens; at least one, at most all candidates."""
    for sample, masked in mask_all(masking):
        candidates = int((sample.ids >= 5).sum())
        assert len(masked.positions["masked"]) == min(candidates, max(1, round(0.15 * len(sample))))


def check_masked_tokens(masking):
    for sample, masked in mask_all(masking):
        positions = masked.positions["masked"]
        assert (np.diff(positions) > 0).all()
        assert not np.isin(sample.ids[positions], SPECIAL).any()
        assert np.array_equal(masked.labels["masked"], sample.ids[positions])
        others = np.delete(np.arange(len(sample)), positions)
        assert np.array_equal(masked.ids[others], sample.ids[others])
        assert np.array_equal(masked.segments, sample.segments)


def replacements(masking, count):
    found = mask_all(masking, count)
    before = np.concatenate([masked.labels["masked"] for _, masked in found])
    return before, np.concatenate([masked.ids[masked.positions["masked"]] for _, masked in found])


def check_shares(masking):
    before, after = replacements(masking, 4000)
    ordinary = VOCABULARY - 5
    assert len(before) > 30_000
    assert abs((after == MASK).mean() - 0.8) < 0.01
    assert abs(((after != MASK) & (after != before)).mean() - 0.1 * (1 - 1 / ordinary)) < 0.01
    assert abs((after == before).mean() - 0.1 * (1 + 1 / ordinary)) < 0.01


def check_random_tokens(masking):
    before, after = replacements(masking, 2000)
    drawn = np.bincount(after[(after != MASK) & (after != before)], minlength=VOCABULARY)
    assert not drawn[list(SPECIAL)].any()
    assert drawn[5:].min() > 0.5 * drawn[5:].mean(), "all ordinary ids are drawn about equally often"


def check_epochs_differ(masking):
    samples = [sample.named((0, number)) for number, sample in enumerate(texts(50)) if len(sample) > 40]

    def masks(epoch):
        found = mask_samples(masking, [sample.named((epoch, sample.key[1])) for sample in samples])
        return [(one.ids.tolist(), one.positions["masked"].tolist()) for one in found]

    assert masks(0) == masks(0)
    assert all(first[1] != second[1] for first, second in zip(masks(0), masks(1), strict=True))


CHECKS = [check_number, check_masked_tokens, check_shares, check_random_tokens, check_epochs_differ]


@pytest.fixture(scope="module")
def masking():
    return build()


@pytest.mark.parametrize("check", CHECKS)
def test_masking(masking, check):
    check(masking)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (MasksSpecial, check_masked_tokens),
        (LeaksTargets, check_masked_tokens),
        (DrawsSpecial, check_random_tokens),
        (DrawsFew, check_random_tokens),
        (AlwaysMasks, check_shares),
        (ReusesMasks, check_epochs_differ),
    ],
)
def test_planted_faults_are_found(fault, check):
    with pytest.raises(AssertionError):
        check(build(kind=fault))


@pytest.mark.parametrize(
    ("replace", "expected"),
    [
        (Replace(mask=1, random=0, keep=0), {"mask"}),
        (Replace(mask=0, random=1, keep=0), {"random"}),
        (Replace(mask=0, random=0, keep=1), {"keep"}),
    ],
)
def test_shares_are_followed(replace, expected):
    before, after = replacements(build(TokenMaskingSettings(rate=0.4, replace=replace)), 500)
    kinds = np.where(after == MASK, "mask", np.where(after == before, "keep", "random"))
    assert set(kinds) - ({"keep"} if expected == {"random"} else set()) == expected


def test_the_rate_may_change_during_the_run():
    masking = build(TokenMaskingSettings(rate=0.4, final_rate=0.1))
    (sample,) = [sample for sample in texts(50) if len(sample) > 100][:1]
    for done, rate in ((0.0, 0.4), (0.5, 0.25), (1.0, 0.1)):
        (masked,) = mask_samples(masking, [sample.at(done)])
        assert len(masked.positions["masked"]) == round(rate * len(sample))
    same = build(TokenMaskingSettings(rate=0.4))
    both = mask_samples(same, [sample.at(0.0), sample.at(1.0)])
    assert [len(masked.positions["masked"]) for masked in both] == 2 * [round(0.4 * len(sample))]


def test_a_sequence_without_ordinary_tokens_has_no_target():
    (masked,) = mask_samples(build(), [Frame(CLS, SEP).wrap(np.array([UNK, UNK]))])
    assert masked.ids.tolist() == [CLS, UNK, UNK, SEP]
    assert masked.positions["masked"].tolist() == masked.labels["masked"].tolist() == []


def words_of(texts, begins):
    """Return where the words of texts begin and end, counted from the first token of the first text."""
    text = Joined.of(texts, np.ones(len(texts)), MASK, np.arange(VOCABULARY) >= 5, begins)
    return [(start - 1, stop - 1) for start, stop in zip(*map(np.ndarray.tolist, find_words(text)), strict=True)]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([5, 6, 7], [(0, 1), (1, 2), (2, 3)]),
        ([5, 40, 41, 6], [(0, 3), (3, 4)]),
        ([40, 41, 5], [(0, 2), (2, 3)]),  # a text may begin within a word
        ([CLS, 40, 5, 41, SEP, 42, 6], [(1, 2), (2, 4), (5, 6), (6, 7)]),  # a continuation after a special token
        ([5, UNK, 40, 6], [(0, 1), (2, 3), (3, 4)]),
    ],
)
def test_words_are_found(ids, words):
    found = words_of([np.array(ids), np.array([41, 5]), np.array(ids)], lambda ids: ids < CONTINUATION)
    size = len(ids) + 1  # with the [MASK] before it
    rest = [(start + size, stop + size) for start, stop in [(0, 1), (1, 2)]]
    assert found == [*words, *rest, *((start + size + 3, stop + size + 3) for start, stop in words)]


def test_a_word_with_a_part_that_may_not_be_masked_is_omitted():
    """As in a unigram vocabulary, where [UNK] may be within a word."""
    ids = np.array([5, UNK, 40, 6, 41])
    assert words_of([ids], lambda ids: (ids >= 5) & (ids < CONTINUATION)) == [(3, 5)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0.0}, "rate must lie between 0 and 1"),
        ({"rate": 1.0}, "rate must lie between 0 and 1"),
        ({"final_rate": 1.5}, "final_rate must lie between 0 and 1"),
    ],
)
def test_rates_outside_of_0_to_1_are_refused(settings, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        MaskingSettings(**settings)


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (float("nan"), 0.1, 0.1)])
def test_shares_that_do_not_add_up_to_1_are_refused(shares):
    with pytest.raises(ValueError, match="shares that sum to 1"):
        Replace(mask=shares[0], random=shares[1], keep=shares[2])


def test_settings_report_whether_all_tokens_are_kept():
    assert MaskingSettings(replace=Replace(mask=0, random=0, keep=1)).keeps_all
    assert not MaskingSettings().keeps_all
