"""Products of float32 with matrices in panels, on processors with AVX2 or AVX-512: fastest of few rows, as of a text.

A panel holds 16 rows of a weight, column by column, as the product reads them. torch's libraries rearrange a weight for
each product, which takes as long as a product of some 16 rows; and with few rows they use little of a second core.

The products are a C extension (_panels.c), which pip compiles where there is a C compiler. Without it, and on other
processors, `registers` is 0. Arguments of `multiply` are checked here, as the extension gets addresses.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

try:
    from unmask.support import _panels
except ImportError:  # no compiler, or torch has another library for its threads
    _panels = None  # type: ignore[assignment]

WIDE = 16
"""Rows of a weight in a panel."""
FLOAT = torch.float32


@cache
def registers() -> int:
    """Return the bits of the registers that products use: 512 with AVX-512, 256 with AVX2, 0 where there are none."""
    return 0 if _panels is None else _panels.registers()


def fits(weight: Tensor) -> bool:
    """Return whether a weight, (outputs, width), can be packed: float32 on the CPU, with full panels."""
    return weight.is_cpu and weight.dtype == torch.float32 and not weight.shape[0] % WIDE and weight.numel() > 0


def pack(weight: Tensor) -> Tensor:
    """Return a weight that `fits`, (outputs, width), in panels, (outputs / 16, width, 16)."""
    outputs, width = weight.shape
    return weight.detach().reshape(outputs // WIDE, WIDE, width).transpose(1, 2).contiguous()


class Norm(NamedTuple):
    """LayerNorm of the outputs: weight and bias, (outputs,) each, and epsilon."""

    weight: Tensor
    bias: Tensor | None
    epsilon: float


class Product(NamedTuple):
    """x weight^T + bias, and what is done with it.

    Attributes:
        panels: what `pack` returned.
        bias: (outputs,).
        gelu: whether GELU is applied, with erf to 1.5e-7.
        norm: applied after that.
    """

    panels: Tensor
    bias: Tensor | None = None
    gelu: bool = False
    norm: Norm | None = None


def multiply(x: Tensor, product: Product, onto: Tensor | None = None) -> Tensor:
    """Return a product, with a matrix added before GELU and LayerNorm; without gradient.

    A row of the result does not depend on which other rows there are.

    Args:
        x: (rows, width).
        product: what is computed.
        onto: (rows, outputs).

    Returns:
        (rows, outputs).

    Raises:
        ValueError: an argument is not float32, not on the CPU or of another shape.
    """
    x = x.contiguous()
    onto = None if onto is None else onto.contiguous()
    y = x.new_empty(len(x), _outputs(product))
    _panels.multiply(registers(), torch.get_num_threads(), *_fields(x, product, onto, y))
    return y


def transform(x: Tensor, onto: Tensor, product: Product, up: Product, down: Product) -> Tensor:
    """Return down(up(y)) + y, where y is the first product with `onto`: what follows attention in a layer.

    Faster than three calls of `multiply`; arguments, result and errors are as there.
    """
    x, onto = x.contiguous(), onto.contiguous()
    y, inner = torch.empty_like(onto), x.new_empty(len(x), _outputs(up))
    _panels.multiply(
        registers(),
        torch.get_num_threads(),
        *_fields(x, product, onto, y),
        *_fields(y, up, None, inner),
        *_fields(inner, down, y, y),  # each number is read before it is written
    )
    return y


def _outputs(product: Product) -> int:
    return product.panels.shape[0] * WIDE


def _fields(x: Tensor, product: Product, onto: Tensor | None, y: Tensor) -> tuple[float, ...]:
    """Return the fields of a product in _panels.c, whose tensors must live until it is computed.

    Raises:
        ValueError: a tensor does not fit.
    """
    panels, bias, gelu, norm = product
    packed = panels.ndim == 3 and panels.shape[2] == WIDE and panels.dtype is FLOAT
    if not packed or not (panels.is_cpu and panels.is_contiguous()):
        raise ValueError("a weight in panels is needed, as `pack` returns it")
    if x.ndim != 2 or not x.is_contiguous() or not y.is_contiguous():
        raise ValueError("a matrix is needed")
    rows, width = x.shape
    outputs = panels.shape[0] * WIDE
    scale, shift, epsilon = (None, None, 0.0) if norm is None else norm
    if norm is not None and scale is None:
        raise ValueError("a norm needs a weight, in float32 on the CPU")
    for vector in (bias, scale, shift):
        if vector is None:
            continue
        if vector.dtype is not FLOAT or vector.shape != (outputs,) or not (vector.is_cpu and vector.is_contiguous()):
            raise ValueError(f"a vector of {outputs} adjacent numbers is needed, in float32 on the CPU")
    if x.dtype is not FLOAT or not x.is_cpu or panels.shape[1] != width or y.shape != (rows, outputs):
        raise ValueError(f"a matrix {panels.shape[1]} wide is needed, in float32 on the CPU")
    if onto is not None and (onto.dtype is not FLOAT or not onto.is_cpu or onto.shape != y.shape):
        raise ValueError(f"a matrix to add of {rows} rows and {outputs} columns is needed, in float32 on the CPU")
    addresses = (0 if part is None else part.data_ptr() for part in (x, panels, bias, onto, y))
    norms = (0 if part is None else part.data_ptr() for part in (scale, shift))
    return *addresses, rows, width, outputs, gelu, *norms, epsilon
