"""ELMo's convolutions over characters: equal to a plain computation over all positions; distinct words once."""

import pytest
import torch

from unmask.data.tokenizers.words import BEGIN_WORD, CHARACTERS, END_WORD, PADDING
from unmask.nn.encoders import two_lms
from unmask.nn.encoders.two_lms import CharacterCnn, distinct

LONGEST = 12
FILTERS = [(1, 3), (2, 5), (4, 6)]


def word(text):
    ids = [BEGIN_WORD, *text.encode(), END_WORD]
    return ids + [PADDING] * (LONGEST - len(ids))


def new_layer(activation="relu"):
    torch.manual_seed(0)
    layer = CharacterCnn(5, FILTERS, 2, 7, activation).double()
    for parameter in layer.parameters():
        parameter.data.normal_()
    return layer


WORDS = torch.tensor([word(text) for text in ("of", "", "fish", "of", "ten-letters"[:10], "é", "fish", "fishes")])


def plain(layer, ids):
    """Convolve all positions of every word."""
    x = layer.characters(ids).transpose(1, 2)  # (words, width, positions)
    rows = []
    for (size, number), own in zip(FILTERS, layer.filters, strict=True):
        weight = own.weight.view(number, -1, size)
        rows.append(torch.nn.functional.conv1d(x, weight, own.bias).max(2).values)
    x = layer.activation(torch.cat(rows, 1))
    for highway in layer.highways:
        gate = highway.gate(x).sigmoid()
        x = gate * highway.transform(x).relu() + (1 - gate) * x
    return layer.project(x)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("chunk", [2, 512])
def test_vectors_and_gradients_equal_those_of_all_positions(monkeypatch, activation, chunk):
    monkeypatch.setattr(two_lms, "CHUNK", chunk)
    layer = new_layer(activation)
    found = []
    for run in (layer, lambda ids: plain(layer, ids)):
        vectors = run(WORDS)
        grads = torch.autograd.grad(
            (vectors * torch.arange(vectors.numel()).view_as(vectors).cos()).sum(), layer.parameters()
        )
        found.append((vectors, *grads))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_the_comparison_notices_a_planted_fault(monkeypatch):
    monkeypatch.setattr(two_lms, "distinct", lambda ids: (torch.arange(len(ids)), torch.arange(len(ids)).flip(0)))
    with pytest.raises(AssertionError):
        test_vectors_and_gradients_equal_those_of_all_positions(monkeypatch, "tanh", 512)


def test_distinct_words_are_computed_once(monkeypatch):
    layer, computed = new_layer(), []
    layer.highways[0].register_forward_hook(lambda module, inputs, output: computed.append(len(output)))
    vectors = layer(WORDS)
    assert computed == [6]
    assert torch.equal(vectors[0], vectors[3])
    assert not torch.equal(vectors[0], vectors[1])


def test_distinct_rows_represent_all_rows():
    rows = torch.randint(0, 2, (200, 4))
    first, number = distinct(rows)
    assert len(first) == len({tuple(row) for row in rows.tolist()})
    assert torch.equal(rows[first][number], rows)
    assert [len(part) for part in distinct(rows[:0])] == [0, 0]


def test_ids_are_the_bytes_and_five_more():
    assert CHARACTERS == PADDING + 1 == 261
