"""Masking of n-grams and whole words: the paper's statistics, no word masked in part, and a planted fault."""

from collections import Counter

import numpy as np
import pytest

from unmask.data.batches.frame import Frame

from .conftest import (
    CLS,
    CONTINUATION,
    SEP,
    build_masking,
    count_replacements,
    mask_long_texts,
    mask_samples,
    run_lengths,
    words_of,
)


def check_whole_words(masking):
    for sample, masked in mask_long_texts(masking):
        words, positions = words_of(sample), masked.positions["masked"]
        assert (np.diff(positions) > 0).all()
        assert np.array_equal(np.flatnonzero(np.isin(words, words[positions])), positions)
        assert np.array_equal(masked.labels["masked"], sample.ids[positions])


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_no_word_is_masked_in_part(kind):
    check_whole_words(build_masking(kind))


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_a_word_masked_in_part_is_found(kind):
    masking = build_masking(kind)
    masking.begins = lambda ids: np.ones(len(ids), bool)  # a tokenizer that lost its word boundaries
    with pytest.raises(AssertionError):
        check_whole_words(masking)


def test_ngrams_are_as_often_as_in_the_paper():
    """p(n) proportional to 1/n: .545, .273, .182; at a low rate, so that n-grams are seldom adjacent."""
    sizes = Counter()
    for sample, masked in mask_long_texts(build_masking("ngram", rate=0.012), length=2000, continued=0.0):
        sizes.update(run_lengths(masked.positions["masked"]))
        assert len(sample) == 2002
    total = sum(sizes[size] for size in (1, 2, 3))
    shares = [sizes[size] / total for size in (1, 2, 3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)


def test_ngrams_of_another_length_differ():
    sizes = Counter()
    for _, masked in mask_long_texts(build_masking("ngram", rate=0.012, longest=2), length=2000, continued=0.0):
        sizes.update(run_lengths(masked.positions["masked"]))
    assert sizes[1] / (sizes[1] + sizes[2]) == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_of_the_tokens_of_words_80_percent_are_masked_and_10_are_others(kind):
    found = count_replacements(build_masking(kind))
    assert found.total() > 20_000
    assert [found[what] / found.total() for what in range(3)] == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_of_a_text_that_is_one_word_nothing_is_masked(kind):
    """As Thai is in a WordPiece vocabulary: no context would be left."""
    for ids, positions in (
        ([5, *[CONTINUATION] * 47], []),
        ([5, *[CONTINUATION] * 7, 6, *[CONTINUATION] * 47], list(range(1, 9))),
    ):
        (masked,) = mask_samples(build_masking(kind), [Frame(CLS, SEP).wrap(np.array(ids))])
        assert masked.positions["masked"].tolist() == positions
