"""Layer normalization in bf16: gradients that are accurate for any number of tokens."""

import pytest
import torch

from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.norm import LayerNorm
from unmask.support import rows


@pytest.fixture(params=[True, False], ids=["in one function", "by torch"], autouse=True)
def in_rows(request, monkeypatch):
    """Compute with and without the C extension; whether with it."""
    if not request.param:
        monkeypatch.setattr(rows, "_rows", None)
    elif not rows.fits(torch.zeros(1, 16)):
        pytest.skip("the extension is not installed")
    return request.param


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


def test_in_float32_it_equals_torchs(in_rows):
    norm, x, grad = LayerNorm(64, eps=1e-12), torch.randn(7, 64), torch.randn(7, 64)
    for ours, theirs in zip(
        gradients(norm, x, grad), gradients(torch.nn.LayerNorm(64, eps=1e-12), x, grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **({} if in_rows else {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_of_a_sum_is_that_of_dropout_and_residual(dtype):
    x, onto, grad = (torch.randn(40, 64, dtype=dtype) for _ in range(3))
    norm, dropout = LayerNorm(64).to(dtype), Dropout(0.3)
    torch.manual_seed(0)
    leaves = [leaf.clone().requires_grad_() for leaf in (x, onto)]
    y = norm(*leaves, dropout)
    found = torch.autograd.grad(y, leaves, grad)
    kept = found[0] != 0
    assert 0.6 < kept.float().mean() < 0.8
    exact, leaves = torch.nn.LayerNorm(64).double(), [leaf.double().requires_grad_() for leaf in (x, onto)]
    expected = exact(leaves[1] + leaves[0] * kept / 0.7)
    bound = {"rtol": 0.02, "atol": 0.04} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(y.double(), expected, **bound)
    for one, other in zip(found, torch.autograd.grad(expected, leaves, grad.double()), strict=True):
        torch.testing.assert_close(one.double(), other, **bound)
    torch.manual_seed(0)
    assert norm(x, onto, dropout).equal(y) and not norm(x, onto, dropout).equal(y)
    torch.testing.assert_close(norm(x, onto, dropout.eval()), norm(x, onto))
    torch.testing.assert_close(norm(x, onto), norm(x + onto), **bound)


def test_the_residual_connection_alone_may_have_a_gradient():
    norm, x, onto = LayerNorm(64), torch.randn(4, 64), torch.randn(4, 64, requires_grad=True)
    norm(x, onto).sum().backward()
    assert onto.grad is not None and x.grad is None


def test_the_comparison_notices_torchs_own_sum_in_bf16(monkeypatch):
    """The planted fault is the one that this module avoids."""
    monkeypatch.setattr(LayerNorm, "forward", torch.nn.LayerNorm.forward)
    with pytest.raises(AssertionError):
        test_output_and_gradients_in_bf16_are_exact_up_to_rounding(5000, bias=True)
