"""Orders and targets: their statistics beside those of the reference code's sampling, written again here."""

import numpy as np
import pytest

from unmask.data.batches.batch import TARGETS, Sample
from unmask.data.batches.permutation_masking import PermutationMaskingSettings
from unmask.data.batches.tokens import Reading

from .conftest import SPECIAL, VOCABULARY, begins, mask_samples, run_lengths

CLS, SEP = SPECIAL[2:4]
LENGTH, REUSE = 512, 256


def masking(**settings):
    return PermutationMaskingSettings(**settings).build(
        vocabulary=VOCABULARY, mask=4, special=frozenset(SPECIAL), begins=begins
    )


def window(number, **others):
    """Return a window of two halves, with two [SEP] and [CLS] in the second one."""
    rng = np.random.default_rng(number)
    ids = rng.integers(5, VOCABULARY, LENGTH)
    ids[[REUSE + int(rng.integers(10, 200)), -2]] = SEP
    ids[-1] = CLS
    return Sample(**{"key": (0, number), "ids": ids, "reading": Reading(**{"remember": REUSE} | others)})


def mask(one, sample, seed=0):
    return mask_samples(one, [sample], seed)[0]


@pytest.fixture(scope="module")
def masked():
    one = masking()
    return [mask(one, window(number)) for number in range(300)]


def reference_mask(starts, rng, goal, alpha=6, longest=5):
    """Sample targets as `_sample_mask` in data_utils.py of zihangdai/xlnet does."""
    length, found, here = len(starts), np.zeros(len(starts), bool), 0
    shares = 1 / np.arange(1, longest + 1)
    while here < length and found.sum() < goal:
        number = min(rng.choice(np.arange(1, longest + 1), p=shares / shares.sum()), goal - found.sum())
        context = number * alpha
        left = rng.integers(context)
        begin = here + left
        while begin < length and not starts[begin]:
            begin += 1
        end = begin + number  # the inner loop asks of the first token whether it starts a word, so tokens are counted
        if end >= length:
            break
        found[begin:end] = True
        here = end + context - left
    while found.sum() < goal:
        found[rng.integers(length)] = True
    return found


def statistics(masks):
    """Return how often runs of 1 to 8 targets occur, and the share of targets in each eighth of a part."""
    runs = np.concatenate([run_lengths(np.flatnonzero(found)) for found in masks])
    return np.bincount(runs, minlength=9)[1:9] / len(masks), np.mean(
        [part.mean(1) for part in np.reshape(masks, (len(masks), 8, -1))], 0
    )


def test_targets_have_the_statistics_of_the_reference_code(masked):
    rng = np.random.default_rng(1)
    ours, theirs = [], []
    for sample in masked:
        is_target = np.zeros(LENGTH, bool)
        is_target[sample.positions[TARGETS]] = True
        ours.append(is_target[:REUSE])
        theirs.append(reference_mask(begins(sample.ids[:REUSE]), rng, 43))
    (runs, shares), (their_runs, their_shares) = statistics(ours), statistics(theirs)
    np.testing.assert_allclose(runs, their_runs, atol=0.4)
    np.testing.assert_allclose(shares, their_shares, atol=0.02)
    assert their_runs[0] > 6 > 2 > their_runs[4] > 0.5
    uniform = [np.isin(np.arange(REUSE), rng.permutation(REUSE)[:43]) for _ in masked]
    assert abs(statistics(uniform)[0][0] - their_runs[0]) > 5, "single tokens would be noticed"


def test_one_token_in_six_is_a_target_in_each_part(masked):
    for sample in masked:
        at = sample.positions[TARGETS]
        assert (int((at < REUSE).sum()), len(at)) == (43, 85)
        assert np.array_equal(sample.labels[TARGETS], sample.ids[at])
        assert not np.isin(sample.ids[at], SPECIAL).any()
        assert np.array_equal(sample.ids, window(sample.key[1]).ids), "no id is replaced"


def reference_hidden(is_target, functional, rng):
    """Return which keys are hidden from each token of the content stream, as `_local_perm` there does, for one part."""
    index = rng.permutation(len(is_target))
    hideable = is_target | functional
    index = np.where(hideable, index, -1)
    own = np.where(is_target & ~functional, index, index + 1)
    hidden = (own[:, None] <= index) & hideable
    return hidden & ~np.eye(len(is_target), dtype=bool)  # -1 on the diagonal (modeling.py)


