"""Rotary position embeddings (Su et al. 2021 (RoFormer), section 3.2): queries and keys turned by their positions.

Position m turns the i-th pair of a head's numbers by the angle m base^(-2i / head width), so that the product of a
query and a key depends on how far apart they are alone. A pair is either two neighbours (RoFormer) or one number of
each half (GPT-NeoX, ModernBERT). Positions count from each sequence's start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import pi

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """Which pairs are rotated, and how fast.

    Attributes:
        base: of the angles' geometric series.
        interleaved: pairs are neighbours, (0, 1), (2, 3), ...; otherwise i and i + head width / 2.
    """

    base: float = 10000.0
    interleaved: bool = False

    def tables(self, length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angles at the first positions.

        They are computed in float64 and rounded to the type of `like` once, and kept for the next call.

        Args:
            length: number of positions.
            width: of a head.
            like: what is to be rotated: its type and device.

        Returns:
            Two tensors (length, width / 2).
        """
        if torch.compiler.is_compiling():  # the length may be a symbol, and the tensors are not real ones
            return _tables(self.base, length, width, like.dtype, like.device)
        cos, sin = _cached_tables(self.base, 1 << (length - 1).bit_length(), width, like.dtype, like.device)
        return cos[:length], sin[:length]

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return x rotated.

        Shape:
            x: (..., width); cos, sin: broadcast to (..., width / 2).
        """
        first, second = self._pairs(x)
        turned = first * cos - second * sin, second * cos + first * sin
        return torch.stack(turned, -1).flatten(-2) if self.interleaved else torch.cat(turned, -1)

    def rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Rotate x in place, faster than `rotate`.

        Shape:
            x: (..., width), contiguous; cos, sin: broadcast to (..., width / 2).
        """
        if self.interleaved:  # a CPU is slow with every second number, and fast with complex ones
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            turns = torch.complex(cos.to(wide.dtype), sin.to(wide.dtype))
            torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2)).mul_(turns)
            if wide is not x:
                x.copy_(wide)
            return
        first, second = self._pairs(x)
        rest = first * sin
        first.mul_(cos).addcmul_(second, sin, value=-1)
        second.mul_(cos).add_(rest)

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the second number of each pair, both (..., width / 2)."""
        if self.interleaved:
            return x[..., ::2], x[..., 1::2]
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]


def _tables(base: float, length: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width  # (width / 2,)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * base**-exponents  # (length, width / 2)
    # taken to one turn in float64, so that float32 is enough for the cosine, which some runtimes have in it alone
    angles = angles.remainder(2 * pi).to(torch.promote_types(dtype, torch.float32))
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


@lru_cache(maxsize=64)
def _cached_tables(
    base: float, length: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # what is made in inference mode cannot be saved for a later backward pass
        return _tables(base, length, width, dtype, device)
