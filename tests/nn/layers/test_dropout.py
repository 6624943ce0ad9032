"""Dropout: its rate and scale, masks that depend on the seed alone, and none in evaluation."""

import pytest
import torch

from unmask.nn.layers.dropout import Dropout, draw, keep


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_has_its_rate_and_scale(rate):
    x = torch.full((1000, 1001), 3.0)
    y = Dropout(rate)(x)
    dropped = y == 0
    assert float(dropped.double().mean()) == pytest.approx(
        rate, abs=5e-3 * (rate * (1 - rate)) ** 0.5
    )  # 5 standard deviations
    torch.testing.assert_close(y[~dropped], torch.full_like(y[~dropped], 3 / (1 - rate)))
    for axis in (0, 1):  # all rows and columns have the same rate
        assert (dropped.double().mean(axis) - rate).abs().max() < 6 * (rate * (1 - rate) / 1000) ** 0.5


def test_each_call_draws_another_mask():
    torch.manual_seed(0)
    first, second = (keep(torch.Size([4096]), 0.5, torch.float32, (draw(),)) for _ in range(2))
    assert 0.45 < float((first == second).float().mean()) < 0.55


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [1e-9, 0.001, 0.1, 0.5, 0.9, 1 - 1e-9])
def test_masks_are_one_with_the_probability_for_dtypes_of_any_size(dtype, rate):
    kept = keep(torch.Size([999, 1003]), rate, dtype, (1, 2))
    assert set(kept.unique().tolist()) == {0, 1}
    assert float(kept.double().mean()) == pytest.approx(1 - rate, abs=2e-5 + 5e-3 * (rate * (1 - rate)) ** 0.5)
    assert torch.equal(kept, keep(kept.shape, rate, dtype, (1, 2)))
    assert not torch.equal(kept, keep(kept.shape, rate, dtype, (1, 3)))


def test_in_evaluation_and_at_rate_0_nothing_is_changed():
    x, residual = torch.randn(9), torch.randn(9)
    for layer in (Dropout(0.5).eval(), Dropout(0.0)):
        assert layer(x) is x
        assert layer(x, residual).equal(residual + x)


def test_the_gradient_uses_the_mask_of_the_forward_pass():
    x, residual = (torch.randn(1000, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.manual_seed(0)
    y = Dropout(0.25)(x, residual)
    kept = (y != residual).double()
    torch.testing.assert_close(y, residual + x * kept / 0.75)
    assert 0.7 < float(kept.mean()) < 0.8
    for gradient, expected in zip(torch.autograd.grad(y.sum(), (x, residual)), (kept / 0.75, kept**0), strict=True):
        torch.testing.assert_close(gradient, expected)