def test_orders_hide_what_the_reference_code_hides(masked):
    """Which tokens are hidden from all, from none and from some; and how often, for a random pair."""
    rng, seen, theirs = np.random.default_rng(2), [], []
    for sample in masked:
        order, at = sample.reading.order, sample.positions[TARGETS]
        is_target, functional = np.isin(np.arange(LENGTH), at), np.isin(sample.ids, [CLS, SEP])
        hidden = order > order[:, None]
        expected = np.zeros_like(hidden)
        expected[:REUSE, REUSE:] = True
        for part in (slice(None, REUSE), slice(REUSE, None)):
            expected[part, part] = reference_hidden(is_target[part], functional[part], rng)
        ranked = is_target | functional
        assert np.array_equal(hidden[~ranked], expected[~ranked]), "tokens that are not ranked see none that is"
        assert np.array_equal(hidden[:, ~ranked], expected[:, ~ranked]), "and are seen by all but the first part"
        assert not (hidden & hidden.T).any(), "of two tokens one sees the other, or both"
        np.testing.assert_array_equal(hidden.sum(), expected.sum())
        seen.append(hidden[np.ix_(ranked, ranked)][:40, :40])
        theirs.append(expected[np.ix_(ranked, ranked)][:40, :40])
    below = np.tril_indices(40, -1)
    for pairs in (np.mean(seen, 0)[below], np.mean(theirs, 0)[below]):  # each is hidden in half of the samples
        assert pairs.mean() == pytest.approx(0.5, abs=0.01)
        assert pairs.std() == pytest.approx((0.25 / len(masked)) ** 0.5, rel=0.25)


def test_ranks_of_targets_are_a_permutation_above_those_of_other_tokens(masked):
    for sample in masked:
        for part in (slice(None, REUSE), slice(REUSE, None)):
            ordinary = ~np.isin(sample.ids[part], SPECIAL) & ~np.isin(
                np.arange(LENGTH)[part], sample.positions[TARGETS]
            )
            order = sample.reading.order[part]
            lowest = order[ordinary]
            assert (lowest == lowest[0]).all()
            assert np.array_equal(np.sort(order[~ordinary]), lowest[0] + 1 + np.arange((~ordinary).sum()))
        order = sample.reading.order
        assert order[:REUSE].max() < order[REUSE:].min(), "what is remembered sees nothing of the rest"


def test_a_window_that_is_remembered_as_a_whole_has_one_part():
    sample = mask(masking(), window(0, remember=None))
    assert len(sample.positions[TARGETS]) == 85
    order = sample.reading.order
    assert order.min() == 0
    assert np.array_equal(
        np.sort(sample.reading.order[sample.reading.order > 0]), 1 + np.arange((sample.reading.order > 0).sum())
    )


def test_spans_begin_with_a_word_in_the_order_of_the_text():
    """Backwards, it is the last token of a run that begins a word; runs of two or more are spans."""
    for backward in (False, True):
        starts = []
        for number in range(100):
            sample = mask(masking(), window(number, backward=backward))
            for run in np.split(sample.positions[TARGETS], np.flatnonzero(np.diff(sample.positions[TARGETS]) > 1) + 1):
                if len(run) > 1:
                    starts.append(begins(sample.ids[run[-1] if backward else run[0]]))
        assert np.mean(starts) > 0.9 > 0.75 > np.mean(begins(window(0).ids))


def test_words_begin_where_they_do_in_the_text_although_it_is_read_backwards():
    """Here, as in BPE and unigram vocabularies, the token before decides: a word begins after each multiple of 4."""

    def after_fours(ids):
        return np.concatenate([[True], ids[:-1] % 4 == 0])

    settings = PermutationMaskingSettings()
    one = settings.build(vocabulary=VOCABULARY, mask=4, special=frozenset(SPECIAL), begins=after_fours)
    ids = np.random.default_rng(0).integers(5, VOCABULARY, LENGTH)
    forward = Sample(key=(0, 0), ids=ids, reading=Reading(backward=False))
    backward = forward.changed(ids=ids[::-1], reading=Reading(backward=True))
    assert np.array_equal(*(np.sort(mask(one, each).labels[TARGETS]) for each in (forward, backward)))


def test_orders_differ_from_sample_to_sample_and_are_reproducible():
    one, sample = masking(), window(3)
    first, again, other = mask(one, sample), mask(one, sample), mask(one, sample, seed=1)
    assert np.array_equal(first.reading.order, again.reading.order)
    assert not np.array_equal(first.reading.order, other.reading.order)
    assert not np.array_equal(first.positions[TARGETS], other.positions[TARGETS])


@pytest.mark.parametrize("text", [1, 2, 3, 5, 8])
def test_in_a_short_sample_at_least_one_token_stays_visible(text):
    ids = np.array([*range(5, 5 + text), SEP, CLS])
    one = masking(context=2)
    for seed in range(20):
        sample = mask(one, Sample(key=(0,), ids=ids), seed)
        assert len(sample.positions[TARGETS]) == min(text - 1, (text + 2) // 2)
        assert (sample.reading.order == 0).sum() == text - len(sample.positions[TARGETS])


@pytest.mark.parametrize(
    ("length", "remember", "fits"),
    [(512, 256, True), (12, 6, True), (5, None, False), (6, None, True), (11, 5, False), (20, 15, False)],
)
def test_lengths_without_a_target_in_each_part_are_refused(length, remember, fits):
    settings = PermutationMaskingSettings()
    if fits:
        settings.check_length(length, remember)
    else:
        with pytest.raises(ValueError, match=f"with masking.context 6 not every .* of length {length} has a token to"):
            settings.check_length(length, remember)


def test_impossible_settings_are_refused():
    for settings, reason in (({"context": 1}, "context must be at least 2"), ({"longest": 0}, "longest must be at")):
        with pytest.raises(ValueError, match=reason):
            PermutationMaskingSettings(**settings)
