"""Rotary position embeddings (Su et al. 2021 (RoFormer), section 3.2): queries and keys rotated by their positions.

Position m rotates the i-th pair of a head's components by the angle m base^(-2i / head width), so that the product of
a query and a key depends only on their distance. A pair consists of two adjacent components (RoFormer) or of one
component of each half (GPT-NeoX, ModernBERT). Positions count from the start of each sequence.

Attention may start local: the scores of a head are then highest at an offset. Rotary positions need biases only
(`Rotation.biases`). With learned positions, the first columns of the table of positions are sinusoids (Vaswani et al.
2017, section 3.5, of shorter wavelengths), and the query and key weights of the head read only these (`readers`). All
of these weights are trained like any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import pi

import torch
from torch import Tensor

CONTRAST = 2.0
"""By how much `Rotation.biases` score the token at the offset above its two neighbors."""
SELECTIVE = 0.2
"""Minimum angle per position of the pairs that `Rotation.biases` use: slower ones hardly tell neighbors apart."""
PAIRS = 8
"""Number of pairs of sine and cosine."""
FASTEST, SLOWEST = 1.5, 0.02
"""Angles per position of the first and of the last pair; the others are a geometric series in between."""
AMPLITUDE = 5.0
"""Amplitude of the sinusoids, in standard deviations of the other initial weights."""


@dataclass(frozen=True)
class Rotation:
    """The pairs and angles of a rotation.

    Attributes:
        base: base of the angles' geometric series.
        interleaved: whether pairs are adjacent, (0, 1), (2, 3), ...; otherwise they are i and i + head width / 2.
    """

    base: float = 10000.0
    interleaved: bool = False

    def tables(self, length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angles at the first positions.

        They are computed in float64, rounded once to the dtype of `like`, and cached.

        Args:
            length: number of positions.
            width: width of a head.
            like: tensor to be rotated, which determines dtype and device.

        Returns:
            Two tensors (length, width / 2).
        """
        if torch.compiler.is_compiling():  # the length may be symbolic, and the tensors are fake tensors
            return _tables(self.base, length, width, like.dtype, like.device)
        cos, sin = _cached_tables(self.base, 1 << (length - 1).bit_length(), width, like.dtype, like.device)
        return cos[:length], sin[:length]

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return x rotated.

        Shape:
            x: (..., width); cos, sin: broadcast to (..., width / 2).
        """
        first, second = self._pairs(x)
        rotated = first * cos - second * sin, second * cos + first * sin
        return torch.stack(rotated, -1).flatten(-2) if self.interleaved else torch.cat(rotated, -1)

    def rotate_(self, x: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Rotate x in place, faster than `rotate`.

        Shape:
            x: (..., width), contiguous; cos, sin: broadcast to (..., width / 2).
        """
        if self.interleaved:  # on a CPU strided access is slow, but complex multiplication is fast
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            factors = torch.complex(cos.to(wide.dtype), sin.to(wide.dtype))
            torch.view_as_complex(wide.view(*x.shape[:-1], -1, 2)).mul_(factors)
            if wide is not x:
                x.copy_(wide)
            return
        first, second = self._pairs(x)
        product = first * sin
        first.mul_(cos).addcmul_(second, sin, value=-1)
        second.mul_(cos).add_(product)

    def biases(self, offset: int, width: int) -> tuple[Tensor, Tensor]:
        """Return a query and a key whose score, divided by sqrt(width), is highest at an offset of their positions.

        In each of the fast pairs the query is ahead of the key by the angle of `offset` positions.

        Args:
            offset: position of the key minus that of the query.
            width: width of a head.

        Returns:
            Two vectors (width,).
        """
        angles = self.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # (width / 2,)
        fast = angles > SELECTIVE  # (width / 2,)
        scale = CONTRAST * width**0.5 / (fast * (1 - angles.cos())).sum()
        query, key = torch.zeros(2, width)
        for vector, phases in ((query, offset * angles), (key, 0 * angles)):
            for part, values in zip(self._pairs(vector), (phases.cos(), phases.sin()), strict=True):
                part.copy_(values * fast * scale.sqrt())
        return query, key

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the second component of each pair, both (..., width / 2)."""
        if self.interleaved:
            return x[..., ::2], x[..., 1::2]
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]


def _tables(base: float, length: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width  # (width / 2,)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * base**-exponents  # (length, width / 2)
    # reduced modulo 2 pi in float64, so that float32 suffices for the cosine: some runtimes support no other dtype
    angles = angles.remainder(2 * pi).to(torch.promote_types(dtype, torch.float32))
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


@lru_cache(maxsize=64)
def _cached_tables(
    base: float, length: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # tensors created in inference mode cannot be saved for a later backward pass
        return _tables(base, length, width, dtype, device)


def num_pairs(width: int) -> int:
    """Return how many pairs fit into a width."""
    return min(PAIRS, width // 2)


def angles(pairs: int) -> Tensor:
    """Return the angles per position of the first pairs, (pairs,)."""
    return FASTEST * (SLOWEST / FASTEST) ** (torch.arange(pairs) / (PAIRS - 1))


def sinusoids(positions: int, width: int) -> Tensor:
    """Return cosine and sine of each pair at each position, (positions, 2 * pairs)."""
    phases = torch.arange(positions)[:, None] * angles(num_pairs(width))  # (positions, pairs)
    return torch.stack([phases.cos(), phases.sin()], 2).flatten(1)


def readers(offset: int, head_width: int, width: int) -> tuple[Tensor, Tensor]:
    """Return query and key weights whose scores are highest at an offset of their positions.

    The gain assumes that the sum of word, position and segment embeddings was normalized.

    Args:
        offset: position of the key minus that of the query.
        head_width: width of the head.
        width: width of its input, whose first columns are the sinusoids.

    Returns:
        Two matrices (2 * pairs, 2 * pairs), for the first rows and columns of the head's weights.
    """
    pairs = min(num_pairs(head_width), num_pairs(width))
    angle = angles(pairs)
    squared = AMPLITUDE**2 * width / (PAIRS * AMPLITUDE**2 + 3 * width)  # of the norm of a normalized pair
    gain = (CONTRAST * head_width**0.5 / squared / (1 - angle.cos()).sum()).sqrt()
    cos, sin = (offset * angle).cos(), (offset * angle).sin()
    turned = torch.zeros(2 * pairs, 2 * pairs)
    turned[::2, ::2], turned[::2, 1::2] = cos.diag(), -sin.diag()
    turned[1::2, ::2], turned[1::2, 1::2] = sin.diag(), cos.diag()
    return gain * turned, gain * torch.eye(2 * pairs)
