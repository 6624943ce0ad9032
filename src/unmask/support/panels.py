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


def multiply(
    x: Tensor, panels: Tensor, bias: Tensor | None = None, onto: Tensor | None = None, *, gelu: bool = False
) -> Tensor:
    """Return x weight^T + bias + onto, without gradient; a row does not depend on which other rows there are.

    Args:
        x: (rows, width).
        panels: what `pack` returned.
        bias: (outputs,).
        onto: (rows, outputs).
        gelu: whether to return GELU of the sum, with erf to 1.5e-7.

    Returns:
        (rows, outputs).

    Raises:
        ValueError: an argument is not float32, not on the CPU or of another shape.
    """
    count, width, wide = panels.shape
    rows, outputs = len(x), count * wide
    x, bias_at, onto_at = x.contiguous(), 0, 0
    wrong = x.dtype != torch.float32 or not x.is_cpu or x.shape != (rows, width)
    if bias is not None:
        wrong |= bias.dtype != torch.float32 or not bias.is_cpu or bias.shape != (outputs,)
        bias = bias.contiguous()
        bias_at = bias.data_ptr()
    if onto is not None:
        wrong |= onto.dtype != torch.float32 or not onto.is_cpu or onto.shape != (rows, outputs)
        onto = onto.contiguous()
        onto_at = onto.data_ptr()
    if wrong:
        raise ValueError(f"float32 on the CPU is needed, {width} wide and for {outputs} outputs")
    y = x.new_empty(rows, outputs)
    _panels.multiply(
        *(x.data_ptr(), panels.data_ptr(), bias_at, onto_at, y.data_ptr()),
        *(rows, width, outputs, gelu, torch.get_num_threads()),
    )
    return y
