"""Functions of the rows of matrices that layers compute between their products, and their gradients.

They are for training on a CPU, in float32 or bf16, and computed in float32. Each is one loop over memory, where torch
takes several: dropout, residual connection and LayerNorm are one, GELU and its gate another.

They are a C extension (_rows.c), which pip compiles where there is a C compiler; elsewhere nothing `fits`. Arguments
are checked here, as the extension gets addresses.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    from unmask.support import _rows
except ImportError:  # no compiler, or torch has another library for its threads
    _rows = None  # type: ignore[assignment]

LANES = 16
"""Number of which widths are multiples."""
TYPES = (torch.float32, torch.bfloat16)
"""Types of the numbers."""


def fits(x: Tensor, parts: int = 1) -> bool:
    """Return whether the functions here compute a matrix: on the CPU, of float32 or bf16, with whole registers.

    Args:
        x: (rows, width).
        parts: number of equal parts of a row, which are such rows, too.
    """
    matrix = x.ndim == 2 and x.dtype in TYPES and x.is_cpu and not x.shape[1] % (LANES * parts)
    return matrix and _rows is not None


def norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
    onto: Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm of z, which is onto + dropout(x), or x; without gradient.

    Args:
        x, onto: (rows, width) each; without `onto` there is no dropout.
        weight, bias: (width,) each.
        epsilon: added to the variance.
        dropout: share of the numbers of x that are set to 0, at random; the others are scaled up.
        seed: determines which; from 0 to 2^63 - 1.

    Returns:
        The result and z, (rows, width) each, and mean and reciprocal standard deviation of z, (rows, 2) float32.

    Raises:
        ValueError: an argument has another type or shape, or is out of bounds.
    """
    x = x.contiguous()
    _check(x, x.shape, x)
    _check(x, x.shape[1:], weight, bias)
    if onto is not None:
        _check(x, x.shape, onto := onto.contiguous())
    elif dropout:
        raise ValueError("dropout needs a matrix that its result is added to")
    z = x if onto is None else torch.empty_like(x)
    y, statistics = torch.empty_like(x), x.new_empty(len(x), 2, dtype=torch.float32)
    fields = *map(_address, (x, onto, z, y, statistics, weight, bias)), *x.shape, _dropped(dropout, seed), seed
    _rows.norm(x.dtype is torch.bfloat16, torch.get_num_threads(), *fields, epsilon)
    return y, z, statistics


def norm_back(
    grad: Tensor, z: Tensor, statistics: Tensor, weight: Tensor, dropout: float = 0.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `norm`.

    Args:
        grad: that of the result, (rows, width).
        z, statistics: what `norm` returned.
        weight, dropout, seed: as there.

    Returns:
        The gradients of z, which is that of `onto`, and of x, (rows, width) each, and of weight and bias, (2, width)
        float32, summed in float32.

    Raises:
        ValueError: see `norm`.
        MemoryError: too little memory.
    """
    grad = grad.contiguous()
    _check(z, z.shape, z, grad)
    _check(z, z.shape[1:], weight)
    of_z = torch.empty_like(z)
    of_x = torch.empty_like(z) if dropout else of_z
    sums = z.new_empty(2, z.shape[1], dtype=torch.float32)
    matrices = map(_address, (grad, z, statistics, weight, of_z, of_x, sums))
    if statistics.shape != (len(z), 2) or statistics.dtype is not torch.float32 or not statistics.is_contiguous():
        raise ValueError("statistics are needed as `norm` returned them")
    _rows.norm_back(
        z.dtype is torch.bfloat16, torch.get_num_threads(), *matrices, *z.shape, _dropped(dropout, seed), seed
    )
    return of_z, of_x, sums


def gelu(x: Tensor, *, gated: bool = False) -> Tensor:
    """Return GELU of a matrix, with erf to 1.5e-7; without gradient.

    Args:
        x: (rows, width).
        gated: whether the result is GELU of the first half of each row times the second half, (rows, width / 2).

    Raises:
        ValueError: x has another type or shape.
    """
    x = x.contiguous()
    y = x.new_empty(len(x), x.shape[1] // 2) if gated else torch.empty_like(x)
    return _gelu(x, None, y, gated)


def gelu_back(grad: Tensor, x: Tensor, *, gated: bool = False) -> Tensor:
    """Return the gradient of x, (rows, width), given that of the result of `gelu`.

    Raises:
        ValueError: a matrix has another type or shape.
    """
    x, grad = x.contiguous(), grad.contiguous()
    _check(x, torch.Size([len(x), x.shape[1] // 2]) if gated else x.shape, grad)
    return _gelu(x, grad, torch.empty_like(x), gated)


def _gelu(x: Tensor, grad: Tensor | None, y: Tensor, gated: bool) -> Tensor:
    _check(x, x.shape, x, parts=2 if gated else 1)
    shape = len(x), x.shape[1] // 2 if gated else x.shape[1]
    fields = *map(_address, (x, grad, y)), *shape, gated
    _rows.gelu(x.dtype is torch.bfloat16, torch.get_num_threads(), *fields)
    return y


def _check(like: Tensor, shape: torch.Size, *tensors: Tensor | None, parts: int = 1) -> None:
    """Check that a matrix `fits`, and that tensors have its type and a shape.

    Raises:
        ValueError: they do not.
    """
    if not fits(like, parts):
        raise ValueError(f"a matrix is needed, float32 or bf16 on the CPU, as wide as a multiple of {LANES * parts}")
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.dtype is not like.dtype or tensor.shape != shape or not (tensor.is_cpu and tensor.is_contiguous()):
            raise ValueError(f"adjacent numbers of the matrix's type are needed in the shape {tuple(shape)}")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _dropped(dropout: float, seed: int) -> int:
    """Return how many of 2^32 numbers are dropped.

    Raises:
        ValueError: the share or the seed is out of bounds.
    """
    if not 0 <= dropout < 1 or seed < 0:
        raise ValueError("the share of numbers that are dropped must be from 0 to below 1, and the seed positive")
    return min(round(dropout * 2**32), 2**32 - 1)
