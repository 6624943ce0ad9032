"""The interface of kernels: biases on the scores, windows, and defaults without dropout, rotation, bias or limits."""

import pytest
import torch
from torch import nn

from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.fused_attention import fused, varlen
from unmask.nn.layers.plain_attention import AttentionSpec, plain

from .conftest import HEADS, tokens_of


class Distances(nn.Module):
    """A bias as in T5: a number for each head and distance."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2 * 64, HEADS)

    def forward(self, query, key, tokens, group):
        positions = torch.arange(group.longest)
        return self.table(positions[:, None] - positions + 64).permute(2, 0, 1)  # (heads, longest, longest)


def test_a_bias_is_added_to_scaled_scores():
    layer = SelfAttention(HEADS * 8, AttentionSpec(HEADS, 0.0, bias=Distances().double())).double()
    tokens, scores, without = tokens_of((3, 5, 5)), [], []
    x = torch.randn(13, HEADS * 8, dtype=torch.float64)
    out = layer(x, tokens, scores)
    assert out.equal(layer(x, tokens)), "a bias selects the plain kernel"
    plain(layer.qkv(x), tokens, AttentionSpec(HEADS), without)
    real = tokens.groups[0].real
    both = (real[:, None, :, None] & real[:, None, None]).expand_as(scores[0])
    added = (scores[0] - without[0])[both]
    torch.testing.assert_close(added, layer.spec.bias(None, None, None, tokens.groups[0]).expand_as(both)[both])
    (gradient,) = torch.autograd.grad(out.sum(), layer.spec.bias.table.weight)
    assert gradient.any()


def test_a_bias_may_read_the_queries_and_the_tokens():
    """As in XLNet: a term that depends on the queries and segments."""
    seen = []

    def bias(query, key, tokens, group):
        seen.append((query.shape, tokens.segments.shape))
        return query.sum(-1, keepdim=True).expand(-1, -1, -1, group.longest)

    tokens = tokens_of((3, 5, 5, 200))
    qkv = torch.randn(213, 3 * HEADS * 8)
    biased = plain(qkv, tokens, AttentionSpec(HEADS, bias=bias))
    assert seen == [((3, HEADS, 5, 8), (213,)), ((1, HEADS, 200, 8), (213,))]
    torch.testing.assert_close(biased, plain(qkv, tokens, AttentionSpec(HEADS)))  # the same for every key
    for kernel in (fused, varlen):
        with pytest.raises(AssertionError):
            kernel(qkv, tokens, AttentionSpec(HEADS, bias=bias))


def test_by_default_attention_is_bidirectional_without_dropout():
    assert AttentionSpec(HEADS) == AttentionSpec(
        HEADS, dropout=0.0, causal=False, rotation=None, bias=None, window=None
    )
    tokens, qkv = tokens_of((5,)), torch.randn(5, 3 * HEADS * 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(plain(qkv, tokens, AttentionSpec(HEADS))[0].sum(), qkv)
    assert gradient.any(1).tolist() == [True] * 5, "the first token depends on all tokens"
    (gradient,) = torch.autograd.grad(plain(qkv, tokens, AttentionSpec(HEADS, causal=True))[0].sum(), qkv)
    assert gradient.any(1).tolist() == [True] + [False] * 4


def test_the_window_and_causality_limit_distances():
    distances = torch.arange(-3, 4)  # key minus query
    for causal, window, expected in (
        (False, None, "1111111"),
        (True, None, "1111000"),
        (False, 2, "0111110"),
        (True, 2, "0111000"),
        (False, 0, "0001000"),
    ):
        spec = AttentionSpec(HEADS, causal=causal, window=window)
        assert "".join(str(int(one)) for one in spec.attends(distances)) == expected
        assert spec.limited == (expected != "1111111")


def test_outputs_depend_on_the_tokens_in_the_window():
    tokens, qkv = tokens_of((7,)), torch.randn(7, 3 * HEADS * 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(plain(qkv, tokens, AttentionSpec(HEADS, window=2))[3].sum(), qkv)
    assert gradient.any(1).tolist() == [False] + [True] * 5 + [False]
