"""Small corpora: documents of few distinct words, in many small shards."""

import json

import numpy as np
import pytest

from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece

WORDS = ["你", "好", "the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "away", "dog", "house"]


@pytest.fixture(scope="session")
def make_documents():
    """A function that returns documents of one to six sentences."""

    def make(count, seed=0):
        draw = np.random.default_rng(seed)
        return [
            " ".join(
                " ".join(draw.choice(WORDS, draw.integers(2, 9))).capitalize() + "." for _ in range(draw.integers(1, 7))
            )
            for _ in range(count)
        ]

    return make


@pytest.fixture(scope="session")
def tokenizer():
    """A vocabulary of the words of these documents."""
    return train_wordpiece([" ".join(WORDS) + " . #"] * 3, size=120)


@pytest.fixture
def source(tmp_path, make_documents):
    """300 documents as JSON Lines."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(300)))
    return path


@pytest.fixture
def built(source, tokenizer, tmp_path):
    """A corpus of about ten shards."""
    return write_corpus([source], tokenizer, tmp_path / "corpus", shard_tokens=2000)


@pytest.fixture(scope="session")
def files_of():
    """A function that returns the content of each file in a folder."""

    def files(directory):
        return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    return files


@pytest.fixture(scope="session")
def texts_of():
    """A function that returns the text of each sentence of each document."""

    def texts(documents, tokenizer):
        return [[tokenizer.decode(ids) for ids in documents.sentences(index)] for index in range(len(documents))]

    return texts
