"""Dropout from cheap random bits (Srivastava et al. 2014).

torch draws each element's Bernoulli variable from a serial generator, which takes a sixth of a training step on a CPU.
Here 16 bits an element come from numpy's SFC64, seeded by one number of torch's generator, so that `torch.manual_seed`
still decides everything. The rate is exact to 2^-17.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout


class Dropout(nn.Module):
    """Zero a share of the elements in training and scale the others up; nothing else.

    Args:
        rate: the share.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        if not self.training or self.rate == 0:
            return x
        return dropout(x, self.rate) if x.is_cuda else x * keep(x.shape, self.rate, x.dtype)


def keep(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """Return a factor for each element: 0 at `rate`, else 1 / (1 - rate)."""
    number = int(torch.randint(1 << 62, ()))
    bits = np.random.SFC64(number).random_raw(-(-shape.numel() // 4)).view(np.uint16)
    kept = torch.from_numpy(bits).view(torch.int16)[: shape.numel()] >= round(rate * 65536) - 32768
    return kept.view(shape).to(dtype).mul_(1 / (1 - rate))
