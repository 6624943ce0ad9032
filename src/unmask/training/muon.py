"""Muon's direction: momentum, orthogonalized (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

Input: matrices. Output: matrices of the same shape whose singular values are all about 1: U V^T of the singular value
decomposition U S V^T, approximated by five Newton-Schulz iterations, which are products of matrices and so are as fast
in bf16 as training itself. The iterations map singular values from about 0.01 up to 1 into [0.7, 1.2]; exactly 1 is not
needed.

Matrices of one shape are multiplied as one batch. The step is scaled by 0.2 sqrt(larger dimension), so that its root
mean square is that of AdamW's (Liu et al. 2025 (Moonlight), section 2.2) and both can have a similar learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SCALE = 0.2
"""Root mean square of an update at a learning rate of 1."""


def directions(matrices: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the scaled direction of each matrix, in the dtype of the computation.

    Args:
        matrices: matrices of any shapes, (rows, columns) each.
        dtype: dtype of the products.
    """
    shapes: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(matrices):
        shapes.setdefault(matrix.shape, []).append(index)
    found: list[Tensor] = list(matrices)
    for shape, indices in shapes.items():
        stacked = torch.stack([matrices[index] for index in indices]).to(dtype)  # (matrices, rows, columns)
        scaled = orthogonalize(stacked).mul_(SCALE * max(shape) ** 0.5)
        for index, direction in zip(indices, scaled, strict=True):
            found[index] = direction
    return found


def orthogonalize(x: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values of about 1.

    Shape:
        x: (matrices, rows, columns).
    """
    first, third, fifth = COEFFICIENTS
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (matrices, rows, rows)
        polynomial = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        x = torch.baddbmm(x, polynomial, x, beta=first)
    return x.mT if tall else x
