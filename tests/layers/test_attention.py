"""The kernels of attention, held against each other and against formulas, and what hides an operator from them."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from unmask.batches.batch import Sample, collate
from unmask.layers import attention, fused_attention, varlen_attention
from unmask.layers.attention import SelfAttention, choose_kernel, fastest, set_kernel
from unmask.layers.attention_spec import AttentionSpec
from unmask.layers.block import Block
from unmask.layers.fused_attention import fused
from unmask.layers.plain_attention import plain
from unmask.layers.rotary import Rotation
from unmask.layers.varlen_attention import varlen

LENGTHS = (3, 17, 17, 60, 64, 200, 200)  # groups with and without padding
ROTATIONS = [None, Rotation(), Rotation(base=100.0, interleaved=True)]
HEADS = 3


def tokens_of(lengths=LENGTHS):
    zeros = [np.zeros(length, dtype=np.int64) for length in lengths]
    return collate([Sample(key=(i,), ids=zero, segments=zero) for i, zero in enumerate(zeros)]).tokens


def varlen_by_padding(qkv, tokens, spec):
    """The GPU's kernel where torch has no operator for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen_attention, "_flash", lambda: None)
        return varlen(qkv, tokens, spec)


def run(kernel, spec, tokens, dtype=torch.float64):
    """What a kernel gives for random numbers, and the gradient."""
    random = torch.Generator().manual_seed(1)
    shape = int(tokens.offsets[-1]), 3 * spec.heads * 8
    qkv = torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
    before = qkv.detach().clone()
    out = kernel(qkv, tokens, spec)
    assert qkv.equal(before), "what is read is not changed"
    weights = torch.randn(out.shape, generator=random, dtype=torch.float64).to(dtype)
    (gradient,) = torch.autograd.grad((out * weights).sum(), qkv)
    return out.detach(), gradient


def assert_same(ours, theirs, atol=1e-12):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("lengths", [LENGTHS, (1,), (5,), (1, 1), (7, 7), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "neighbours"])
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("kernel", [fused, varlen_by_padding])
def test_kernels_give_the_plain_ones_numbers_and_gradients(kernel, causal, rotation, lengths):
    for heads in (1, HEADS):
        spec, tokens = AttentionSpec(heads, causal=causal, rotation=rotation), tokens_of(lengths)
        assert_same(run(kernel, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "neighbours"])
@pytest.mark.parametrize("kernel", [fused, varlen_by_padding, plain])
def test_in_bf16_kernels_are_near_the_exact_numbers(kernel, rotation):
    spec, tokens = AttentionSpec(HEADS, rotation=rotation), tokens_of()
    exact = run(plain, spec, tokens)
    for one, other in zip(run(kernel, spec, tokens, torch.bfloat16), exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one.double() - other).norm() < 0.02 * other.norm()


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_the_plain_kernel_is_the_formula(causal):
    lengths, tokens = [3, 5, 5], tokens_of((3, 5, 5))
    qkv, expected = torch.randn(13, 3 * HEADS * 8, dtype=torch.float64), []
    for rows in qkv.split(lengths):
        query, key, value = rows.view(len(rows), 3, HEADS, 8).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / 8**0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
        expected.append((scores.softmax(-1) @ value).transpose(0, 1).flatten(1))
    torch.testing.assert_close(
        plain(qkv, tokens, AttentionSpec(HEADS, causal=causal)), torch.cat(expected), rtol=0, atol=1e-12
    )


