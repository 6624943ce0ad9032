"""Attention in panels with its gradient: it equals the plain kernel, and torch's generator determines its dropout."""

import pytest
import torch

from unmask.nn.layers import fused_attention
from unmask.nn.layers.block import choose_kernel
from unmask.nn.layers.fused_attention import for_inference, fused
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.support import panels

from .conftest import HEADS, LENGTHS, ROTATIONS, tokens_of

pytestmark = pytest.mark.skipif(not panels.registers(), reason="there are no products in panels")
WIDTH = HEADS * 2 * panels.WIDE


@pytest.fixture(autouse=True)
def in_panels(monkeypatch):
    monkeypatch.setattr(fused_attention, "panels_multiply", panels.multiplies)


def learn(kernel, qkv, tokens, spec):
    """Return outputs, and the gradient of a weighted sum of those of tokens."""
    leaf = qkv.clone().requires_grad_()
    y = kernel(leaf, tokens, spec)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    weights[int(tokens.offsets[-1]) :] = 0
    (gradient,) = torch.autograd.grad((y * weights).sum(), leaf)
    return y.detach(), gradient


@pytest.mark.parametrize(("lengths", "more"), [((1,), 0), ((65,), 3), (LENGTHS, 3)])
@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)])
def test_outputs_and_gradients_are_those_of_the_plain_kernel(dtype, bound, causal, rotation, window, lengths, more):
    if not panels.multiplies(dtype):
        pytest.skip("there are no products of this type in panels")
    spec, tokens = AttentionSpec(HEADS, causal=causal, rotation=rotation, window=window), tokens_of(lengths)
    qkv = torch.randn(sum(lengths) + more, 3 * WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert fused_attention.fits_panels(qkv, WIDTH, tokens, spec)
    expected = learn(plain, qkv.double(), tokens, spec)
    for one, other in zip(learn(fused, qkv, tokens, spec), expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=0, atol=bound * max(1.0, float(other.abs().max())))


def test_torchs_generator_determines_dropout():
    spec, tokens, qkv = AttentionSpec(HEADS, dropout=0.2), tokens_of((20, 17)), torch.randn(37, 3 * WIDTH)
    found = {}
    for seed in (0, 1):
        torch.manual_seed(seed)
        found[seed] = [learn(fused, qkv, tokens, spec) for _ in range(2)]
        assert not found[seed][0][0].equal(found[seed][1][0]), "each step has its own"
        torch.manual_seed(seed)
        for one, other in zip(learn(fused, qkv, tokens, spec), found[seed][0], strict=True):
            assert one.equal(other)
    assert not found[0][0][0].equal(found[1][0][0])


def test_dropout_without_gradient_is_the_same():
    spec, tokens, qkv = AttentionSpec(HEADS, dropout=0.2), tokens_of((20, 17)), torch.randn(37, 3 * WIDTH)
    torch.manual_seed(0)
    expected, _ = learn(fused, qkv, tokens, spec)
    torch.manual_seed(0)
    with torch.no_grad():
        assert choose_kernel(qkv, tokens, spec) is for_inference
        assert for_inference(qkv, tokens, spec).equal(expected)


def test_dropout_changes_nothing_on_average():
    spec, tokens, qkv = AttentionSpec(HEADS, dropout=0.2), tokens_of((20, 17)), torch.randn(37, 3 * WIDTH)
    torch.manual_seed(0)
    expected = learn(plain, qkv, tokens, AttentionSpec(HEADS))
    drawn = [learn(fused, qkv, tokens, spec) for _ in range(400)]
    for part, other in zip(zip(*drawn, strict=True), expected, strict=True):
        values = torch.stack(part)
        error = (values.mean(0) - other) / (values.std(0) / 400**0.5 + 1e-6)
        assert error.square().mean() < 1.3
