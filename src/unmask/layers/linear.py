"""Linear layers whose products have few shapes, and use oneDNN for float32 on CPUs not made by Intel.

oneDNN compiles a kernel for each new shape of a product, which with AMX takes several times as long as a small product
itself, and keeps it in memory. The number of tokens is new in nearly every step, so matrices are filled up with rows of
zeros to one of few numbers of rows (`fill_up`).

torch uses MKL for float32 products, which does not use AVX-512 on CPUs of other makers: there oneDNN is up to one and
a half times as fast, in the forward pass and for the gradient of the input. On Intel CPUs MKL is as fast in the forward
pass, up to twice as fast for that gradient, and needs no kernel for each new shape. In bf16 torch uses oneDNN anyway.
The operator is private: if torch lacks it, layers compute as torch.nn.Linear does.

For inference a layer keeps its matrix in oneDNN's order (`Linear.keeps_packed`).
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

CPUS = Path("/proc/cpuinfo")
STEPS_PER_OCTAVE = 5
"""Binary digits of a number of rows that are kept."""


def is_intel() -> bool:
    """Return whether this machine's processor is made by Intel."""
    maker = CPUS.read_text(encoding="utf8", errors="replace") if CPUS.exists() else platform.processor()
    return "GenuineIntel" in maker


_ONEDNN = torch.backends.mkldnn.is_available() and not is_intel()  # type: ignore[no-untyped-call]


class Linear(nn.Linear):
    """Linear layer with the interface of torch.nn.Linear.

    Attributes:
        stacked: number of matrices that are stacked in the rows of the weight, such as query, key and value.
        keeps_packed: whether to keep what `packed` returns, for products without gradient.
    """

    stacked = 1
    keeps_packed = False
    _kept: tuple[int, Tensor] | None = None

    def forward(self, x: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Return x weight^T + bias, (tokens, width of the output), after an activation where one is given."""
        filled = fill_up(x)
        if not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
            y = product(filled, self._packed() if self.keeps_packed else self.weight, self.bias, activation)
        else:
            own = _Linear.apply if _by_onednn(x) else linear
            y = own(filled, self.weight, self.bias)
            y = y if activation is None else activation(y)
        return y if filled is x else y[: len(x)]

    def _packed(self) -> Tensor:
        """Return the matrix as `packed` does, anew if the weight has changed."""
        version = 0 if self.weight.is_inference() else self.weight._version
        if self._kept is None or self._kept[0] != version:
            self._kept = version, packed(self.weight)
        return self._kept[1]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (grad,) = ctx.saved_tensors, grads
        return (
            product(grad, weight.t()) if ctx.needs_input_grad[0] else None,
            grad.t() @ x if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: nn.Module | None = None) -> Tensor:
    """Return x weight^T + bias, after an activation where one is given, computed in the fastest way.

    With oneDNN the result has no gradient. The weight may be one that `packed` returned: then oneDNN adds the bias,
    which torch in bf16 copies to every row first, and in bf16 applies GELU, to its float32 sums.
    """
    if not (weight.is_mkldnn or _by_onednn(x)):
        y = linear(x, weight, bias)
    elif x.dtype == torch.bfloat16 and isinstance(activation, nn.GELU):
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu", [], activation.approximate)
        activation = None
    else:
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y if activation is None else activation(y)


def product_plus(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    """Return x weight^T + other as `product` computes it, (rows, width of the output)."""
    if not (weight.is_mkldnn or _by_onednn(x)):
        return torch.addmm(other, x, weight.t())
    y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, None, "add")
    return y


def packed(weight: Tensor) -> Tensor:
    """Return a matrix in the order in which oneDNN reads it, for many products with few rows each; without gradient.

    oneDNN otherwise reorders it for each product, which takes about as long as a product with 32 rows. Where oneDNN
    does not compute, the matrix itself is returned.
    """
    if not (_by_onednn(weight) or (weight.dtype == torch.bfloat16 and _in_bf16(weight))):
        return weight
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return reordered


def _in_bf16(x: Tensor) -> bool:
    operators = torch.ops.mkldnn
    available = hasattr(operators, "_linear_pointwise") and hasattr(operators, "_reorder_linear_weight")
    if not available or x.is_cuda or torch.compiler.is_compiling():
        return False
    return hasattr(operators, "_is_mkldnn_bf16_supported") and bool(operators._is_mkldnn_bf16_supported())


def _by_onednn(x: Tensor) -> bool:
    available = _ONEDNN and hasattr(torch.ops.mkldnn, "_linear_pointwise") and not torch.compiler.is_compiling()
    return available and not x.is_cuda and x.dtype == torch.float32


def fill_up(x: Tensor) -> Tensor:
    """Append rows of zeros to a matrix, so that one of few shapes results: (rows, width) to (rows or more, width).

    At most every 16th row is added; where products need no kernels, none, and `x` itself is returned.
    """
    if torch.compiler.is_compiling() or x.is_cuda or not (x.dtype == torch.bfloat16 or _by_onednn(x)):
        return x
    missing = -len(x) % (1 << max(0, len(x).bit_length() - STEPS_PER_OCTAVE))
    return pad(x, (0, 0, 0, missing)) if missing else x
