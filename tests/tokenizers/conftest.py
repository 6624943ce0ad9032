"""Lines to compare vocabularies on, and the comparison."""

import gzip
import json
import lzma

import pytest


@pytest.fixture(scope="session")
def same_ids():
    """Assert that two tokenizers, ours and one of transformers, give the same ids."""

    def compare(ours, theirs, texts):
        for text in texts:
            assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False), text

    return compare


@pytest.fixture(scope="session")
def mixed_lines(shared):
    """Over 10,000 lines, raw: English and Chinese articles, passages and questions in Spanish, Arabic and German."""
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
    return found
