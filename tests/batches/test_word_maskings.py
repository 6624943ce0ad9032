"""Maskings of whole words, n-grams and spans: the papers' statistics, no word in part, and planted faults."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.batches.feed import Feed
from unmask.batches.frame import Frame
from unmask.batches.masking import Replace, find_words
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.rng import derive_rng
from unmask.batches.single import SingleSettings
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.batches.token_masking import TokenMaskingSettings
from unmask.errors import UserError
from unmask.recipe import read_recipe
from unmask.settings import parse_overrides
from unmask.tokenizers.bpe import train_bpe
from unmask.tokenizers.unigram import train_unigram
from unmask.tokenizers.wordpiece import train_wordpiece

PAD, UNK, CLS, SEP, MASK = SPECIAL = range(5)
VOCABULARY, GOES_ON = 1000, 700
"""From id 700 on a piece goes on a word."""
WORDS = ("whole_word", "ngram", "span")


def begins(ids):
    return ids < GOES_ON


def build(kind, **settings):
    kinds = {"whole_word": WholeWordMaskingSettings, "ngram": NgramMaskingSettings, "span": SpanMaskingSettings}
    chosen = kinds[kind](**settings)
    return chosen.build(vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL), begins=begins)


def texts(number, length=500, goes_on=0.3):
    """Long texts, a third of whose pieces go on a word."""
    rng = np.random.default_rng(0)
    for place in range(number):
        ids = np.where(
            rng.random(length) < goes_on, rng.integers(GOES_ON, VOCABULARY, length), rng.integers(5, GOES_ON, length)
        )
        ids[0] = 5
        yield Frame(CLS, SEP).wrap(ids).named((0, place))


def mask_all(masking, **settings):
    return [(sample, masking(sample, derive_rng(0, "masking", *sample.key))) for sample in texts(300, **settings)]


def words_of(sample):
    """Each token's word, -1 for special ones, written a second time and plainly."""
    word, found, fresh = -1, [], True
    for id in sample.ids:
        if id in SPECIAL:
            found.append(-1)
            fresh = True
            continue
        if fresh or id < GOES_ON:
            word += 1
        fresh = False
        found.append(word)
    return np.array(found)


def runs(numbers):
    """Lengths of the runs of neighbouring numbers."""
    return [len(run) for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1) if len(run)]


def check_whole_words(masking):
    for sample, masked in mask_all(masking):
        words, hidden = words_of(sample), masked.positions["masked"]
        assert (np.diff(hidden) > 0).all()
        assert np.array_equal(np.flatnonzero(np.isin(words, words[hidden])), hidden)
        assert np.array_equal(masked.labels["masked"], sample.ids[hidden])


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_no_word_is_hidden_in_part(kind):
    check_whole_words(build(kind))


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_a_word_hidden_in_part_is_found(kind):
    masking = build(kind)
    masking.begins = lambda ids: np.ones(len(ids), bool)  # a tokenizer whose word boundaries were lost
    with pytest.raises(AssertionError):
        check_whole_words(masking)


@pytest.mark.parametrize("kind", WORDS)
def test_the_budget(kind):
    """15 % of the sequence; where words are whole a little less, never more."""
    for rate in (0.15, 0.4):
        found = mask_all(build(kind, rate=rate))
        shares = [len(masked.positions["masked"]) / len(sample) for sample, masked in found]
        assert max(shares) <= round(502 * rate) / 502
        assert min(shares) >= rate - (0.001 if kind == "span" else 0.02)


