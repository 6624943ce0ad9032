"""Products of float32 with matrices in panels, on processors with AVX2: the fastest ones of few rows, such as a text's.

A panel holds 16 rows of a weight, column by column, as the product reads them. torch's libraries rearrange a weight for
each product, which takes as long as a product of some 16 rows; and with few rows they use little of a second core.

The products are a C extension (_panels.c), which pip compiles where there is a C compiler. Without it, and on other
processors, `available` is False. Arguments of `multiply` are checked here, as the extension gets addresses.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

try:
    from unmask.support import _panels
except ImportError:  # no compiler, or torch has another library for its threads
    _panels = None  # type: ignore[assignment]

WIDE = 16
"""Rows of a weight in a panel."""


@cache
def available() -> bool:
    """Return whether the extension is installed and this processor has its instructions."""
    return _panels is not None and _panels.available()


def fits(weight: Tensor) -> bool:
    """Return whether a weight, (outputs, width), can be packed: float32 on the CPU, with full panels."""
    return weight.is_cpu and weight.dtype == torch.float32 and not weight.shape[0] % WIDE and weight.numel() > 0


def pack(weight: Tensor) -> Tensor:
    """Return a weight that `fits`, (outputs, width), in panels, (outputs / 16, width, 16)."""
    outputs, width = weight.shape
    return weight.detach().view(outputs // WIDE, WIDE, width).transpose(1, 2).contiguous()


def multiply(x: Tensor, panels: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias + onto, without gradient; a row does not depend on which other rows there are.

    Shape:
        x: (rows, width); panels: what `pack` returned; bias: (outputs,); onto: (rows, outputs); all float32; returns
        (rows, outputs).

    Raises:
        ValueError: an argument has another dtype, device or shape.
    """
    rows, width = x.shape
    count, depth, _ = panels.shape
    outputs = count * WIDE
    x = _checked(x, (rows, depth))
    y = torch.empty(rows, outputs)
    _panels.multiply(
        x.data_ptr(),
        _checked(panels, (count, width, WIDE)).data_ptr(),
        0 if bias is None else (bias := _checked(bias, (outputs,))).data_ptr(),
        0 if onto is None else (onto := _checked(onto, (rows, outputs))).data_ptr(),
        y.data_ptr(),
        *(rows, width, outputs, torch.get_num_threads()),
    )
    return y


def _checked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor whose numbers are in order in memory."""
    if x.dtype != torch.float32 or not x.is_cpu or x.shape != shape:
        raise ValueError(f"float32 of shape {shape} on the CPU is needed, not {x.dtype} of {tuple(x.shape)}")
    return x.contiguous()
