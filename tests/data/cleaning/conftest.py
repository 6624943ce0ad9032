"""Generated documents that read like prose."""

import random

import pytest

from unmask.data.cleaning.rule import Document

WORDS = [
    *(
        "the",
        "of",
        "and",
        "to",
        "have",
        "with",
        "that",
        "be",
        "story",
        "cat",
        "dog",
        "house",
        "window",
        "river",
        "because",
    ),
    *(
        "under",
        "found",
        "never",
        "simple",
        "garden",
        "walked",
        "morning",
        "answer",
        "quickly",
        "old",
        "friend",
        "between",
    ),
    *("letters", "winter", "small", "bread", "table", "again", "over", "looked", "music"),
]


@pytest.fixture(scope="session")
def prose():
    """A function that returns a document of random sentences, one or a few in each line."""

    def make(seed, lines=6, sentences=3):
        rng = random.Random(seed)

        def sentence():
            return " ".join(rng.choices(WORDS, k=rng.randint(6, 14))).capitalize() + "."

        return "\n\n".join(" ".join(sentence() for _ in range(sentences)) for _ in range(lines))

    return make


@pytest.fixture(scope="session")
def verdict():
    """A function that returns why a rule drops a text, and what it leaves of one that it does not drop."""

    def judge(rule, text):
        result = rule.build()(Document(text))
        return result.dropped, result.document.text

    return judge
