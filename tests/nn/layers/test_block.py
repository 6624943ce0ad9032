"""A layer of the encoder: the post-norm formula, sharing of sublayers, attention scores and operations."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, relu, silu

from unmask.nn.layers import linear
from unmask.nn.layers.block import ACTIVATIONS, Block, FeedForward, SelfAttention
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.rotary import Rotation
from unmask.support import panels

from .conftest import HEADS, tokens_of

WIDTH, INNER = HEADS * 8, 48


def build(activation="gelu", width=WIDTH, **spec):
    attention = SelfAttention(width, AttentionSpec(HEADS, 0.1, **spec))
    return Block(
        attention, LayerNorm(width, 1e-12), FeedForward(width, INNER, activation), LayerNorm(width, 1e-12), 0.1
    )


def sharing(block, *shared):
    """Return a layer that has these sublayers in common with another one."""
    other = build()
    parts = [
        getattr(block if name in shared else other, part)
        for name in ("attention", "feed_forward")
        for part in (name, f"{name}_norm")
    ]
    return Block(*parts, 0.1, shared=shared)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_block_is_the_post_norm_formula(activation):
    block, tokens = build(activation).eval().double(), tokens_of((3, 5, 5))
    x = torch.randn(13, WIDTH, dtype=torch.float64)
    formula = {"gelu": gelu, "gelu_tanh": lambda x: gelu(x, approximate="tanh"), "relu": relu, "silu": silu}[activation]
    middle = layer_norm(x + block.attention(x, tokens), (WIDTH,), eps=1e-12)
    inner = formula(middle @ block.feed_forward.up.weight.t() + block.feed_forward.up.bias)
    outer = inner @ block.feed_forward.down.weight.t() + block.feed_forward.down.bias
    torch.testing.assert_close(block(x, tokens), layer_norm(middle + outer, (WIDTH,), eps=1e-12))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [None, [0, 7]], ids=["all rows", "some rows"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_for_inference_a_block_computes_the_same_in_panels(activation, rows, dtype, monkeypatch):
    if not panels.multiplies(dtype):
        pytest.skip("there are no products in panels")
    width, bounds = HEADS * panels.WIDE, {"rtol": 1e-5, "atol": 1e-5}
    if dtype == torch.bfloat16:
        bounds = {"rtol": 0.05, "atol": 0.05}
    block, tokens, x = build(activation, width).eval().to(dtype), tokens_of((3, 5, 5)), torch.randn(13, width).to(dtype)
    with torch.no_grad():
        for name, weight in block.named_parameters():
            weight.copy_(torch.randn_like(weight) * (1 if "norm" in name else 0.2))
        rows = None if rows is None else torch.tensor(rows)
        expected = block(x, tokens, None, rows)
        for part in block.modules():
            part.keeps_packed = True
        monkeypatch.setattr(linear, "panels_multiply", lambda dtype: True)
        assert (block.in_panels() is not None) == (activation == "gelu")
        torch.testing.assert_close(block(x, tokens, None, rows), expected, **bounds)
        block.attention_norm.weight.mul_(2)
        block.feed_forward.up.weight.mul_(2)  # is packed again
        changed = block(x, tokens, None, rows)
        assert not changed.allclose(expected)
    torch.testing.assert_close(block(x, tokens, None, rows), changed, **bounds)  # with gradient


def test_dropout_applies_in_training_only():
    block, tokens, x = build(), tokens_of((3, 5, 5)), torch.randn(13, WIDTH)
    assert not block(x, tokens).equal(block(x, tokens))
    block.eval()
    assert block(x, tokens).equal(block(x, tokens))


def test_a_causal_block_does_not_see_later_tokens():
    block, tokens = build(causal=True).eval(), tokens_of((5,))
    x = torch.randn(5, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(block(x, tokens)[2].square().sum(), x)
    assert gradient.any(1).tolist() == [True] * 3 + [False] * 2


def test_shared_sublayers_have_no_parameters_of_their_own():
    block, tokens, x = build().eval(), tokens_of((3, 5, 5)), torch.randn(13, WIDTH)
    same = sharing(block, "attention", "feed_forward").eval()
    assert not list(same.parameters())
    assert same(x, tokens).equal(block(x, tokens))
    half = sharing(block, "feed_forward")
    assert {name.split(".")[0] for name in half.state_dict()} == {"attention", "attention_norm"}
    copies = copy.deepcopy(nn.ModuleList([block, half]))
    assert copies[1].feed_forward is copies[0].feed_forward
    assert copies[0].feed_forward is not block.feed_forward


def test_a_block_returns_its_attention_scores():
    block = build(rotation=Rotation()).eval()
    half = sharing(block, "attention").eval()
    tokens, x = tokens_of((3, 5, 5, 200)), torch.randn(213, HEADS * 8)
    for layer in (block, half):
        scores, expected = [], []
        torch.testing.assert_close(layer(x, tokens, scores), layer(x, tokens))
        block.attention(x, tokens, expected)
        assert len(scores) == 2
        assert all(one.equal(other) for one, other in zip(scores, expected, strict=True))
    assert sorted(name.rsplit(".", 1)[0] for name in block.state_dict() if name.endswith("weight")) == [
        *("attention.out", "attention.qkv", "attention_norm"),
        *("feed_forward.down", "feed_forward.up", "feed_forward_norm"),
    ]


def test_feed_forward_layers_have_the_inner_width():
    layer = FeedForward(WIDTH, INNER, "gelu")
    assert (layer.up.out_features, layer.down.in_features) == (INNER, INNER)
    assert layer(torch.randn(4, WIDTH)).shape == (4, WIDTH)
