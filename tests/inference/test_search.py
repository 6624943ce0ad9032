"""Exact search by blocks beside a full sort, and BM25 beside its formula."""

import math
from collections import Counter

import numpy as np
import pytest

from unmask.inference import search
from unmask.inference.search import Bm25, Nearest, split_words
from unmask.support.errors import UserError


def test_the_nearest_vectors_do_not_depend_on_blocks(monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 3)
    rng = np.random.default_rng(0)
    for _ in range(60):
        queries, documents = (rng.normal(size=(rng.integers(1, 9), 4)).astype(np.float32) for _ in range(2))
        documents = np.concatenate([documents, rng.normal(size=(rng.integers(0, 30), 4)).astype(np.float32)])
        depth = int(rng.integers(1, 12))
        nearest = Nearest(queries, depth)
        for block in np.split(documents, np.sort(rng.integers(0, len(documents), 2))):
            nearest.add(block)
        scores = queries @ documents.T
        expected = np.argsort(-scores, axis=1)[:, :depth]
        for query, (numbers, values) in enumerate(nearest.results()):
            assert numbers.tolist() == expected[query].tolist()
            np.testing.assert_allclose(values, scores[query, numbers], rtol=1e-5, atol=1e-6)


def test_words_of_bm25():
    assert split_words("The Cat's 3rd x_y, é!") == ["the", "cat", "s", "3rd", "x_y", "é"]
    assert split_words("机器学习。猫 カタ") == ["机器", "器学", "学习", "猫", "カタ"]
    assert split_words(" -- ") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("বাংলা, தமிழ்", ["বাংলা", "தமிழ்"]),
        ("بِسْمِ ٱللَّٰهِ", ["بِسْمِ", "ٱللَّٰهِ"]),
        ("cafe\u0301s na\u0308ive", ["cafe\u0301s", "na\u0308ive"]),
        ("می\u200cخواهم \u0301", ["می\u200cخواهم"]),
        ("İstanbul'da IŞIK", ["istanbul", "da", "işik"]),
        ("ภาษา ไทย", ["ภา", "าษ", "ษา", "ไท", "ทย"]),
    ],
)
def test_marks_belong_to_their_words(text, words):
    """Words of Hindi, Arabic with vowels, and decomposed letters were divided at each mark, into single consonants."""
    assert split_words(text) == words


def test_bm25_is_that_of_lucene():
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    rng = np.random.default_rng(0)
    for _ in range(50):
        corpus = [" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 12))) for _ in range(rng.integers(2, 20))]
        words = [text.split() for text in corpus]
        query, mean = rng.choice(list("abcdefghij"), 3).tolist(), np.mean([*map(len, words)])
        expected = np.zeros(len(corpus))
        for term in query:
            holding = sum(term in of for of in words)
            weight = math.log(1 + (len(corpus) - holding + 0.5) / (holding + 0.5))
            for number, of in enumerate(words):
                count = Counter(of)[term]
                expected[number] += weight * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(of) / mean))
        ((numbers, scores),) = Bm25(corpus).search([" ".join(query)], 5)
        assert len(numbers) == min(5, (expected > 0).sum())
        np.testing.assert_allclose(scores, expected[numbers], rtol=1e-4)
        assert np.delete(expected, numbers).max(initial=0) <= scores.min(initial=np.inf) + 1e-6


def test_queries_and_documents_without_words():
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    index = Bm25(["a cat", "", "a dog"])
    assert [numbers.tolist() for numbers, _ in index.search(["!!", "fox", "dog"], 2)] == [[], [], [2]]
    with pytest.raises(UserError, match="no document has a word"):
        Bm25(["", "?"])
