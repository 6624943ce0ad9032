"""The n-gram model beside ELMo: NLTK's probabilities, sums of 1, and the benchmark at toy size."""

import numpy as np
import pytest

import unmask

WORDS, BEGIN, END = 9, 7, 8


@pytest.fixture
def sentences():
    rng = np.random.default_rng(0)
    return [rng.choice(6, rng.integers(1, 8), p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.05]) for _ in range(60)]


def contexts(ids, order):
    """Return each word of a sentence, and its end, behind the words before it, as NLTK wants them."""
    marked = [str(id) for id in [*[BEGIN] * (order - 1), *ids, END]]
    return [tuple(marked[at - order + 1 : at + 1]) for at in range(order - 1, len(marked))]


def test_probabilities_are_nltks(benchmark_module, sentences):
    nltk = pytest.importorskip("nltk.lm")
    module = benchmark_module("ngram")
    train, heldout = sentences[:45], sentences[45:]
    theirs = nltk.KneserNeyInterpolated(module.ORDER, discount=0.6)
    ngrams = [
        gram[-order:] for ids in train for gram in contexts(ids, module.ORDER) for order in range(1, module.ORDER + 1)
    ]
    theirs.fit([ngrams], vocabulary_text=map(str, range(WORDS)))
    expected = [theirs.unmasked_score(gram[-1], gram[:-1]) for ids in heldout for gram in contexts(ids, module.ORDER)]
    ours = module.KneserNey(module.Text(train, BEGIN, END), WORDS, discount=0.6)
    found = ours.probabilities(module.Text(heldout, BEGIN, END))
    np.testing.assert_allclose(found, expected)
    assert 0 < found.min() < found.max() < 1


def test_probabilities_sum_to_1(benchmark_module, sentences):
    module = benchmark_module("ngram")
    model = module.KneserNey(module.Text(sentences, BEGIN, END), WORDS)
    assert len({tuple(discounts) for discounts in model.discounts}) > 1, "they are estimated"
    for ids in ([0, 1, 2, 0], [5, 5, 5, 5, 4]):
        asked = [module.Text([[*ids, last]], BEGIN, END) for last in range(WORDS)]
        of_last = [model.probabilities(text)[len(ids)] for text in asked]
        assert sum(of_last) == pytest.approx(1)


@pytest.mark.exhaustive
def test_the_benchmark_runs_at_toy_size(benchmark_module, records, text_file, tmp_path):
    small = {"encoder.width": 32, "encoder.cells": 64, "encoder.filters": [[3, 32]], "tokenizer.vocabulary": 300}
    streams = {"layout.streams": 8, "batch.sequences": 8, "budget.steps": 2}
    run = tmp_path / "run"
    unmask.pretrain("elmo-mini", text=text_file, out=run, settings={**small, **streams}, quiet=True)
    benchmark_module("ngram").measure(run, [text_file])
    found = records("ngram")
    assert {(one["engine"], one["text"]) for one in found} == {
        ("family/elmo", "read"),
        ("5-gram", "read"),
        ("5-gram", "all"),
    }
    assert {one["direction"] for one in found} == {"forward", "backward"}
    assert all(1 < one["perplexity"] < 2 * one["words"] for one in found)
