"""Masking of spans: the paper's distribution of lengths, spans that begin with words, and one draw per span."""

from collections import Counter

import numpy as np
import pytest

from unmask.data.batches.masking import Replace
from unmask.data.batches.span_masking import span_indices, span_sums

from .conftest import (
    CONTINUATION,
    build_masking,
    long_texts,
    mask_long_texts,
    mask_samples,
    replacements_of,
    run_lengths,
    words_of,
)


def test_spans_are_as_long_as_in_the_paper():
    """A geometric distribution with p = 0.2 on 1 to 10, normalized: 3.8 words on average."""
    masking, sizes = build_masking("span", rate=0.005), []  # so few that they are seldom adjacent, and 1 of 80 is cut
    for sample in mask_samples(masking, list(long_texts(30, length=60_000, continued=0.0))):
        sizes += run_lengths(sample.positions["masked"])
    expected = 0.2 * 0.8 ** np.arange(10)
    assert (expected / expected.sum() * np.arange(1, 11)).sum() == pytest.approx(3.797, abs=1e-3)
    drawn = 1 + np.searchsorted(span_sums(0.2, 10), np.random.default_rng(0).random(200_000), side="right")
    assert drawn.mean() == pytest.approx(3.797, abs=0.02)
    assert np.bincount(drawn)[1:] / len(drawn) == pytest.approx(expected / expected.sum(), abs=0.005)
    assert np.mean(sizes) == pytest.approx(3.8, abs=0.15)
    assert max(sizes) <= 20, "at most two spans are adjacent"


def test_spans_are_as_long_in_words_of_several_tokens():
    """3.8 words on average, regardless of their tokens; the first word has 1.9, as long words are hit more often."""
    masking, words, sizes = build_masking("span", rate=0.005), [], []
    for sample in long_texts(100, length=60_000):
        positions = mask_samples(masking, [sample])[0].positions["masked"]
        word_ids = np.cumsum(sample.ids < CONTINUATION)[positions]
        for run in np.split(word_ids, np.flatnonzero(np.diff(positions) > 1) + 1):
            words.append(len(set(run.tolist())))
            sizes.append((run == run[0]).sum())
    assert len(words) > 4000
    assert np.mean(words) == pytest.approx(3.8, abs=0.1)
    assert np.mean(sizes) == pytest.approx(1.857, abs=0.05)


def test_spans_begin_with_words():
    for sample, masked in mask_long_texts(build_masking("span")):
        positions, words = masked.positions["masked"], words_of(sample)
        firsts = positions[np.diff(positions, prepend=-2) > 1]
        assert (words[firsts] != words[firsts - 1]).all()
        cut = [last for last in positions[np.diff(positions, append=10**6) > 1] if words[last] == words[last + 1] >= 0]
        assert len(cut) <= 1, "only the last span that was drawn ends within a word"


def test_the_replacement_is_drawn_for_a_span_and_for_each_token_of_a_word():
    for kind, together in (("span", True), ("whole_word", False)):
        mixed, found = 0, Counter()
        for _, masked in mask_long_texts(build_masking(kind, replace=Replace(mask=0.5, random=0.0, keep=0.5))):
            positions, kinds = masked.positions["masked"], replacements_of(masked)
            for run in np.split(kinds, np.flatnonzero(np.diff(positions) > 1) + 1):
                mixed += len(set(run.tolist())) > 1
            found.update(kinds.tolist())
        assert (mixed == 0) is together
        assert found[0] / sum(found.values()) == pytest.approx(0.5, abs=0.04)
    spans = Counter()
    for _, masked in mask_long_texts(build_masking("span")):
        firsts = np.diff(masked.positions["masked"], prepend=-2) > 1
        spans.update(replacements_of(masked)[firsts].tolist())
    assert spans[0] / sum(spans.values()) == pytest.approx(0.8, abs=0.02)
    assert spans[1] / sum(spans.values()) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("positions", "spans"),
    [
        ([], []),
        ([4], [0]),
        ([1, 2, 3], [0, 0, 0]),
        ([0, 2, 3, 7, 8, 10], [0, 1, 1, 2, 2, 3]),
    ],
)
def test_adjacent_tokens_are_in_one_span(positions, spans):
    assert span_indices(np.array(positions, np.int64)).tolist() == spans
