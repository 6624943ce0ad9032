"""The CPU kernel compared with torch's attention: outputs, gradients, dropout, chunks, precision, planted faults."""

import copy

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from unmask.nn.layers import fused_attention, score_blocks
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.dropout import keep
from unmask.nn.layers.fused_attention import fused
from unmask.nn.layers.plain_attention import AttentionSpec, plain

from .conftest import HEADS, ROTATIONS, Without, assert_same, run, tokens_of


def attend(x, layer, dropout, lengths):
    """Compute SelfAttention on a ragged batch with torch's attention, one sequence at a time."""
    heads, rows = layer.spec.heads, []
    for part in x.split(lengths):
        query, key, value = layer.qkv(part).view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (heads, length, …)
        if dropout is None:
            out = scaled_dot_product_attention(query, key, value, is_causal=layer.spec.causal)
        else:
            scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
            later = torch.ones_like(scores, dtype=torch.bool).triu(1) & layer.spec.causal
            probabilities = scores.masked_fill(later, -torch.inf).softmax(-1)
            out = (probabilities * dropout.pop(0)) @ value
        rows.append(layer.out(out.transpose(0, 1).reshape(len(part), -1)))
    return torch.cat(rows)


def gradients(output, weights, tensors):
    return torch.autograd.grad((output * weights).sum(), tensors)


def masks(rate, lengths, monkeypatch):
    """Return the scaled dropout masks by sequence, and patch the kernel to use the same masks."""
    ((group,), heads) = tokens_of(lengths).groups, 4
    if not rate:
        return None
    kept = keep(torch.Size([len(lengths) * heads, group.longest, group.longest]), rate, torch.float64, (0,))
    monkeypatch.setattr(fused_attention, "_kept", lambda probabilities, rate, seed, number, part: kept[part])
    by_sequence = kept.unflatten(0, (len(lengths), heads)) / (1 - rate)
    return [factor[:, :n, :n] for factor, n in zip(by_sequence, lengths, strict=True)]