def test_ngrams_are_as_often_as_in_the_paper():
    """p(n) in proportion to 1/n: .545, .273, .182; drawn thinly, so that n-grams seldom touch."""
    sizes = Counter()
    for sample, masked in mask_all(build("ngram", rate=0.012), length=2000, goes_on=0.0):
        sizes.update(runs(masked.positions["masked"]))
        assert len(sample) == 2002
    total = sum(sizes[size] for size in (1, 2, 3))
    shares = [sizes[size] / total for size in (1, 2, 3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)


def test_ngrams_of_another_length_differ():
    sizes = Counter()
    for _, masked in mask_all(build("ngram", rate=0.012, longest=2), length=2000, goes_on=0.0):
        sizes.update(runs(masked.positions["masked"]))
    assert sizes[1] / (sizes[1] + sizes[2]) == pytest.approx(2 / 3, abs=0.03)


def test_spans_are_as_long_as_in_the_paper():
    """A geometric distribution with p = 0.2 on 1 to 10, normalised: 3.8 words on average."""
    masking, sizes = build("span", rate=0.005), []  # so few that they hardly touch, and one of 80 is cut
    for sample in texts(30, length=60_000, goes_on=0.0):
        sizes += runs(masking(sample, derive_rng(0, "masking", *sample.key)).positions["masked"])
    expected = 0.2 * 0.8 ** np.arange(10)
    assert (expected / expected.sum() * np.arange(1, 11)).sum() == pytest.approx(3.797, abs=1e-3)
    drawn = 1 + np.searchsorted(masking.sums, np.random.default_rng(0).random(200_000), side="right")
    assert drawn.mean() == pytest.approx(3.797, abs=0.02)
    assert np.bincount(drawn)[1:] / len(drawn) == pytest.approx(expected / expected.sum(), abs=0.005)
    assert np.mean(sizes) == pytest.approx(3.8, abs=0.15)
    assert max(sizes) <= 20, "two that touch at most"


def test_spans_are_as_long_in_words_of_several_pieces():
    """3.8 words on average, whatever their pieces; of the first word 1.9, as one of many is met more often."""
    masking, words, pieces = build("span", rate=0.005), [], []
    for sample in texts(100, length=60_000):
        hidden = masking(sample, derive_rng(0, "masking", *sample.key)).positions["masked"]
        of = np.cumsum(sample.ids < GOES_ON)[hidden]
        for run in np.split(of, np.flatnonzero(np.diff(hidden) > 1) + 1):
            words.append(len(set(run.tolist())))
            pieces.append((run == run[0]).sum())
    assert len(words) > 4000
    assert np.mean(words) == pytest.approx(3.8, abs=0.1)
    assert np.mean(pieces) == pytest.approx(1.857, abs=0.05)


def test_spans_begin_with_words():
    for sample, masked in mask_all(build("span")):
        hidden, words = masked.positions["masked"], words_of(sample)
        firsts = hidden[np.diff(hidden, prepend=-2) > 1]
        assert (words[firsts] != words[firsts - 1]).all()
        cut = [last for last in hidden[np.diff(hidden, append=10**6) > 1] if words[last] == words[last + 1] >= 0]
        assert len(cut) <= 1, "only the last one drawn ends within a word"


def kinds_of(masked):
    """What stands at each hidden token: 0 [MASK], 1 another token, 2 the same."""
    now = masked.ids[masked.positions["masked"]]
    return np.where(now == MASK, 0, np.where(now == masked.labels["masked"], 2, 1))


def test_what_stands_there_is_decided_for_a_span_and_for_each_token_of_a_word():
    for kind, together in (("span", True), ("whole_word", False)):
        mixed, found = 0, Counter()
        for _, masked in mask_all(build(kind, replace=Replace(mask=0.5, random=0.0, keep=0.5))):
            hidden, what = masked.positions["masked"], kinds_of(masked)
            for run in np.split(what, np.flatnonzero(np.diff(hidden) > 1) + 1):
                mixed += len(set(run.tolist())) > 1
            found.update(what.tolist())
        assert (mixed == 0) is together
        assert found[0] / sum(found.values()) == pytest.approx(0.5, abs=0.04)
    spans = Counter()
    for _, masked in mask_all(build("span")):
        firsts = np.diff(masked.positions["masked"], prepend=-2) > 1
        spans.update(kinds_of(masked)[firsts].tolist())
    assert spans[0] / sum(spans.values()) == pytest.approx(0.8, abs=0.02)
    assert spans[1] / sum(spans.values()) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_of_the_tokens_of_words_80_percent_are_masked_and_10_are_others(kind):
    found = Counter()
    for _, masked in mask_all(build(kind)):
        found.update(kinds_of(masked).tolist())
        assert not np.isin(masked.ids[masked.positions["masked"]], [PAD, UNK, CLS, SEP]).any()
    assert found.total() > 20_000
    assert [found[what] / found.total() for what in range(3)] == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


IDS = st.lists(st.sampled_from([UNK, SEP, 5, 6, 7, 700, 701]), min_size=0, max_size=30)


@pytest.mark.parametrize("kind", WORDS)
@given(IDS, st.floats(0.01, 0.99), st.integers(0, 3))
def test_any_sequence(kind, ids, rate, seed):
    sample = Frame(CLS, SEP).wrap(np.array(ids, np.int64))
    masked = build(kind, rate=rate)(sample, derive_rng(seed, "masking"))
    hidden, candidates = masked.positions["masked"], np.flatnonzero(sample.ids >= 5)
    assert np.isin(hidden, candidates).all()
    budget = max(1, round(len(sample) * rate))
    if len(candidates):
        words = words_of(sample)
        shortest = min(Counter(words[candidates].tolist()).values())
        assert (len(hidden) > 0) == (kind == "span" or shortest <= budget)
        if kind == "span":
            assert len(hidden) == min(budget, len(candidates))
        else:
            assert np.array_equal(np.flatnonzero(np.isin(words, words[hidden])), hidden)
            assert len(hidden) <= budget
        starts, stops = find_words(sample.ids, candidates, begins)
        assert np.array_equal(np.repeat(np.arange(len(starts)), stops - starts), words[candidates])
    else:
        assert not len(hidden)
    rest = np.setdiff1d(np.arange(len(sample)), hidden)
    assert np.array_equal(masked.ids[rest], sample.ids[rest])


@pytest.mark.parametrize("kind", ["whole_word", "ngram"])
def test_of_a_text_that_is_one_word_nothing_is_hidden(kind):
    """As Thai is in a WordPiece vocabulary: nothing would be left to guess it from."""
    for ids, hidden in (([5, *[GOES_ON] * 47], []), ([5, *[GOES_ON] * 7, 6, *[GOES_ON] * 47], list(range(1, 9)))):
        masked = build(kind)(Frame(CLS, SEP).wrap(np.array(ids)), derive_rng(0, "masking"))
        assert masked.positions["masked"].tolist() == hidden


PARTED = (
    "In| the| old| town|,| the| dogs|'| garden|-|bridge|?!| Größte| naïveté|:| 3|.|5|%| Привет|,| дорогой| мир|.|"
    " 彼|得|住|在|東|京|。| ที่| ελληνικά| می\u200cخواهم| 한국어| x1y2|=|7|!"
)
"""A text of several scripts, parted into words by hand."""
TRAINED = {"wordpiece": train_wordpiece, "bpe": train_bpe, "unigram": train_unigram}


def check_hidden_words(tokenizer, masking):
    words = PARTED.split("|")
    if tokenizer.kind.name == "wordpiece":  # BERT's words: each mark one, spaces none
        words = [part for word in words for part in (word if word == "?!" else [word])]
    ids, offsets = tokenizer.encode_offsets("".join(words))
    of = np.searchsorted(np.cumsum([len(word) for word in words]), [start for start, _ in offsets], side="right")
    assert np.bincount(of).min() == 1
    assert np.bincount(of).max() > 5, "words of one piece and of many"
    assert np.array_equal(tokenizer.begins_word(ids), np.diff(of, prepend=-1) > 0)
    of = np.concatenate([[-1], of, [-2]])  # the special tokens
    prepare = Feed(SingleSettings(length=512), masking, 0, tokenizer, lambda sample: sample).prepare()
    sample, seen = Frame.of(tokenizer).wrap(ids), set()
    for number in range(100):
        hidden = prepare(sample.named((0, number))).positions["masked"]
        assert np.array_equal(np.flatnonzero(np.isin(of, of[hidden])), hidden)
        seen |= set(of[hidden].tolist())
    assert seen == set(range(len(words))), "each of them at some time"


@pytest.mark.parametrize("vocabulary", TRAINED)
@pytest.mark.parametrize("kind", [WholeWordMaskingSettings, NgramMaskingSettings, TokenMaskingSettings])
def test_words_of_trained_vocabularies_are_hidden_whole_in_every_script(documents, vocabulary, kind):
    tokenizer = TRAINED[vocabulary]([*documents, PARTED.replace("|", "")], size=400)
    if kind is not TokenMaskingSettings:
        check_hidden_words(tokenizer, kind(rate=0.3))
        return
    with pytest.raises(AssertionError):  # words are nothing to it
        check_hidden_words(tokenizer, kind(rate=0.3))


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
def test_settings_out_of_place(settings, message):
    with pytest.raises(UserError, match=message):
        read_recipe("bert-mini", parse_overrides(settings))


def test_another_kind_keeps_rate_and_replacement():
    recipe = read_recipe("bert-mini", parse_overrides(["masking.rate=0.3", "masking.kind=span"]))
    assert (recipe.masking.rate, recipe.masking.p) == (0.3, 0.2)
