"""The kernels of GPUs: the arguments of torch's operator, and where padding takes its place."""

import torch

from unmask.nn.layers import fused_attention
from unmask.nn.layers.fused_attention import varlen
from unmask.nn.layers.plain_attention import AttentionSpec, plain

from .conftest import HEADS, ROTATIONS, Without, assert_same, run, tokens_of


def test_varlen_calls_torchs_operator(monkeypatch):
    """A fake operator computes plain attention from its arguments."""
    tokens, calls, windows = tokens_of(), [], []

    def flash(query, key, value, ends, same, longest, again, dropout, *, is_causal, return_debug_mask, **window):
        calls.append((ends is same is tokens.offsets, longest, again, dropout, is_causal, return_debug_mask))
        windows.append((window["window_size_left"], window["window_size_right"]))
        qkv = torch.stack([query, key, value], 1).flatten(1)
        spec = AttentionSpec(HEADS, causal=is_causal, window=window["window_size_left"])
        return plain(qkv, tokens, spec).view_as(query), None

    monkeypatch.setattr(fused_attention, "_flash", lambda: flash)
    for rotation in ROTATIONS:
        spec = AttentionSpec(HEADS, causal=True, rotation=rotation)
        assert_same(run(varlen, spec, tokens), run(plain, spec, tokens))
    assert calls == [(True, 200, 200, 0.0, True, False)] * 3
    for causal in (True, False):
        spec = AttentionSpec(HEADS, causal=causal, window=5)
        assert_same(run(varlen, spec, tokens), run(plain, spec, tokens))
    assert windows == [(None, None)] * 3 + [(5, 0), (5, 5)]


def test_a_version_of_torch_may_lack_the_operator(monkeypatch):
    qkv = torch.zeros(5, 3 * HEADS * 8, dtype=torch.float16)
    monkeypatch.setattr(fused_attention.gpus, "describe", lambda device: fused_attention.gpus.GPUS[0][1])
    assert fused_attention.flash_supports(qkv, HEADS)
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, "_flash_attention_forward"))
    assert not fused_attention.flash_supports(qkv, HEADS)
