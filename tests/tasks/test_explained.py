"""Words, decisions and marks of explanations."""

import numpy as np
import pytest
import torch
from scipy.special import logit, softmax

from unmask.data.tokenizers.load import load_tokenizer
from unmask.tasks.classification import Prediction
from unmask.tasks.explained import Contribution, Decision, Explanation, describe, mark_words, split_words
from unmask.tasks.tagged import Tagged

PARTS = [
    "the",
    "dog",
    "unbelievable",
    "naïve",
    "it's",
    "well-known",
    "A1",
    "42",
    "…",
    "🐕",
    "我爱你",
    "ありがとう",
    "(x)",
    " ",
    "\t",
]


def explained(*contributions, text=0):
    words = [Contribution(start, end, value, text) for start, end, value in contributions]
    return Explanation("x", 1.0, words)


def test_log_odds_are_those_of_the_probability():
    rng = np.random.default_rng(0)
    for _ in range(60):
        temperature, classes = rng.uniform(0.3, 3), int(rng.integers(2, 9))
        logits = rng.normal(0, 3, (2, 3, classes))
        target, output = int(rng.integers(3)), int(rng.integers(classes))
        expected = logit(softmax(logits / temperature, -1)[:, target, output])
        decision = Decision(target, output, "x", exclusive=True, temperature=temperature)
        found = decision.value(torch.from_numpy(logits))
        assert found.numpy() == pytest.approx(expected, abs=1e-8)
        shifted = decision.value(torch.from_numpy(logits + 5))
        assert shifted.numpy() == pytest.approx(expected, abs=1e-8), "a constant added to all logits changes nothing"
        alone = Decision(target, output, "x", exclusive=False, temperature=temperature)
        assert alone.value(torch.from_numpy(logits)).numpy() == pytest.approx(logits[:, target, output] / temperature)


def test_log_odds_of_a_certain_label_are_finite():
    value = Decision(0, 0, "x", exclusive=True).value(torch.tensor([[200.0, -300.0]]))
    assert value.item() == 500


def test_words_of_wordpiece_are_those_of_its_pre_tokenizer(tokenizer):
    rng = np.random.default_rng(0)
    for _ in range(60):
        parts = rng.choice([part for part in PARTS if part not in ("ありがとう",)], rng.integers(0, 8))
        text = " ".join(parts)
        spans, index = split_words(tokenizer, text)
        ids, offsets = tokenizer.encode_offsets(text)
        library = tokenizer._library
        normal = library.normalizer.normalize_str(text)
        assert len(spans) == len(library.pre_tokenizer.pre_tokenize_str(normal))
        assert len(index) == len(ids) and index.tolist() == sorted(index.tolist())
        for (start, end), word in zip(offsets, index, strict=True):
            assert spans[word][0] <= start <= end <= spans[word][1]


@pytest.mark.parametrize("name", ["bert-base-chinese", "gpt2", "roberta-base-hf", "albert-v1v2-en"])
def test_words_cover_the_text_without_its_spaces(name, shared):
    tokenizer, rng = load_tokenizer(shared / "vocabularies" / name), np.random.default_rng(1)
    for _ in range(60):
        text = " ".join(rng.choice(PARTS, rng.integers(1, 8)))
        spans, index = split_words(tokenizer, text)
        assert np.array_equal(np.unique(index), np.arange(len(spans)))
        shown = [span for span in spans if span[0] < span[1]]
        assert shown == sorted(shown)
        assert all(text[start:end] == text[start:end].strip() for start, end in shown)
        if name != "bert-base-chinese":  # which drops control characters, and what it does not know is one token
            covered = {at for start, end in shown for at in range(start, end)}
            assert covered == {at for at, character in enumerate(text) if character.strip()}


def test_unspaced_scripts_have_several_words(shared):
    tokenizer = load_tokenizer(shared / "vocabularies/gpt2")
    assert split_words(tokenizer, "我爱你 dog")[0] == [(0, 1), (1, 2), (2, 3), (4, 7)]
    multilingual = load_tokenizer(shared / "vocabularies/bert-base-multilingual-cased")  # ##ู่ is a token of it
    assert split_words(multilingual, "อยู่ใน dog")[0] == [(0, 1), (1, 4), (4, 6), (7, 10)]


def test_marks_are_around_the_words_that_contribute_most():
    found = explained((0, 3, 0.1), (4, 7, -2.0), (8, 12, 0.5), (12, 13, 0.49))
    assert mark_words(["not bad film."], found) == "not [-bad-] {+film+}."
    assert mark_words(["not bad film."], explained((0, 3, 0.0))) == "not bad film."
    assert mark_words(["a b"], explained()) == "a b"


def test_marks_of_a_pair_are_in_both_texts():
    words = [Contribution(0, 1, 1.0), Contribution(0, 1, -1.0, 1)]
    assert mark_words(["a b", "a c"], Explanation("x", 0.0, words)) == "{+a+} b\t[-a-] c"


def test_a_line_says_what_is_explained():
    words = [Contribution(0, 1, 1.0), Contribution(0, 1, -1.0, 1)]
    pair = Prediction("a b", "yes", {}, "a c")
    assert describe(pair, Explanation("yes", 0.0, words)) == "yes: {+a+} b\t[-a-] c"
    assert describe(Tagged("a b", []), Explanation("B-X", 0.0, words[:1], 2, 3)) == "B-X b: {+a+} b"
