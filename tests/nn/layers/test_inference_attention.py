"""The kernel for inference: it equals the plain kernel, and is chosen where it supports the inputs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.nn.layers import fused_attention
from unmask.nn.layers.block import choose_kernel
from unmask.nn.layers.fused_attention import for_inference, fused, is_supported
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.support import panels

from .conftest import HEADS, LENGTHS, ROTATIONS, tokens_of


@pytest.mark.parametrize(("lengths", "rows"), [((1,), 1), ((65,), 68), (LENGTHS, sum(LENGTHS) + 3)])
@pytest.mark.parametrize("window", [None, 30, 1000])
@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("in_panels", [False, True], ids=["by torch", "in panels"])
def test_sequences_get_what_the_plain_kernel_returns(
    in_panels, dtype, atol, causal, rotation, window, lengths, rows, monkeypatch
):
    if in_panels and not panels.multiplies(dtype):
        pytest.skip("there are no products in panels")
    monkeypatch.setattr(fused_attention, "panels_multiply", lambda dtype: in_panels)
    spec, tokens = AttentionSpec(HEADS, causal=causal, rotation=rotation, window=window), tokens_of(lengths)
    qkv = torch.randn(rows, 3 * HEADS * (panels.WIDE if in_panels else 8))
    assert fused_attention.fits_panels(qkv.to(dtype), qkv.shape[1] // 3, tokens, spec) == in_panels
    before = qkv.to(dtype)
    found = for_inference(before, tokens, spec)
    assert found.dtype == dtype and before.equal(qkv.to(dtype)), "inputs are not modified"
    torch.testing.assert_close(found.float(), plain(qkv, tokens, spec), rtol=0, atol=atol)
    assert not found[sum(lengths) :].any()


@pytest.mark.parametrize("window", [None, 2])
def test_padding_in_the_stream_stays_finite(window):
    (group,) = tokens_of((20, 17)).groups
    tokens = replace(tokens_of((20, 20)), groups=(replace(group, start=0, stop=40, index=None, slots=None),))
    for width in (8, panels.WIDE):
        found = for_inference(torch.randn(40, 3 * HEADS * width), tokens, AttentionSpec(HEADS, window=window))
        assert found.isfinite().all()


def test_what_no_token_attends_to_changes_nothing():
    tokens, unseen = tokens_of((20, 17)), np.array([3, 30])
    tokens = replace(tokens, groups=tuple(group.without_keys(unseen) for group in tokens.groups))
    qkv = torch.randn(37, 3 * HEADS * panels.WIDE)
    found = for_inference(qkv, tokens, AttentionSpec(HEADS))
    qkv[unseen] = 100
    seen = np.delete(np.arange(37), unseen)
    assert for_inference(qkv, tokens, AttentionSpec(HEADS))[seen].equal(found[seen])


def test_it_is_chosen_without_gradient_where_windows_save_nothing():
    qkv, spec = torch.zeros(8, 3 * HEADS * 8), AttentionSpec(HEADS)
    assert choose_kernel(qkv, tokens_of((8,)), spec) is fused
    with torch.no_grad():
        assert choose_kernel(qkv, tokens_of((4, 4)), spec) is for_inference
        assert choose_kernel(qkv, tokens_of((8,)), AttentionSpec(HEADS, window=2)) is for_inference
        assert choose_kernel(qkv, tokens_of((8, 500)), AttentionSpec(HEADS, window=2)) is fused
        assert choose_kernel(qkv, tokens_of((8,)), AttentionSpec(HEADS, bias=lambda *_: qkv)) is plain
    assert not is_supported(tokens_of((8,)).groups, AttentionSpec(HEADS, dropout=0.1))


def test_in_panels_windows_of_any_size_are_supported(monkeypatch):
    monkeypatch.setattr(fused_attention, "panels_multiply", lambda dtype: True)
    qkv, tokens, spec = torch.zeros(508, 3 * HEADS * panels.WIDE), tokens_of((8, 500)), AttentionSpec(HEADS, window=2)
    with torch.no_grad():
        assert choose_kernel(qkv, tokens, spec) is for_inference
        assert choose_kernel(qkv, tokens, replace(spec, bias=lambda *_: qkv)) is plain
        assert choose_kernel(qkv, tokens, replace(spec, dropout=0.1)) is for_inference
    assert choose_kernel(qkv, tokens, spec) is fused
