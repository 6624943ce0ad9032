"""Counts of words: exact where they fit, otherwise an unbiased sample."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.tokenizers import counting
from unmask.data.tokenizers.counting import WordCounts, count_parts, repeat
from unmask.data.tokenizers.train import train_vocabulary


def split(part):
    return Counter(word for text in part for word in text.split())


def stream(rng, distinct, most=30):
    """Parts of a text: a few frequent words, and many rare ones."""
    names = [f"w{number:05}" for number in range(distinct)]
    counts = np.minimum(rng.zipf(1.3, distinct), most)
    drawn = rng.permutation(np.repeat(np.arange(distinct), counts))
    return [Counter(names[at] for at in part.tolist()) for part in np.array_split(drawn, 8)]


@given(st.lists(st.text("abc ", max_size=20), max_size=30), st.integers(1, 50))
def test_few_words_are_counted_exactly(texts, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "AT_ONCE", at_once)
        assert count_parts(split, iter(texts), progress=False) == Counter(" ".join(texts).split())


def test_a_sample_is_bounded_and_unbiased():
    rng = np.random.default_rng(0)
    most, ratios, singles = 6 * 120, [], []
    for seed in range(150):
        parts = stream(rng, 400)
        true, words = sum(parts, Counter()), WordCounts(most, seed)
        for part in parts:
            words.add(part)
            assert sum(map(len, words.counts)) <= most
        ratios.append(words.counts.total() / true.total())
        once = {word for word, count in true.items() if count == 1}
        singles.append(sum(count for word, count in words.counts.items() if word in once) / len(once))
    for values, widest in ((ratios, 0.1), (singles, 0.5)):
        error = np.std(values) / len(values) ** 0.5
        assert abs(np.mean(values) - 1) < 4 * error < widest


def test_frequent_words_keep_their_counts():
    words = WordCounts(600)
    for part in range(50):
        words.add({"often": 40, "also": 25} | {f"rare{part}-{number}": 1 for number in range(20)})
    assert words.counts["often"] == 2000 and words.counts["also"] == 1250
    assert max(count for word, count in words.counts.items() if word.startswith("rare")) < 200


def test_the_sample_depends_on_the_texts_alone():
    parts = stream(np.random.default_rng(1), 300)
    one, other = WordCounts(500), WordCounts(500)
    for part in parts:
        one.add(part)
        other.add(dict(sorted(part.items(), reverse=True)))
    assert one.counts == other.counts and sum(map(len, one.counts)) <= 500


def test_repeated_words_are_scaled_down(monkeypatch):
    words = {"a": 20_500, "b": 3, "c": 1}
    assert split(repeat(words)) == words
    monkeypatch.setattr(counting, "MOST_REPEATED", 2050)
    assert split(repeat({"a": 20_000, "b": 490, "c": 1, "d": 9})) == {"a": 2000, "b": 49, "d": 1}


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "words"])
def test_vocabularies_of_samples_are_the_same_each_time(kind, monkeypatch):
    rng = np.random.default_rng(2)
    syllables = ["ka", "to", "mi", "ru", "sen", "bo"]
    texts = [" ".join("".join(rng.choice(syllables, 3)) for _ in range(30)) for _ in range(40)]
    monkeypatch.setattr(counting, "AT_ONCE", 500)
    plain = kind in ("bpe", "words")

    def train():
        tokenizer = train_vocabulary(kind, texts, size=300, lowercase=not plain)
        return [tokenizer.token(id) for id in range(tokenizer.size)]

    whole = train()
    thin = counting.WordCounts.__init__
    monkeypatch.setattr(counting.WordCounts, "__init__", lambda self, most: thin(self, 400))
    sample = train()
    assert sample == train() != whole
    if kind != "words":
        assert any(syllable in token for token in sample[10:] for syllable in syllables)
