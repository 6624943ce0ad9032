"""GELU and its gate in training: with the extension and without it, with and without gradient, they are the same."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

from unmask.nn.layers.activation import GELU, gated
from unmask.support import rows


def learn(function, x):
    leaf = x.clone().requires_grad_()
    y = function(leaf)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y))
    return y.detach(), leaf.grad


def gate_by_torch(x, activation):
    inner, gate = x.chunk(2, 1)
    return activation(inner) * gate


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("width", [64, 6])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04), (torch.float64, 1e-12)])
def test_outputs_and_gradients_are_torchs(dtype, bound, width, installed, monkeypatch):
    if not installed:
        monkeypatch.setattr(rows, "_rows", None)
    x = (2 * torch.randn(50, width, generator=torch.Generator().manual_seed(0))).to(dtype)
    cases = [(GELU(), gelu), (lambda x: gated(x, GELU()), lambda x: gate_by_torch(x, gelu))]
    cases.append((lambda x: gated(x, nn.SiLU()), lambda x: gate_by_torch(x, nn.SiLU())))
    for ours, theirs in cases:
        for one, other in zip(learn(ours, x), learn(theirs, x.double()), strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)
        with torch.no_grad():
            torch.testing.assert_close(ours(x).double(), theirs(x.double()), rtol=bound, atol=bound)
