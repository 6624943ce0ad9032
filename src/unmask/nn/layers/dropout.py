"""Dropout from cheap random bits (Srivastava et al. 2014).

torch draws the Bernoulli variable of each element from a serial generator, which takes a sixth of a training step on a
CPU. Here 16 bits per element are drawn from numpy's SFC64, seeded by a number from torch's generator, so that
`torch.manual_seed` still determines everything. The rate is exact to 2^-17. Bits are converted to zeros and ones by
integer arithmetic on whole registers, because torch compares and converts one element at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

_LANES = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by size in bytes."""
_BITS = 16


class Dropout(nn.Module):
    """Dropout layer: in training, zeroes a share of the elements and scales up the others.

    Args:
        rate: share of the elements to zero.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def rate_now(self) -> float:
        """The rate in training, and 0 otherwise."""
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return x with dropout, added to `onto` (a residual connection) if given."""
        if self.rate_now > 0:
            if x.is_cpu and not torch.compiler.is_compiling():
                dropped: Tensor = _Dropout.apply(x, onto, self.rate)  # type: ignore[no-untyped-call]
                return dropped
            x = dropout(x, self.rate)
        return x if onto is None else onto + x


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, onto: Tensor | None, rate: float) -> Tensor:
        mask = keep(x.shape, rate, x.dtype, (draw(),))
        ctx.save_for_backward(mask)
        ctx.scale = 1 / (1 - rate)
        return (x * mask).mul_(ctx.scale) if onto is None else torch.addcmul(onto, x, mask, value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (mask,), (grad,) = ctx.saved_tensors, grads
        return (grad * mask).mul_(ctx.scale), grad if ctx.needs_input_grad[1] else None, None


def draw() -> int:
    """Draw a seed from torch's generator."""
    return int(torch.randint(1 << 62, ()))


def keep(
    shape: torch.Size, rate: float, dtype: torch.dtype, seed: tuple[int, ...], device: torch.device | None = None
) -> Tensor:
    """Return a mask of zeros, with probability `rate`, and ones. Kept elements must be scaled by 1 / (1 - rate).

    Args:
        shape, dtype, device: properties of the result; device None: the CPU.
        rate: probability of a zero; above 0.
        seed: determines the result.
    """
    bits = np.random.SFC64(seed)
    if device is not None and device.type != "cpu":
        generator = torch.Generator(device).manual_seed(int(bits.random_raw() >> 1))
        return torch.empty(shape, dtype=dtype, device=device).bernoulli_(1 - rate, generator=generator)
    lanes, width, count = _LANES[dtype.itemsize], 8 * dtype.itemsize, shape.numel()
    words = torch.from_numpy(bits.random_raw(-(-count * _BITS // 64)).view(np.int64)).view(lanes)
    if width > _BITS:  # the upper 16 bits of a lane are compared, so each group of 16 bits is shifted there once
        words = torch.cat([words << shift for shift in range(0, width, _BITS)])
    dropped = min(max(1, round(rate * 2**_BITS)), 2**_BITS - 1)
    lowest = (dropped - 2 ** (_BITS - 1)) << (width - _BITS)
    words.clamp_(lowest - 1, lowest).sub_(lowest - 1).mul_(int(torch.ones((), dtype=dtype).view(lanes)))
    return words.view(dtype)[:count].view(shape)
