"""Influence is the change of a word's vector when another word is left out."""

import numpy as np
import pytest
import torch

from unmask.data.labelled.tagged_sentence import split_text
from unmask.families.gpt import GptSettings
from unmask.inference.influence import _without
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.support.errors import UserError

from .conftest import CPU

TEXT = "the dog sees the teacher"


def vectors(predictor, text):
    """Return the vector of each word of a text, by `features`."""
    found = predictor.features(text)
    return [found.values[found.word_ids == word, 0].mean(0) for word in range(len(text.split()))]


def test_influence_is_the_change_of_the_vector(make):
    predictor = Predictor(make(), CPU)
    influence, words = predictor.influence(TEXT), TEXT.split()
    assert [TEXT[start:end] for start, end in influence.words] == words
    whole = vectors(predictor, TEXT)
    for left_out in range(len(words)):
        others = [index for index in range(len(words)) if index != left_out]
        shorter = vectors(predictor, " ".join(words[index] for index in others))
        for index, vector in zip(others, shorter, strict=True):
            expected = 1 - torch.cosine_similarity(whole[index], vector, dim=0).item()
            assert influence.change[index, left_out] == pytest.approx(expected, abs=1e-5)
    assert np.diag(influence.change).tolist() == [0] * len(words)
    assert influence.change.max() > 0.01


def test_a_causal_model_is_influenced_by_earlier_words_alone(tokenizer):
    torch.manual_seed(0)
    settings = GptSettings(layers=2, width=16, heads=2, positions=32, init_std=0.3)
    predictor = Predictor(Model(settings.build(tokenizer.size), tokenizer), CPU)
    change = predictor.influence(TEXT).change
    assert np.triu(change, 1).max() < 1e-6
    assert change.max() > 0.01
    assert predictor.influence(TEXT, layer=0).change.max() > 0, "positions are in the embeddings"


@pytest.mark.parametrize(
    ("text", "index", "shorter", "words"),
    [
        ("The cat sat.", 0, "cat sat.", ["cat", "sat", "."]),
        ("The cat sat.", 2, "The cat.", ["The", "cat", "."]),
        ("  The cat sat.", 3, "  The cat sat", ["The", "cat", "sat"]),
        ("a well-known cat", 2, "a well known cat", ["a", "well", "known", "cat"]),
        ("我爱你", 1, "我你", ["我", "你"]),
    ],
)
def test_words_are_left_out_of_the_text(text, index, shorter, words):
    found, spans = _without(split_text(text), index)
    assert found == shorter
    assert [found[start:end] for start, end in spans] == words


def test_one_word_has_no_other_and_long_texts_are_refused(make):
    predictor = Predictor(make(), CPU)
    with pytest.raises(UserError, match="fewer than two"):
        predictor.influence(" dog ")
    with pytest.raises(UserError, match="at most 32"):
        predictor.influence("dog " * 31)
    with pytest.raises(UserError, match="no layer 3"):
        predictor.influence(TEXT, layer=3)
