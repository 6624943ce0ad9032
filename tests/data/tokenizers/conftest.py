"""Vocabularies, the texts that they are trained on and compared on, and the comparison with transformers."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.unigram import train_unigram

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s . 你 好 e ##t é".split()  # noqa: SIM905
BPE_TEXT = [
    "The dog sees the house near the sea, and the teacher likes the old bridge.",
    "Größe, naïve café; 彼得住在哪裡？ 😀 x=3.5% don't stop",
    "Привет, мир! Привет, дом! ภาษาไทย",
] * 20
REVIEWS = Path(__file__).resolve().parents[3] / "src" / "unmask" / "demo" / "reviews"
UNIGRAM_TEXT = [line for path in sorted(REVIEWS.glob("*.tsv")) for line in path.read_text(encoding="utf8").splitlines()]


@pytest.fixture
def directory(tmp_path):
    """A directory with a WordPiece vocabulary of these tokens."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="session")
def bpe():
    """A trained byte-level BPE."""
    return train_bpe(BPE_TEXT, size=500)


@pytest.fixture(scope="session")
def unigram():
    """A trained unigram vocabulary."""
    return train_unigram(UNIGRAM_TEXT, size=600)


@pytest.fixture(scope="session")
def same_ids():
    """A function that asserts that two tokenizers, ours and one of transformers, return the same ids."""

    def compare(ours, theirs, texts):
        for text in texts:
            assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False), text

    return compare


@pytest.fixture(scope="session")
def mixed_lines(shared, request):
    """Raw lines: English and Chinese articles, passages and questions in Spanish, Arabic and German.

    There are over 10,000 of them; without --exhaustive it is every eighth.
    """
    found, number = [], 3400
    for path in ("text/wikipedia/heldout.jsonl.xz", "text/chinese", "text/wikinews/heldout.jsonl.xz"):
        place = shared / "data" / path
        files = sorted(place.glob("*.jsonl*")) if place.is_dir() else [place]
        lines = []
        for file in files:
            opened = {".xz": lzma.open, ".gz": gzip.open}.get(file.suffix, open)
            with opened(file, "rt", encoding="utf8") as stream:
                for line in stream:
                    lines += [one for one in json.loads(line)["text"].split("\n") if one.strip()]
                    if len(lines) > number:
                        break
        found += lines[:number]
    for language in ("es", "ar", "de"):
        with lzma.open(shared / f"data/qa/xquad/xquad.{language}.json.xz", "rt", encoding="utf8") as stream:
            for article in json.load(stream)["data"]:
                for paragraph in article["paragraphs"]:
                    found += [paragraph["context"], *(asked["question"] for asked in paragraph["qas"])]
    assert len(found) > 10_000
    return found if request.config.getoption("--exhaustive") else found[::8]