def test_dropout_of_the_plain_kernel_has_its_rate_and_scale():
    tokens = tokens_of((400, 400))
    qkv = torch.zeros(800, 3 * HEADS * 8)
    qkv[:, -HEADS * 8 :] = 1
    out = plain(qkv, tokens, AttentionSpec(HEADS, dropout=0.3))  # (kept of 400) / 400 / 0.7
    assert float(out.mean()) == pytest.approx(1, abs=0.005)
    assert float(out.std()) == pytest.approx((0.3 / 0.7 / 400) ** 0.5, rel=0.1)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "neighbours"])
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_scores_are_those_before_the_softmax_and_zero_where_nothing_is_attended_to(causal, rotation):
    lengths, tokens = [3, 5, 5, 200], tokens_of((3, 5, 5, 200))
    spec = AttentionSpec(HEADS, causal=causal, rotation=rotation)
    qkv, scores = torch.randn(213, 3 * HEADS * 8, dtype=torch.float64, requires_grad=True), []
    with_scores = plain(qkv, tokens, spec, scores)
    assert with_scores.equal(plain(qkv, tokens, spec))
    assert [tuple(one.shape) for one in scores] == [
        (group.sequences, HEADS, group.longest, group.longest) for group in tokens.groups
    ]
    sequences = [sequence for one in scores for sequence in one]
    for rows, found in zip(qkv.split(lengths), sequences, strict=True):
        length = len(rows)
        query, key, _ = rows.view(length, 3, HEADS, 8).permute(1, 2, 0, 3)
        if rotation is not None:
            query, key = (rotation.rotate(x, *rotation.tables(length, 8, x)) for x in (query, key))
        expected = query @ key.transpose(1, 2) / 8**0.5
        expected = torch.zeros_like(found).index_put_(
            tuple(torch.meshgrid(*map(torch.arange, expected.shape), indexing="ij")), expected
        )
        torch.testing.assert_close(found, expected.tril() if causal else expected, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(sum(one.square().sum() for one in scores), qkv)
    assert gradient[:, : 2 * HEADS * 8].any()
    assert not gradient[:, 2 * HEADS * 8 :].any()


class Distances(nn.Module):
    """A bias as T5's: a number a head for each distance."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2 * 64, HEADS)

    def forward(self, query, tokens, group):
        places = torch.arange(group.longest)
        return self.table(places[:, None] - places + 64).permute(2, 0, 1)  # (heads, longest, longest)


def test_a_bias_is_added_to_scaled_scores():
    layer = SelfAttention(HEADS * 8, HEADS, 0.0, bias=Distances()).double()
    tokens, scores, without = tokens_of((3, 5, 5)), [], []
    x = torch.randn(13, HEADS * 8, dtype=torch.float64)
    out = layer(x, tokens, scores)
    assert out.equal(layer(x, tokens)), "a bias takes the plain kernel"
    plain(layer.qkv(x), tokens, AttentionSpec(HEADS), without)
    real = tokens.groups[0].real
    both = (real[:, None, :, None] & real[:, None, None]).expand_as(scores[0])
    added = (scores[0] - without[0])[both]
    torch.testing.assert_close(added, layer.bias(None, None, tokens.groups[0]).expand_as(both)[both])
    (gradient,) = torch.autograd.grad(out.sum(), layer.bias.table.weight)
    assert gradient.any()


def test_a_bias_may_read_the_queries_and_the_tokens():
    """As XLNet's: a term for each sequence, of its queries and its segments."""
    seen = []

    def bias(query, tokens, group):
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


def test_a_block_hands_out_its_attentions_scores():
    shape = HEADS * 8, HEADS, 48, 0.1, "gelu", 1e-12
    block = Block(*shape, rotation=Rotation()).eval()
    sharing = Block(*shape, attention_of=block).eval()
    tokens, x = tokens_of((3, 5, 5, 200)), torch.randn(213, HEADS * 8)
    for layer in (block, sharing):
        scores, expected = [], []
        torch.testing.assert_close(layer(x, tokens, scores), layer(x, tokens))
        block.attention(x, tokens, expected)
        assert len(scores) == 2
        assert all(one.equal(other) for one, other in zip(scores, expected, strict=True))
    assert sorted(name.rsplit(".", 1)[0] for name in block.state_dict() if name.endswith("weight")) == [
        *("attention.out", "attention.qkv", "attention_norm"),
        *("feed_forward.down", "feed_forward.up", "feed_forward_norm"),
    ]


def on_gpu(dtype, width):
    return SimpleNamespace(is_cuda=True, dtype=dtype, shape=(10, 3 * width))


def test_the_kernel_is_chosen_by_device_type_and_layer(monkeypatch):
    tokens, spec = tokens_of((3, 5)), AttentionSpec(HEADS)
    assert choose_kernel(torch.zeros(8, 3 * HEADS * 8, dtype=torch.bfloat16), tokens, spec) is fused
    assert choose_kernel(on_gpu(torch.bfloat16, HEADS * 8), tokens, spec) is varlen
    assert choose_kernel(on_gpu(torch.float32, HEADS * 8), tokens, spec) is fused
    assert choose_kernel(on_gpu(torch.bfloat16, HEADS * 12), tokens, spec) is fused
    biased = AttentionSpec(HEADS, bias=lambda query, tokens, group: query)
    assert choose_kernel(on_gpu(torch.bfloat16, HEADS * 8), tokens, biased) is plain
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert choose_kernel(on_gpu(torch.bfloat16, HEADS * 8), tokens, spec) is plain


def test_a_kernel_is_injected_and_set():
    def zeros(qkv, tokens, spec):
        seen.append(spec)
        return qkv.new_zeros(len(qkv), qkv.shape[1] // 3)

    seen, tokens, x = [], tokens_of((3, 5)), torch.randn(8, HEADS * 8)
    layer = SelfAttention(HEADS * 8, HEADS, 0.1, causal=True, rotation=Rotation(), kernel=zeros)
    assert layer(x, tokens).equal(layer.out.bias.expand(8, -1))
    layer.eval()(x, tokens)
    assert seen == [AttentionSpec(HEADS, rate, True, Rotation()) for rate in (0.1, 0.0)]
    body = nn.Sequential(nn.ModuleDict({"inner": layer}), SelfAttention(HEADS * 8, HEADS, 0.1))
    assert body[1].kernel is fastest
    assert set_kernel(body, plain) is body
    assert [module.kernel for module in body.modules() if isinstance(module, SelfAttention)] == [plain, plain]
    torch.testing.assert_close(layer(x, tokens), attention.set_kernel(layer, fused)(x, tokens))


def test_the_gpus_kernel_calls_torchs_operator_or_pads(monkeypatch):
    """The operator's stand-in attends as the plain kernel does, from what it is given."""
    tokens, calls = tokens_of(), []

    def flash(query, key, value, ends, same, longest, again, dropout, *, is_causal, return_debug_mask):
        calls.append((ends is same is tokens.offsets, longest, again, dropout, is_causal, return_debug_mask))
        qkv = torch.stack([query, key, value], 1).flatten(1)
        return plain(qkv, tokens, AttentionSpec(HEADS, causal=is_causal)).view_as(query), None

    monkeypatch.setattr(varlen_attention, "_flash", lambda: flash)
    for rotation in ROTATIONS:
        spec = AttentionSpec(HEADS, causal=True, rotation=rotation)
        assert_same(run(varlen, spec, tokens), run(plain, spec, tokens))
    assert calls == [(True, 200, 200, 0.0, True, False)] * 3


class Without:
    """An operator namespace that lacks one."""

    def __init__(self, namespace, hidden):
        self.namespace, self.hidden = namespace, hidden

    def __getattr__(self, name):
        if name == self.hidden:
            raise AttributeError(name)
        return getattr(self.namespace, name)


def test_where_torch_has_no_flash_operator_sequences_are_padded(monkeypatch):
    assert varlen_attention._flash() is not None
    spec, tokens = AttentionSpec(HEADS), tokens_of()
    monkeypatch.setattr(torch.ops, "aten", Without(torch.ops.aten, "_flash_attention_forward"))
    assert varlen_attention._flash() is None
    assert_same(run(varlen, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("length", [5, 40, 130])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_without_the_softmaxs_private_operator_numbers_are_the_same(dtype, length, monkeypatch):
    spec, tokens = AttentionSpec(HEADS), tokens_of((length, length))
    grad, probabilities = torch.randn(4, length, length).to(dtype), torch.randn(4, length, length).softmax(-1).to(dtype)
    rows, whole = fused_attention._softmax_backward(grad, probabilities), run(fused, spec, tokens, dtype)
    hidden = Without(torch.ops.aten, "_softmax_backward_data")
    monkeypatch.setattr(torch.ops, "aten", hidden)
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 0.004}[dtype]
    torch.testing.assert_close(fused_attention._softmax_backward(grad, probabilities), rows, rtol=bound, atol=bound)
    for one, other in zip(run(fused, spec, tokens, dtype), whole, strict=True):
        assert (one - other).double().norm() <= bound * other.double().norm()


@pytest.mark.parametrize("planted", ["scale", "rotation", "rotation back", "private softmax"])
def test_the_comparison_of_kernels_notices_a_planted_fault(planted, monkeypatch):
    if planted == "scale":
        right = torch.baddbmm
        monkeypatch.setattr(torch, "baddbmm", lambda *args, beta, alpha: right(*args, beta=beta, alpha=alpha * 1.01))
    elif planted == "rotation":
        monkeypatch.setattr(fused_attention, "_rotate", lambda x, rotation, back=False: None)
    elif planted == "rotation back":
        right = fused_attention._rotate
        monkeypatch.setattr(fused_attention, "_rotate", lambda x, rotation, back=False: right(x, rotation))
    else:
        monkeypatch.setattr(fused_attention, "_softmax_backward", lambda grad, probabilities: grad * probabilities)
    with pytest.raises(AssertionError):
        test_kernels_give_the_plain_ones_numbers_and_gradients(fused, False, Rotation(), LENGTHS)


def test_a_layer_is_copied_and_converted_with_its_rotation():
    layer = SelfAttention(HEADS * 8, HEADS, 0.0, rotation=Rotation())
    assert not any("rotation" in name for name in layer.state_dict())
    small, tokens, x = copy.deepcopy(layer).bfloat16(), tokens_of(), torch.randn(561, HEADS * 8)
    exact = copy.deepcopy(small).double()(x.bfloat16().double(), tokens)
    assert (small(x.bfloat16(), tokens).double() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("long", [1, 1024], ids=["computed again", "kept"])
@pytest.mark.parametrize("rotation", ROTATIONS[1:], ids=["halves", "neighbours"])
def test_rotated_chunks_give_the_plain_kernels_gradients(rotation, long, monkeypatch):
    monkeypatch.setattr(fused_attention, "CHUNK", 100)
    monkeypatch.setattr(fused_attention, "LONG", long)
    spec, tokens = AttentionSpec(HEADS, rotation=rotation), tokens_of((3, 17, 17, 60))
    assert_same(run(fused, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("rotation", ROTATIONS[1:], ids=["halves", "neighbours"])
def test_rotated_attention_with_dropout_passes_gradcheck(rotation):
    tokens = tokens_of((2, 4))
    qkv = torch.randn(6, 3 * 2 * 4, dtype=torch.float64, requires_grad=True)

    def attend(qkv):
        torch.manual_seed(0)
        return fused(qkv, tokens, AttentionSpec(2, 0.3, rotation=rotation))

    assert torch.autograd.gradcheck(attend, qkv)
