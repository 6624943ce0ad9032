"""Maskings of whole words, n-grams and spans together: budgets, arbitrary sequences, trained vocabularies, settings."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import SingleSettings
from unmask.data.batches.masking import Joined, TokenMaskingSettings, find_words
from unmask.data.batches.span_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.data.batches.tokens import Reading
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides

from .conftest import (
    CLS,
    KINDS,
    MASK,
    SEP,
    UNK,
    VOCABULARY,
    begins,
    build_masking,
    mask_long_texts,
    mask_samples,
    words_of,
)

ORDINARY = np.arange(VOCABULARY) >= 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_budget(kind):
    """15 % of the sequence; with whole words slightly less, never more."""
    for rate in (0.15, 0.4):
        found = mask_long_texts(build_masking(kind, rate=rate))
        shares = [len(masked.positions["masked"]) / len(sample) for sample, masked in found]
        assert max(shares) <= round(502 * rate) / 502
        assert min(shares) >= rate - (0.001 if kind == "span" else 0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_is_read_backwards_has_the_same_words(kind):
    ids, masking = np.random.default_rng(0).integers(5, VOCABULARY, 200), build_masking(kind)
    for seed in range(10):
        forward, backward = (
            mask_samples(masking, [Sample(key=(), ids=ids[::step], reading=Reading(backward=step < 0))], seed)[0]
            for step in (1, -1)
        )
        forward, backward = forward.positions["masked"], backward.positions["masked"]
        assert np.array_equal(backward, len(ids) - 1 - forward[::-1])


IDS = st.lists(st.sampled_from([UNK, SEP, 5, 6, 7, 700, 701]), min_size=0, max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@given(IDS, st.floats(0.01, 0.99), st.integers(0, 3))
def test_any_sequence(kind, ids, rate, seed):
    sample = Frame(CLS, SEP).wrap(np.array(ids, np.int64))
    (masked,) = mask_samples(build_masking(kind, rate=rate), [sample], seed)
    positions, candidates = masked.positions["masked"], np.flatnonzero(sample.ids >= 5)
    assert np.isin(positions, candidates).all()
    budget = max(1, round(len(sample) * rate))
    if len(candidates):
        words = words_of(sample)
        shortest = min(Counter(words[candidates].tolist()).values())
        assert (len(positions) > 0) == (kind == "span" or shortest <= budget)
        if kind == "span":
            assert len(positions) == min(budget, len(candidates))
        else:
            assert np.array_equal(np.flatnonzero(np.isin(words, words[positions])), positions)
            assert len(positions) <= budget
        starts, stops = (at - 1 for at in find_words(Joined.of([sample.ids], 0, MASK, ORDINARY, begins)))
        assert np.array_equal(np.repeat(np.arange(len(starts)), stops - starts), words[candidates])
    else:
        assert not len(positions)
    rest = np.setdiff1d(np.arange(len(sample)), positions)
    assert np.array_equal(masked.ids[rest], sample.ids[rest])


SPLIT_TEXT = (
    "In| the| old| town|,| the| dogs|'| garden|-|bridge|?!| Größte| naïveté|:| 3|.|5|%| Привет|,| дорогой| мир|.|"
    " 彼|得|住|在|東|京|。| ที่| ελληνικά| می\u200cخواهم| 한국어| x1y2|=|7|!"
)
"""A text in several scripts, split into words by hand."""
TRAINED = {"wordpiece": train_wordpiece, "bpe": train_bpe, "unigram": train_unigram}


def check_masked_words(tokenizer, masking):
    words = SPLIT_TEXT.split("|")
    if tokenizer.kind.name == "wordpiece":  # BERT's words: each punctuation mark is one, spaces belong to none
        words = [part for word in words for part in (word if word == "?!" else [word])]
    ids, offsets = tokenizer.encode_offsets("".join(words))
    word_ids = np.searchsorted(np.cumsum([len(word) for word in words]), [start for start, _ in offsets], side="right")
    assert np.bincount(word_ids).min() == 1
    assert np.bincount(word_ids).max() > 5, "words of one token and of many"
    assert np.array_equal(tokenizer.begins_word(ids), np.diff(word_ids, prepend=-1) > 0)
    word_ids = np.concatenate([[-1], word_ids, [-2]])  # the special tokens
    prepare = Feed(SingleSettings(length=512), masking, 0, tokenizer, lambda sample: sample).prepare()
    sample, seen = Frame.of(tokenizer).wrap(ids), set()
    for masked in prepare([sample.named((0, number)) for number in range(100)]):
        positions = masked.positions["masked"]
        assert np.array_equal(np.flatnonzero(np.isin(word_ids, word_ids[positions])), positions)
        seen |= set(word_ids[positions].tolist())
    assert seen == set(range(len(words))), "each word is masked in some sample"


@pytest.mark.parametrize("vocabulary", TRAINED)
@pytest.mark.parametrize("kind", [WholeWordMaskingSettings, NgramMaskingSettings, TokenMaskingSettings])
def test_words_of_trained_vocabularies_are_masked_whole_in_every_script(documents, vocabulary, kind):
    tokenizer = TRAINED[vocabulary]([*documents, SPLIT_TEXT.replace("|", "")], size=400)
    if kind is not TokenMaskingSettings:
        check_masked_words(tokenizer, kind(rate=0.3))
        return
    with pytest.raises(AssertionError):  # it disregards words
        check_masked_words(tokenizer, kind(rate=0.3))


def test_words_of_a_wordpiece_vocabulary(tokenizer):
    begin = tokenizer.begins_word(np.arange(tokenizer.size))
    assert begin.tolist() == [not tokenizer.token(id).startswith("##") for id in range(tokenizer.size)]
    assert 0 < (~begin).sum() < tokenizer.size


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["masking.kind=span", "masking.p=1.5"], "p must lie between 0 and 1"),
        (["masking.kind=span", "masking.longest=0"], "longest must be at least 1"),
        (["masking.kind=ngram", "masking.longest=0"], "longest must be at least 1"),
        (["masking.kind=whole_word", "masking.longest=2"], "unknown key `longest`"),
        (["masking.kind=sapn"], "sapn"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        read_recipe("bert-mini", parse_overrides(settings))


def test_another_kind_keeps_rate_and_replacement():
    recipe = read_recipe("bert-mini", parse_overrides(["masking.rate=0.3", "masking.kind=span"]))
    assert (recipe.masking.rate, recipe.masking.p) == (0.3, 0.2)
