"""Layer normalization in bf16: gradients that are accurate for any number of tokens."""

import pytest
import torch

from unmask.nn.layers.norm import LayerNorm


def gradients(norm, x, grad):
    x = x.detach().clone().requires_grad_()
    y = norm(x)
    return y, *torch.autograd.grad(y, (x, *norm.parameters()), grad)


@pytest.mark.parametrize("bias", [True, False], ids=["with bias", "without bias"])
@pytest.mark.parametrize("tokens", [1, 30, 5000])
def test_output_and_gradients_in_bf16_are_exact_up_to_rounding(tokens, bias):
    norm = LayerNorm(64, eps=1e-12, bias=bias).bfloat16()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    exact = torch.nn.LayerNorm(64, eps=1e-12, bias=bias).double()
    exact.load_state_dict(norm.state_dict())
    x, grad = torch.randn(tokens, 64).bfloat16(), (torch.randn(tokens, 64) + 0.3).bfloat16()
    for ours, theirs in zip(gradients(norm, x, grad), gradients(exact, x.double(), grad.double()), strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours.double() - theirs).norm() < 0.005 * theirs.norm()


def test_in_float32_it_equals_torchs():
    norm, x, grad = LayerNorm(64, eps=1e-12), torch.randn(7, 64), torch.randn(7, 64)
    for ours, theirs in zip(
        gradients(norm, x, grad), gradients(torch.nn.LayerNorm(64, eps=1e-12), x, grad), strict=True
    ):
        assert ours.equal(theirs)


def test_the_comparison_notices_torchs_own_sum_in_bf16(monkeypatch):
    """The planted fault is the one that this module avoids."""
    monkeypatch.setattr(LayerNorm, "forward", torch.nn.LayerNorm.forward)
    with pytest.raises(AssertionError):
        test_output_and_gradients_in_bf16_are_exact_up_to_rounding(5000, bias=True)