@pytest.mark.parametrize("long", [1, 100], ids=["recomputed", "kept"])
@pytest.mark.parametrize("chunk", [100, 1 << 20], ids=["chunks", "at once"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("lengths", [(7,), (6, 6, 6), (3, 5, 9)], ids=["one", "equal", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_attention_and_its_gradient_equal_torchs(causal, lengths, rate, chunk, long, monkeypatch):
    monkeypatch.setattr(score_blocks, "CHUNK", chunk)
    monkeypatch.setattr(fused_attention, "LONG", long)
    tokens = tokens_of(lengths)
    (group,) = tokens.groups
    assert (group.real is not None) == (len(set(lengths)) > 1)
    assert len(list(score_blocks.Whole(group, AttentionSpec(4), torch.zeros(())).parts())) > 1 or chunk > 100
    factors = masks(rate, lengths, monkeypatch)
    layer = SelfAttention(16, AttentionSpec(4, rate, causal=causal)).double()
    x = torch.randn(sum(lengths), 16, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    ours, expected = layer(x, tokens), attend(x, layer, factors, lengths)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    tensors = (x, *layer.parameters())
    for one, other in zip(gradients(ours, weights, tensors), gradients(expected, weights, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(7, 7), (40, 44), (64, 64), (130, 130), (1030, 1024)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_attention_in_low_precision_is_close_to_torchs(causal, lengths, dtype):
    """All softmax paths: rows that fill registers or not, many registers, and recomputed probabilities."""
    tokens = tokens_of(lengths)
    layer = SelfAttention(64, AttentionSpec(2, 0.0, causal=causal)).double()
    for weight in layer.parameters():
        weight.data.mul_(3)
    x = torch.randn(sum(lengths), 64, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    expected = attend(x, layer, None, sorted(lengths))
    gradient = gradients(expected, weights, (x, layer.qkv.weight))
    small = copy.deepcopy(layer).to(dtype)
    y = x.detach().to(dtype).requires_grad_()
    ours = small(y, tokens)
    bound = 0.03 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(
        (ours, *gradients(ours, weights.to(dtype), (y, small.qkv.weight))), (expected, *gradient), strict=True
    ):
        assert (one.double() - other).norm() < bound * other.norm()


@pytest.mark.parametrize("long", [1, 100], ids=["recomputed", "kept"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("lengths", [(3, 3), (2, 3)], ids=["equal", "padded"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_attention_passes_gradcheck(causal, lengths, rate, heads, long, monkeypatch):
    monkeypatch.setattr(fused_attention, "LONG", long)
    qkv = torch.randn(sum(lengths), 18, dtype=torch.float64, requires_grad=True)
    tokens = tokens_of(lengths)

    def run(qkv):
        torch.manual_seed(0)
        return fused(qkv, tokens, AttentionSpec(heads, rate, causal))

    assert torch.autograd.gradcheck(run, qkv, fast_mode=True)


def test_a_sequence_does_not_attend_to_others(monkeypatch):
    qkv = torch.randn(14, 12, requires_grad=True)
    tokens = tokens_of((3, 4, 7))
    (gradient,) = torch.autograd.grad(fused(qkv, tokens, AttentionSpec(2))[3:7].sum(), qkv)
    seen = gradient.any(1).tolist()
    assert seen == [False] * 3 + [True] * 4 + [False] * 7


@pytest.mark.parametrize("planted", ["scale", "kept", "mask", "padding"])
def test_the_comparison_notices_a_planted_fault(planted, monkeypatch):
    if planted == "scale":
        right = torch.baddbmm
        monkeypatch.setattr(torch, "baddbmm", lambda *args, beta, alpha: right(*args, beta=beta, alpha=alpha * 1.01))
    elif planted == "kept":
        right_mul = torch.Tensor.mul_
        monkeypatch.setattr(
            torch.Tensor, "mul_", lambda x, y: x if isinstance(y, torch.Tensor) and x.dim() == 3 else right_mul(x, y)
        )
    elif planted == "mask":
        right_bias = score_blocks.padding_bias
        monkeypatch.setattr(score_blocks, "padding_bias", lambda real, *rest: right_bias(torch.ones_like(real), *rest))
    else:  # the outputs at padding have a gradient
        right_mul = torch.Tensor.mul_
        monkeypatch.setattr(
            torch.Tensor, "mul_", lambda x, y: x if isinstance(y, torch.Tensor) and x.dim() == 4 else right_mul(x, y)
        )
    with pytest.raises(AssertionError):
        test_attention_and_its_gradient_equal_torchs(False, (3, 5, 9), 0.3, 1 << 20, 100, monkeypatch)


@pytest.mark.parametrize("length", [5, 40, 130])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_without_the_private_softmax_operator_results_are_the_same(dtype, length, monkeypatch):
    spec, tokens = AttentionSpec(HEADS), tokens_of((length, length))
    grad, probabilities = torch.randn(4, length, length).to(dtype), torch.randn(4, length, length).softmax(-1).to(dtype)
    rows, whole = fused_attention.softmax_backward(grad, probabilities), run(fused, spec, tokens, dtype)
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, "_softmax_backward_data"))
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 0.004}[dtype]
    torch.testing.assert_close(fused_attention.softmax_backward(grad, probabilities), rows, rtol=bound, atol=bound)
    for one, other in zip(run(fused, spec, tokens, dtype), whole, strict=True):
        assert (one - other).double().norm() <= bound * other.double().norm()


@pytest.mark.parametrize("missing", ["", "_backward"], ids=["both", "the backward pass"])
@pytest.mark.parametrize("lengths", [(60, 64), (64, 64)], ids=["padded", "equal"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_without_torchs_kernel_for_long_sequences_results_are_the_same(causal, lengths, missing, monkeypatch):
    monkeypatch.setattr(fused_attention, "LONG", 1)
    spec, tokens = AttentionSpec(HEADS, causal=causal, rotation=ROTATIONS[1]), tokens_of(lengths)
    expected, calls = run(plain, spec, tokens), []
    forward = fused_attention._forward
    monkeypatch.setattr(fused_attention, "_forward", lambda *inputs: calls.append(1) or forward(*inputs))
    assert_same(run(fused, spec, tokens), expected)
    assert calls, "torch's kernel is used where it is there"
    name = f"_scaled_dot_product_flash_attention_for_cpu{missing}"
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, name))
    calls.clear()
    assert_same(run(fused, spec, tokens), expected)
    assert not calls


@pytest.mark.parametrize("long", [1, 1024], ids=["recomputed", "kept"])
@pytest.mark.parametrize("rotation", ROTATIONS[1:], ids=["halves", "interleaved"])
def test_rotated_chunks_equal_the_plain_kernel(rotation, long, monkeypatch):
    monkeypatch.setattr(score_blocks, "CHUNK", 100)
    monkeypatch.setattr(fused_attention, "LONG", long)
    spec, tokens = AttentionSpec(HEADS, rotation=rotation), tokens_of((3, 17, 17, 60))
    assert_same(run(fused, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("rotation", ROTATIONS[1:], ids=["halves", "interleaved"])
def test_rotated_attention_with_dropout_passes_gradcheck(rotation):
    tokens = tokens_of((2, 4))
    qkv = torch.randn(6, 3 * 2 * 4, dtype=torch.float64, requires_grad=True)

    def attend(qkv):
        torch.manual_seed(0)
        return fused(qkv, tokens, AttentionSpec(2, 0.3, rotation=rotation))

    assert torch.autograd.gradcheck(attend, qkv, fast_mode=True)


PACKED = (3, 17, 17, 60, 64, 20, 5)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("long", [1, 100], ids=["recomputed", "kept"])
def test_sequences_in_a_common_row_do_not_attend_to_each_other(long, window, causal, rotation, monkeypatch):
    monkeypatch.setattr(fused_attention, "LONG", long)
    tokens = tokens_of(PACKED)
    assert tokens.packed.sequences < len(PACKED)
    spec = AttentionSpec(HEADS, causal=causal, rotation=rotation, window=window)
    expected = run(plain, spec, tokens)
    assert_same(run(fused, spec, tokens), expected)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        for one, other in zip(run(fused, spec, tokens, dtype), expected, strict=True):
            assert (one.double() - other).norm() < bound * other.norm()
    right = score_blocks.by_rows
    monkeypatch.setattr(score_blocks, "by_rows", lambda bias, heads: right(0 * bias, heads))
    with pytest.raises(AssertionError):
        assert_same(run(fused, spec, tokens), expected)


def test_windows_that_pay_keep_sequences_apart(monkeypatch):
    monkeypatch.setattr(score_blocks, "BLOCK", 4)
    spec, tokens = AttentionSpec(HEADS, window=4), tokens_of(PACKED)
    assert tokens.packed is not None
    assert score_blocks.pays(4, tokens.packed.longest)
    assert_same(run(fused, spec, tokens), run(plain, spec, tokens))
