"""A layer of ModernBERT: the pre-norm formula, its first and last layer, dropout, scores and operations."""

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from unmask.nn.layers import linear
from unmask.nn.layers.block import ACTIVATIONS, FeedForward, GatedFeedForward, PreNormBlock, SelfAttention
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.rotary import Rotation
from unmask.support import panels

from .conftest import HEADS, tokens_of

WIDTH, INNER = HEADS * 8, 40


def build(*, first=False, last=False, window=None, width=WIDTH, between=None):
    def norm(present=True):
        return LayerNorm(width, 1e-5, bias=False) if present else None

    spec = AttentionSpec(HEADS, 0.1, rotation=Rotation(), window=window)
    attention = SelfAttention(width, spec, biased=False)
    between = GatedFeedForward(width, INNER, 0.1, "gelu") if between is None else between
    return PreNormBlock(norm(not first), attention, norm(), between, norm(last), 0.1)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_a_block_is_the_pre_norm_formula(first, last):
    block, tokens = build(first=first, last=last).eval().double(), tokens_of((3, 5, 5))
    for name, value in block.named_parameters():
        torch.nn.init.normal_(value, float("norm" in name), 0.3)
    x = torch.randn(13, WIDTH, dtype=torch.float64)

    def norm(x, part):
        return layer_norm(x, (WIDTH,), getattr(block, part).weight, eps=1e-5)

    middle = x + block.attention(x if first else norm(x, "attention_norm"), tokens)
    inner, gate = (norm(middle, "feed_forward_norm") @ block.feed_forward.up.weight.t()).split(INNER, 1)
    outer = middle + (gelu(inner) * gate) @ block.feed_forward.down.weight.t()
    torch.testing.assert_close(block(x, tokens), norm(outer, "final_norm") if last else outer)
    names = {name for name in block.state_dict() if "norm" in name}
    expected = {f"{name}_norm.weight" for name in ["attention"] * (not first) + ["feed_forward"] + ["final"] * last}
    assert names == expected, "no norm has a bias"
    assert not any("bias" in name for name in block.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [None, [0, 7]], ids=["all rows", "some rows"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("kind", "inner"),
    [(GatedFeedForward, 48), (GatedFeedForward, 40), (FeedForward, 48)],
    ids=["gated", "odd", "plain"],
)
def test_for_inference_a_block_computes_the_same_in_panels(kind, inner, activation, last, rows, dtype, monkeypatch):
    if not panels.multiplies(dtype):
        pytest.skip("there are no products in panels")
    width, bound = HEADS * panels.WIDE, 1e-5 if dtype == torch.float32 else 0.05
    between = kind(width, inner, *([0.1] if kind is GatedFeedForward else []), activation)
    block = build(last=last, width=width, between=between).eval().to(dtype)
    tokens, x = tokens_of((3, 5, 5)), torch.randn(13, width).to(dtype)
    with torch.no_grad():
        for name, weight in block.named_parameters():
            weight.copy_(torch.randn_like(weight) * (1 if "norm" in name else 0.2))
        rows = None if rows is None else torch.tensor(rows)
        expected = block(x, tokens, None, rows)
        for part in block.modules():
            part.keeps_packed = True
        monkeypatch.setattr(linear, "panels_multiply", lambda dtype: True)
        assert (block.in_panels() is not None) == (activation == "gelu" and inner == 48)
        torch.testing.assert_close(block(x, tokens, None, rows), expected, rtol=bound, atol=bound)
    torch.testing.assert_close(block(x, tokens, None, rows), expected, rtol=bound, atol=bound)  # with gradient


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_first_half_is_activated_and_the_second_is_the_gate(activation):
    layer, x = GatedFeedForward(WIDTH, INNER, 0.0, activation), torch.randn(4, WIDTH)
    assert (layer.up.out_features, layer.down.in_features) == (2 * INNER, INNER)
    inner, gate = layer.up(x)[:, :INNER], layer.up(x)[:, INNER:]
    torch.testing.assert_close(layer(x), layer.down(ACTIVATIONS[activation]()(inner) * gate))


def test_tokens_attend_to_the_window():
    block, tokens = build(window=1).eval(), tokens_of((7,))
    x = torch.randn(7, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(block(x, tokens)[3].sum(), x)
    assert gradient.any(1).tolist() == [False, False, True, True, True, False, False]


def test_dropout_applies_in_training_only():
    block, tokens, x = build(), tokens_of((3, 5, 5)), torch.randn(13, WIDTH)
    assert not block(x, tokens).equal(block(x, tokens))
    block.eval()
    assert block(x, tokens).equal(block(x, tokens))
    layer = GatedFeedForward(WIDTH, INNER, 0.5, "gelu")
    assert not layer(x).equal(layer(x))


def test_a_block_returns_its_attention_scores():
    block = build(window=2).eval()
    tokens, x, scores = tokens_of((3, 5, 5, 200)), torch.randn(213, WIDTH), []
    torch.testing.assert_close(block(x, tokens, scores), block(x, tokens))
    assert [tuple(one.shape) for one in scores] == [(3, HEADS, 5, 5), (1, HEADS, 200, 200)]
    assert not scores[1][..., 0, 3:].any(), "tokens outside the window"
