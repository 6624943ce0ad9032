"""Tests of the sample of texts in a corpus: uniform, bounded, and the same however the corpus was built."""

import json
from collections import Counter

import pytest

from unmask.data.corpus import sample as module
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.mix import write_mixture
from unmask.data.corpus.sample import CHARACTERS, DocumentSampler, SampledText, read_sample
from unmask.data.text.documents import SourceText
from unmask.support.errors import UserError


def sampled(number):
    sampler = DocumentSampler()
    watched = list(sampler.watch(("train", SourceText(f"{index}")) for index in range(number)))
    assert watched == [("train", f"{index}") for index in range(number)]
    return [int(text.text) for _, text in sorted(sampler._kept, key=lambda item: item[0])]


def test_small_corpora_are_kept_whole():
    assert sampled(7) == list(range(7))


def test_the_sample_is_uniform_and_in_order(monkeypatch):
    monkeypatch.setattr(module, "MOST", 5)
    counts = Counter()
    for seed in range(1000):
        monkeypatch.setattr(module.random, "Random", lambda _, seed=seed: Seeded(seed))
        chosen = sampled(20)
        assert len(chosen) == 5 and chosen == sorted(chosen)
        counts.update(chosen)
    expected = 1000 * 5 / 20
    chi_square = sum((counts[index] - expected) ** 2 / expected for index in range(20))
    assert chi_square < 44  # 19 degrees of freedom: above in one of 1,000 cases


class Seeded(module.random.Random):
    """A generator with another seed than the sampler's."""


def test_held_out_documents_are_not_sampled_and_long_ones_are_cut(tmp_path):
    sampler = DocumentSampler()
    url = "https://example.org/" + "x" * 2000
    list(sampler.watch([("heldout", SourceText("held")), ("train", SourceText("y" * 20_000, url))]))
    sampler.save(tmp_path)
    assert read_sample(tmp_path) == [SampledText("y" * CHARACTERS, url[:1000])]


def test_a_corpus_has_texts_and_addresses(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    lines = [{"text": f"The cat number {index}.", "url": f"https://a.example/{index}"} for index in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"text": "a mat", "url": 7}]))
    corpus = write_corpus([path], tokenizer, tmp_path / "corpus", heldout=None)
    texts = read_sample(corpus.directory)
    assert texts == [*(SampledText(**line) for line in lines), SampledText("a mat")]
    (corpus.directory / module.NAME).unlink()
    assert read_sample(corpus.directory) == []


def test_D8_a_damaged_sample_is_named(tmp_path):
    (tmp_path / module.NAME).write_text('{"text": 1}\n')
    with pytest.raises(UserError, match=r"sample.jsonl.*damaged"):
        read_sample(tmp_path)


def test_mixtures_have_texts_of_each_corpus(tmp_path, tokenizer, make_documents):
    corpora = []
    for number, size in enumerate((40, 60)):
        path = tmp_path / f"{number}.jsonl"
        lines = [{"text": text, "url": f"https://{number}.example"} for text in make_documents(size, seed=number)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        corpora.append(write_corpus([path], tokenizer, tmp_path / f"corpus-{number}"))
    mixture = write_mixture(corpora, [0.5, 0.5], tmp_path / "mixture")
    texts = read_sample(mixture.directory)
    counts = Counter(text.url for text in texts)
    assert set(texts) <= set(read_sample(corpora[0].directory)) | set(read_sample(corpora[1].directory))
    assert len(texts) > 50 and 0.4 < counts["https://0.example"] / len(texts) < 0.6
    (corpora[0].directory / module.NAME).unlink()
    assert read_sample(write_mixture(corpora, [0.5, 0.5], tmp_path / "other").directory) == []
