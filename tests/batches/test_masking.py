"""Masking hides what BERT's does, and the same checks fail on planted faults."""

import numpy as np
import pytest

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.masking import Replace
from unmask.batches.rng import derive_rng
from unmask.batches.token_masking import TokenMasking, TokenMaskingSettings

PAD, UNK, CLS, SEP, MASK = SPECIAL = range(5)
VOCABULARY = 60


def texts(number, longest=120):
    """Pairs of random texts, [UNK] among their tokens."""
    rng = np.random.default_rng(0)
    for _ in range(number):
        first, second = (rng.integers(5, VOCABULARY, rng.integers(1, longest // 2)) for _ in range(2))
        first[rng.random(len(first)) < 0.05] = UNK
        yield Frame(CLS, SEP).wrap(first, second)


def build(settings=TokenMaskingSettings(), kind=TokenMasking):  # noqa: B008 (frozen)
    return kind(settings, vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL))


class HidesSpecial(TokenMasking):
    """Takes any token for a candidate."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.is_special[:] = False


class DrawsSpecial(TokenMasking):
    """Draws random tokens from the whole vocabulary, as the reference code does."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.ordinary = np.arange(VOCABULARY)


class DrawsFew(TokenMasking):
    """Draws random tokens from a part of the vocabulary."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.ordinary = np.arange(5, VOCABULARY // 2)


class ReusesMasks(TokenMasking):
    """Draws the same masks in each pass."""

    def __call__(self, sample, rng):
        return super().__call__(sample, derive_rng(0, "masking", *sample.key[1:]))


class AlwaysMasks(TokenMasking):
    """Replaces every hidden token by [MASK]."""

    def __call__(self, sample, rng):
        masked = super().__call__(sample, rng)
        masked.ids[masked.positions["masked"]] = MASK
        return masked


class LeaksTargets(TokenMasking):
    """Gives the labels after, not before, the replacement."""

    def __call__(self, sample, rng):
        masked = super().__call__(sample, rng)
        labels = {"masked": masked.ids[masked.positions["masked"]]}
        return Sample(key=(), ids=masked.ids, segments=masked.segments, positions=masked.positions, labels=labels)


def mask_all(masking):
    """(before, after) of many texts."""
    found = []
    for number, sample in enumerate(texts(4000)):
        sample = sample.named((0, number))
        found.append((sample, masking(sample, derive_rng(0, "masking", *sample.key))))
    return found


def check_number(masking):
    """Round(15 % of the sequence), specials counted, but at least one and no more than there are candidates."""
    for sample, masked in mask_all(masking):
        candidates = int((sample.ids >= 5).sum())
        assert len(masked.positions["masked"]) == min(candidates, max(1, round(0.15 * len(sample))))


def check_what_is_hidden(masking):
    for sample, masked in mask_all(masking):
        hidden = masked.positions["masked"]
        assert (np.diff(hidden) > 0).all()
        assert not np.isin(sample.ids[hidden], SPECIAL).any()
        assert np.array_equal(masked.labels["masked"], sample.ids[hidden])
        visible = np.delete(np.arange(len(sample)), hidden)
        assert np.array_equal(masked.ids[visible], sample.ids[visible])
        assert np.array_equal(masked.segments, sample.segments)


def replacements(masking):
    found = mask_all(masking)
    before = np.concatenate([masked.labels["masked"] for _, masked in found])
    return before, np.concatenate([masked.ids[masked.positions["masked"]] for _, masked in found])


def check_shares(masking):
    before, after = replacements(masking)
    ordinary = VOCABULARY - 5
    assert len(before) > 30_000
    assert abs((after == MASK).mean() - 0.8) < 0.01
    assert abs(((after != MASK) & (after != before)).mean() - 0.1 * (1 - 1 / ordinary)) < 0.01
    assert abs((after == before).mean() - 0.1 * (1 + 1 / ordinary)) < 0.01


def check_random_tokens(masking):
    before, after = replacements(masking)
    drawn = np.bincount(after[(after != MASK) & (after != before)], minlength=VOCABULARY)
    assert not drawn[list(SPECIAL)].any()
    assert drawn[5:].min() > 0.5 * drawn[5:].mean(), "every ordinary id is drawn, and none much less than others"


def check_each_pass_is_anew(masking):
    samples = [sample.named((0, number)) for number, sample in enumerate(texts(50)) if len(sample) > 40]

    def masks(epoch):
        keys = [(epoch, sample.key[1]) for sample in samples]
        found = [
            masking(sample.named(key), derive_rng(0, "masking", *key))
            for sample, key in zip(samples, keys, strict=True)
        ]
        return [(one.ids.tolist(), one.positions["masked"].tolist()) for one in found]

    assert masks(0) == masks(0)
    assert all(first[1] != second[1] for first, second in zip(masks(0), masks(1), strict=True))


CHECKS = [check_number, check_what_is_hidden, check_shares, check_random_tokens, check_each_pass_is_anew]


@pytest.mark.parametrize("check", CHECKS)
def test_masking(check):
    check(build())


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (HidesSpecial, check_what_is_hidden),
        (LeaksTargets, check_what_is_hidden),
        (DrawsSpecial, check_random_tokens),
        (DrawsFew, check_random_tokens),
        (AlwaysMasks, check_shares),
        (ReusesMasks, check_each_pass_is_anew),
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
    before, after = replacements(build(TokenMaskingSettings(rate=0.4, replace=replace)))
    kinds = np.where(after == MASK, "mask", np.where(after == before, "keep", "random"))
    assert set(kinds) - ({"keep"} if expected == {"random"} else set()) == expected


def test_the_rate_may_change_along_the_run():
    masking = build(TokenMaskingSettings(rate=0.4, final_rate=0.1))
    (sample,) = [sample for sample in texts(50) if len(sample) > 100][:1]
    for done, rate in ((0.0, 0.4), (0.5, 0.25), (1.0, 0.1)):
        masked = masking(sample.at(done), derive_rng(0, "masking"))
        assert len(masked.positions["masked"]) == round(rate * len(sample))
    same = build(TokenMaskingSettings(rate=0.4))
    assert {len(same(sample.at(done), derive_rng(0, "masking")).positions["masked"]) for done in (0.0, 1.0)} == {
        round(0.4 * len(sample))
    }


def test_a_sequence_without_ordinary_tokens_has_no_target():
    masked = build()(Frame(CLS, SEP).wrap(np.array([UNK, UNK])), derive_rng(0, "masking"))
    assert masked.ids.tolist() == [CLS, UNK, UNK, SEP]
    assert masked.positions["masked"].tolist() == masked.labels["masked"].tolist() == []
