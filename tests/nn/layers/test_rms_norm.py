"""RMSNorm is torch's, and in bf16 its statistics are float32."""

import torch
from torch.nn.functional import rms_norm

from unmask.nn.layers.norm import RMSNorm


def test_outputs_and_gradients_are_torchs():
    torch.manual_seed(0)
    layer, x = RMSNorm(8, 1e-5).double(), torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    torch.nn.init.normal_(layer.weight, 1, 0.3)
    expected = rms_norm(x, (8,), layer.weight, 1e-5)
    torch.testing.assert_close(layer(x), expected)
    weights = torch.randn(5, 8, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), (x, layer.weight)) for y in (layer(x), expected))
    torch.testing.assert_close(ours, theirs)


def test_bf16_is_rounded_once():
    torch.manual_seed(0)
    layer, x = RMSNorm(64, 1e-5).bfloat16(), 100 * torch.randn(5, 64).bfloat16()
    found = layer(x)
    assert found.dtype == torch.bfloat16
    assert found.equal(rms_norm(x.float(), (64,), layer.weight.float(), 1e-5).bfloat16())
