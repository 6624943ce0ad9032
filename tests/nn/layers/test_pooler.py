"""The pooler: a dense layer with each activation; ModernBERT's is normalized."""

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from unmask.nn.layers.pooler import ACTIVATIONS, NormedPooler, Pooler

EXPECTED = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "relu": lambda x: x.clamp(min=0),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_pooled_vectors_are_activations_of_a_dense_layer(activation):
    pooler, rows = Pooler(16, activation), torch.randn(5, 16)
    dense = rows @ pooler.weight.t() + pooler.bias
    torch.testing.assert_close(pooler(rows), EXPECTED[activation](dense))


def test_tanh_is_the_default():
    pooler, rows = Pooler(16), 100 * torch.randn(5, 16)
    assert pooler.activation == "tanh"
    assert pooler(rows).abs().max() <= 1
    assert list(pooler.state_dict()) == ["weight", "bias"]


def test_the_normed_pooler_has_no_biases():
    pooler, rows = NormedPooler(16, 1e-5), torch.randn(5, 16)
    torch.nn.init.normal_(pooler.norm.weight)
    assert list(pooler.state_dict()) == ["dense.weight", "norm.weight"]
    expected = layer_norm(gelu(rows @ pooler.dense.weight.t()), (16,), pooler.norm.weight, eps=1e-5)
    torch.testing.assert_close(pooler(rows), expected)
