"""The kernel for a single sequence: it equals the plain kernel, and is chosen where it supports the inputs."""

import pytest
import torch

from unmask.layers.attention import choose_kernel
from unmask.layers.attention_spec import AttentionSpec
from unmask.layers.fused_attention import fused
from unmask.layers.plain_attention import plain
from unmask.layers.single_attention import is_single, single

from .conftest import HEADS, ROTATIONS, tokens_of


@pytest.mark.parametrize(("length", "rows"), [(1, 1), (25, 25), (65, 68)])
@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_a_single_sequence_gets_what_the_plain_kernel_returns(dtype, atol, causal, rotation, length, rows):
    spec, tokens = AttentionSpec(HEADS, causal=causal, rotation=rotation), tokens_of((length,))
    qkv = torch.randn(rows, 3 * HEADS * 8)
    found = single(qkv.to(dtype), tokens, spec)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), plain(qkv, tokens, spec), rtol=0, atol=atol)
    assert not found[length:].any()


def test_it_is_chosen_without_gradient_for_one_sequence():
    qkv, spec = torch.zeros(8, 3 * HEADS * 8), AttentionSpec(HEADS)
    assert choose_kernel(qkv, tokens_of((8,)), spec) is fused
    with torch.no_grad():
        assert choose_kernel(qkv, tokens_of((8,)), spec) is single
        assert choose_kernel(qkv, tokens_of((4, 4)), spec) is fused
        assert choose_kernel(qkv, tokens_of((8,)), AttentionSpec(HEADS, window=2)) is fused
    assert not is_single(tokens_of((8,)), AttentionSpec(HEADS, dropout=0.1))
