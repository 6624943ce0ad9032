"""Random documents with entities, whose offsets count code points, for the readers of annotations."""

from dataclasses import dataclass

import numpy as np
import pytest

from ...hub_server import hub  # noqa: F401

WORDS = (
    *("Anna", "Berlin", "met", "in", "the", "U.S.", "well-known", "don't", "3,5", "Å"),
    *("😀", "👩🏽\u200d🚒", "🇩🇪", "𝒳", "𐐷name", "a😀b"),
    *("שלום", "\u200fירושלים", "القاهرة", "محمد"),
    *("e\u0301te\u0301", "नमस्ते", "ก็", "Zo\u0308e", "한국", "東京", "ひらがな"),
)
SPACES = (" ", " ", " ", "  ", "\n", "\r\n", " \r\n\r\n")
KINDS = ("PER", "LOC", "Job Title", "A-B")


@dataclass(frozen=True)
class Document:
    """A text, the offsets of its words between white space, and its entities: (label, start, end) in the text."""

    text: str
    words: list[tuple[int, int]]
    entities: list[tuple[str, int, int]]

    def utf16(self, offset):
        """Return an offset in UTF-16 units."""
        return len(self.text[:offset].encode("utf-16-le")) // 2

    def one_line_end(self, offset):
        """Return an offset that counts CR LF as one."""
        return len(self.text[:offset].replace("\r\n", "\n"))


def make_documents(seed, number=60, spaces=SPACES):
    """Return random documents; the first has no entity."""
    rng = np.random.default_rng(seed)
    documents = []
    for index in range(number):
        text, words = "", []
        for word in rng.choice(WORDS, rng.integers(1, 30)).tolist():
            text += str(rng.choice(spaces)) if words else ""
            words.append((len(text), len(text) + len(word)))
            text += word
        entities, at = [], 0
        while index and at < len(words):
            length = int(rng.integers(1, 4))
            if rng.random() < 0.3 and at + length <= len(words):
                entities.append((str(rng.choice(KINDS)), words[at][0], words[at + length - 1][1]))
                at += length
            at += 1
        documents.append(Document(text, words, entities))
    return documents


@pytest.fixture(scope="session", params=range(2))
def documents(request):
    """60 documents with emoji, right-to-left scripts, combining marks, and all line ends."""
    return make_documents(request.param)


@pytest.fixture(scope="session", params=range(2))
def lines(request):
    """60 documents of one line, whose words are separated by single spaces."""
    return make_documents(10 + request.param, spaces=(" ",))


def entities_of(sentences):
    """Return the entities of sentences as documents have them."""
    return [[(kind, start, stop) for kind, start, stop in sentence.entities] for sentence in sentences]


@pytest.fixture(scope="session")
def same_entities():
    """Return a check that sentences have the texts and the entities of documents."""

    def check(sentences, documents):
        assert [sentence.text for sentence in sentences] == [document.text for document in documents]
        assert entities_of(sentences) == [document.entities for document in documents]
        assert sum(map(len, entities_of(sentences))) > 50

    return check
