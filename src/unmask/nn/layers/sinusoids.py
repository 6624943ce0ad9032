"""Initial weights with which attention by learned positions starts local.

The first columns of the table of positions are sinusoids (Vaswani et al. 2017, section 3.5, of shorter wavelengths),
and the query and key weights of a head read only these, so that its scores are highest at an offset. All of these
weights are trained like any others. Rotary positions need biases only: see `Rotation.biases`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.nn.layers.linear import Linear
from unmask.nn.layers.rotary import CONTRAST

PAIRS = 8
"""Number of pairs of sine and cosine."""
FASTEST, SLOWEST = 1.5, 0.02
"""Angles per position of the first and of the last pair; the others are a geometric series in between."""
AMPLITUDE = 5.0
"""Amplitude of the sinusoids, in standard deviations of the other initial weights."""


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


@torch.no_grad()
def pass_on_(project: Linear) -> None:
    """Let a projection pass on the sinusoids in the first columns, and keep the scale that the readers assume."""
    size = 2 * min(num_pairs(project.in_features), num_pairs(project.out_features))
    project.weight /= project.weight.std() * project.in_features**0.5
    project.weight[:size] = 0
    project.weight[:size, :size] = torch.eye(size)
