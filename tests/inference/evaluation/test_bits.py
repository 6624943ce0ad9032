"""Bits per character: the sum over tokens, pieces of documents, text outside the vocabulary, and files."""

import math

import numpy as np
import pytest
import torch

from unmask.data.text.documents import TextOptions
from unmask.families.gpt import GptSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation import language_models as module
from unmask.inference.evaluation.language_models import cut, document_bits, evaluate_bits, read_texts
from unmask.inference.evaluation.likelihood import Likelihood, TokenizedText
from unmask.model.model import Model
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display

QUIET = Display(quiet=True)


@pytest.fixture
def likelihood(tokenizer):
    torch.manual_seed(0)
    encoder = GptSettings(layers=1, width=16, heads=2, positions=24, dropout=0.0, init_std=0.3).build(tokenizer.size)
    tokenizer.summary = "extract"
    yield Likelihood(TorchBackend(Model(encoder, tokenizer, {"causal_lm": {}}), choose_machine("cpu", "float32")))
    tokenizer.summary = "first"


@pytest.mark.parametrize("length", [0, 1, 21, 22, 23, 44, 45, 1000])
def test_pieces_are_nearly_equal(length):
    text = TokenizedText(np.arange(length), np.arange(length) // 2)
    pieces = cut(text, 22)
    sizes = [len(piece.ids) for piece in pieces]
    assert len(pieces) == math.ceil(length / 22)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert [*np.concatenate([[], *(piece.ids for piece in pieces)])] == [*text.ids]
    assert all((piece.words == piece.ids // 2).all() for piece in pieces)


def test_bits_are_summed_over_pieces_and_divided_by_characters(likelihood, documents):
    chosen = documents[:60]
    result = evaluate_bits(likelihood, chosen, QUIET)
    total = 0.0
    for text in likelihood.encode(chosen):
        total -= sum(values.sum() for values in likelihood(cut(text, 22))) / math.log(2)
    characters = sum(map(len, chosen))
    assert result["metrics"]["bits_per_character"] == pytest.approx(total / characters)
    assert result["metrics"]["bits_per_token"] == pytest.approx(total / result["tokens"])
    assert (result["characters"], result["unknown"], result["examples"]) == (characters, 0, 60)
    low, high = result["intervals"]["bits_per_character"]
    assert low < result["metrics"]["bits_per_character"] < high
    assert result["notes"] == ["the tokenizer is uncased: the case of letters is not predicted"]


def test_the_length_of_pieces_is_bounded(likelihood, documents, monkeypatch):
    monkeypatch.setattr(module, "CONTEXT", 10)
    (text,) = likelihood.encode(documents[:1])
    expected = -sum(values.sum() for values in likelihood(cut(text, 8))) / math.log(2)
    assert document_bits(likelihood, documents[:1], QUIET).bits == pytest.approx([expected])


def test_text_outside_the_vocabulary_costs_8_bits_a_byte(likelihood):
    plain, unknown = "the dog", "the \u4e00 dog \U0001f600\U0001f600"
    found = document_bits(likelihood, [plain, unknown], QUIET)
    values = [likelihood(likelihood.encode([text]))[0] for text in (plain, unknown)]
    bits = [-each.sum() / math.log(2) for each in values]
    assert found.bits == pytest.approx([bits[0], bits[1] + 8 * (3 + 8)])
    assert found.unknown.tolist() == [0, 2]
    note = "2 of 6 tokens are outside the vocabulary, with 8 bits more for each byte"
    assert note in evaluate_bits(likelihood, [plain, unknown], QUIET)["notes"]


def test_each_byte_of_unknown_words_is_charged_in_generated_texts(likelihood, documents):
    """A word of the vocabulary's characters is known; one with a Greek letter is not, nor is any Chinese character."""
    rng = np.random.default_rng(0)
    texts, expected = [], []
    for text in documents[:60]:
        words, unknown = text.split(), ["do\u03bb", "\u4e00", "\u03b1\u03b2g", "\U0001f600"]
        chosen = [unknown[index] for index in rng.integers(0, 4, rng.integers(0, 6))]
        for word in chosen:
            words.insert(int(rng.integers(0, len(words) + 1)), word)
        texts.append(" ".join(words))
        expected.append((len(chosen), sum(len(word.encode()) for word in chosen)))
    found = document_bits(likelihood, texts, QUIET)
    assert found.unknown.tolist() == [number for number, _ in expected]
    plain = [
        -sum(values.sum() for values in likelihood(cut(text, 22))) / math.log(2) for text in likelihood.encode(texts)
    ]
    assert found.bits - plain == pytest.approx([8 * size for _, size in expected], abs=1e-2)
    assert sum(number for number, _ in expected) > 100


def test_documents_without_tokens(likelihood):
    found = document_bits(likelihood, ["\x7f", "the dog"], QUIET)
    assert found.tokens.tolist() == [0, 2]
    assert found.bits[0] == 0
    with pytest.raises(UserError, match="no tokens"):
        evaluate_bits(likelihood, ["\x7f"], QUIET)


def test_documents_are_limited_and_skipped_ones_noted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"title": "two"}\n{"text": "three"}\n{"text": "four"}\n')
    documents, notes = read_texts([path], TextOptions(), 2)
    assert documents == ["one", "three"]
    skipped, remedy = notes
    assert skipped.startswith("skipped: 1 document: ")
    assert f"{path}:2: no field 'text'" in skipped
    assert remedy.startswith("to read the first skipped document: ")
    assert read_texts([path], TextOptions())[0] == ["one", "three", "four"]
    with pytest.raises(UserError, match="has no effect"):
        read_texts([path], TextOptions(documents="file"))
