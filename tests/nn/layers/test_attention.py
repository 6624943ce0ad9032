"""Self-attention: the kernels compared with each other, their choice and injection."""

import copy
from types import SimpleNamespace

import pytest
import torch

from unmask.nn.layers import fused_attention
from unmask.nn.layers.block import SelfAttention, choose_kernel, fastest
from unmask.nn.layers.fused_attention import fused, padded, varlen
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.nn.layers.rotary import Rotation

from .conftest import HEADS, LENGTHS, ROTATIONS, assert_same, run, tokens_of


@pytest.mark.parametrize("lengths", [LENGTHS, (1,), (5,), (1, 1), (7, 7), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("kernel", [fused, padded])
def test_kernels_equal_the_plain_kernel(kernel, causal, rotation, lengths):
    for heads, window in ((1, None), (HEADS, None), (HEADS, 5)):
        spec, tokens = AttentionSpec(heads, causal=causal, rotation=rotation, window=window), tokens_of(lengths)
        assert_same(run(kernel, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("kernel", [fused, padded, plain])
def test_in_bf16_kernels_are_close_to_exact_attention(kernel, rotation):
    spec, tokens = AttentionSpec(HEADS, rotation=rotation), tokens_of()
    exact = run(plain, spec, tokens)
    for one, other in zip(run(kernel, spec, tokens, torch.bfloat16), exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one.double() - other).norm() < 0.02 * other.norm()


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
        monkeypatch.setattr(fused_attention, "softmax_backward", lambda grad, probabilities: grad * probabilities)
    with pytest.raises(AssertionError):
        test_kernels_equal_the_plain_kernel(fused, False, Rotation(), LENGTHS)


CAPABILITIES = {"H100": (9, 0), "A100": (8, 0), "T4": (7, 5), "V100": (7, 0), "P100": (6, 0)}
BF16, FP16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32


def on_gpu(dtype, width, device="cuda"):
    type = SimpleNamespace(type=device)
    return SimpleNamespace(is_cuda=device == "cuda", is_cpu=False, dtype=dtype, shape=(10, 3 * width), device=type)


@pytest.mark.parametrize("gpu", CAPABILITIES)
@pytest.mark.parametrize("dtype", [BF16, FP16, FLOAT32], ids=str)
@pytest.mark.parametrize("width", [8, 12, 64, 256, 264])
def test_the_kernel_of_each_gpu_and_precision_runs_there(gpu, dtype, width, monkeypatch):
    """FlashAttention needs compute capability 8.0, 16 bits, and heads of a multiple of 8 up to 256."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: CAPABILITIES[gpu])
    flash = gpu in ("H100", "A100") and dtype != FLOAT32 and width in (8, 64, 256)
    chosen = choose_kernel(on_gpu(dtype, HEADS * width), tokens_of((3, 5)), AttentionSpec(HEADS))
    assert chosen is (varlen if flash else padded)


def test_the_kernel_is_chosen_by_device_type_and_layer(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    tokens, spec = tokens_of((3, 5)), AttentionSpec(HEADS)
    for dtype in (BF16, FP16, FLOAT32):
        assert choose_kernel(torch.zeros(8, 3 * HEADS * 8, dtype=dtype), tokens, spec) is fused
        assert choose_kernel(on_gpu(dtype, HEADS * 8, "mps"), tokens, spec) is plain
    biased = AttentionSpec(HEADS, bias=lambda query, tokens, group: query)
    assert choose_kernel(on_gpu(BF16, HEADS * 8), tokens, biased) is plain
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert choose_kernel(on_gpu(BF16, HEADS * 8), tokens, spec) is padded
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert choose_kernel(on_gpu(BF16, HEADS * 8), tokens, spec) is plain


def test_a_kernel_is_set():
    def zeros(qkv, tokens, spec):
        seen.append(spec)
        return qkv.new_zeros(len(qkv), qkv.shape[1] // 3)

    seen, tokens, x = [], tokens_of((3, 5)), torch.randn(8, HEADS * 8)
    layer = SelfAttention(HEADS * 8, AttentionSpec(HEADS, 0.1, causal=True, rotation=Rotation(), window=4))
    layer.kernel = zeros
    assert layer(x, tokens).equal(layer.out.bias.expand(8, -1))
    layer.eval()(x, tokens)
    assert seen == [AttentionSpec(HEADS, rate, True, Rotation(), window=4) for rate in (0.1, 0.0)]
    layer.kernel = fused
    expected = layer(x, tokens)
    layer.kernel = plain
    torch.testing.assert_close(layer(x, tokens), expected)
    assert SelfAttention(HEADS * 8, AttentionSpec(HEADS, 0.1)).kernel is fastest


def test_linear_layers_may_have_no_biases():
    layer, tokens = SelfAttention(HEADS * 8, AttentionSpec(HEADS, 0.0), biased=False), tokens_of((3, 5))
    assert layer.state_dict().keys() == {"qkv.weight", "out.weight"}
    assert layer(torch.randn(8, HEADS * 8), tokens).shape == (8, HEADS * 8)


def test_a_layer_is_copied_and_converted_with_its_rotation():
    layer = SelfAttention(HEADS * 8, AttentionSpec(HEADS, 0.0, rotation=Rotation()))
    assert not any("rotation" in name for name in layer.state_dict())
    small, tokens, x = copy.deepcopy(layer).bfloat16(), tokens_of(), torch.randn(561, HEADS * 8)
    exact = copy.deepcopy(small).double()(x.bfloat16().double(), tokens)
    assert (small(x.bfloat16(), tokens).double() - exact).norm() < 0.02 * exact.norm()
