"""Linear layers whose products have few shapes, and use oneDNN for float32 where it is faster.

oneDNN compiles a kernel for each new shape of a product, which with AMX takes several times as long as a small product
itself, and keeps it in memory. The number of tokens is new in nearly every step, so matrices are filled up with rows of
zeros to one of few numbers of rows (`fill_up`).

torch uses MKL for float32 products, which does not use AVX-512 on CPUs of other makers than Intel: there oneDNN is up
to one and a half times as fast, in the forward pass and for the gradient of the input. On Intel CPUs MKL is as fast in
the forward pass, up to twice as fast for that gradient, and needs no kernel for each new shape. Which of the two is
used is measured (capabilities.py). In bf16 torch uses oneDNN anyway. The operators are private: where torch lacks them,
or the processor, layers compute as torch.nn.Linear does.

For inference a layer keeps its matrix in the order in which it is read (`Linear.keeps_packed`): that of oneDNN, or in
panels (support/panels.py), whose products of few rows are the fastest on many processors. With tiles of AMX they are
fast enough to arrange matrices for each product of few rows in training, too, and need no kernel for each new shape.
A layer that is to compute in int8 keeps bytes in panels (`Linear.keep_bytes_of`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from unmask.support import panels
from unmask.support.capabilities import onednn_multiplies, panels_multiply

STEPS_PER_OCTAVE = 5
"""Binary digits of a number of rows that are kept."""
FEW = 1024
"""Most rows of products that are computed with tiles in training: oneDNN's, which are compiled for each number of rows,
are as fast then, and faster with more."""
IN_PANELS = 3
"""Dimensions of a matrix in panels."""


State: TypeAlias = tuple[int, int]


def state_of(parameter: Tensor | None) -> State:
    """Return what differs after a change: the number of changes, 0 where none are counted, and where the memory is."""
    if parameter is None:
        return 0, 0
    return 0 if parameter.is_inference() else parameter._version, parameter.data_ptr()


class Linear(nn.Linear):
    """Linear layer with the interface of torch.nn.Linear.

    Attributes:
        stacked: number of matrices that are stacked in the rows of the weight, such as query, key and value.
        keeps_packed: whether to keep what `packed` returns, for products without gradient.
        in_bytes: whether these are then in int8.
    """

    stacked = 1
    keeps_packed = False
    in_bytes = False
    _kept: tuple[State, Tensor] | None = None

    def keep_bytes_of(self, weight: Tensor) -> None:
        """Compute without gradient in int8 from now on, if panels of bytes are possible.

        Args:
            weight: the matrix before it was rounded to this layer's, (outputs, width).
        """
        self.in_bytes = panels.fits_bytes(weight)
        if self.in_bytes:
            self.keeps_packed, self._kept = True, (state_of(self.weight), panels.pack_bytes(weight))

    def forward(self, x: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Return x weight^T + bias, (tokens, width of the output), after an activation where one is given."""
        computes = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        weight = self._packed() if computes and self.keeps_packed else self.weight
        in_tiles = not computes and _in_tiles(x, weight)
        filled = x if in_tiles or weight.ndim == IN_PANELS else fill_up(x)
        if computes:
            y = product(filled, weight, self.bias, activation)
        else:
            function = _InTiles.apply if in_tiles else _Linear.apply if _replaces_blas(x) else linear
            y = function(filled, self.weight, self.bias)
            y = y if activation is None else activation(y)
        return y if filled is x else y[: len(x)]

    def in_panels(self) -> Tensor | None:
        """Return the matrix in panels (support/panels.py), if the products are now computed with these."""
        if not self.keeps_packed or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        weight = self._packed()
        return weight if weight.ndim == IN_PANELS else None

    def _packed(self) -> Tensor:
        """Return the matrix as `packed` does, anew if the weight has changed."""
        weight, kept = self.weight, self._kept
        state = state_of(weight)
        if kept is None or kept[0] != state:
            self._kept = kept = state, panels.pack_bytes(weight) if self.in_bytes else packed(weight)
        return kept[1]


class _InTiles(torch.autograd.Function):
    """Products of few rows with tiles of AMX, and their gradients, from panels that are made for each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return panels.multiply(x, panels.Product(panels.pack(weight), bias))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), grad = ctx.saved_tensors, grads[0].contiguous()
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = panels.multiply(grad, panels.Product(panels.pack_columns(weight)))
        if ctx.needs_input_grad[1]:
            of_weight = panels.multiply(panels.transpose(grad), panels.Product(panels.pack_columns(x)))
        return of_x, of_weight, grad.sum(0) if ctx.needs_input_grad[2] else None


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


def is_exact_gelu(activation: nn.Module | None) -> bool:
    """Return whether an activation is GELU by erf, and not by its approximation."""
    return isinstance(activation, nn.GELU) and activation.approximate == "none"


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: nn.Module | None = None) -> Tensor:
    """Return x weight^T + bias, after an activation where one is given, computed in the fastest way.

    With oneDNN and in panels the result has no gradient. The weight may be one that `packed` returned: then oneDNN adds
    the bias, which torch in bf16 copies to every row first, and in bf16 applies GELU, to its float32 sums. In panels
    GELU is applied, too.
    """
    if weight.ndim == IN_PANELS:
        exact = is_exact_gelu(activation)
        y = panels.multiply(x, panels.Product(weight, bias, exact))
        activation = None if exact else activation
    elif not (weight.is_mkldnn or _replaces_blas(x)):
        y = linear(x, weight, bias)
    elif x.dtype == torch.bfloat16 and isinstance(activation, nn.GELU):
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu", [], activation.approximate)
        activation = None
    else:
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y if activation is None else activation(y)


def product_plus(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    """Return x weight^T + other as `product` computes it, (rows, width of the output)."""
    if weight.ndim == IN_PANELS:
        return panels.multiply(x, panels.Product(weight), other)
    if not (weight.is_mkldnn or _replaces_blas(x)):
        return torch.addmm(other, x, weight.t())
    y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, None, "add")
    return y


def packed(weight: Tensor) -> Tensor:
    """Return a matrix in the order in which products read it, for many products with few rows each; without gradient.

    Libraries otherwise reorder it for each product, which takes about as long as a product with 32 rows. Where neither
    panels nor oneDNN are used, the matrix itself is returned.
    """
    if panels.fits(weight) and panels_multiply(weight.dtype):
        return panels.pack(weight)
    if not _by_onednn(weight):
        return weight
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return reordered


def _in_tiles(x: Tensor, weight: Tensor) -> bool:
    """Return whether a product and its gradients are computed with tiles of AMX."""
    if x.dtype is not torch.bfloat16 or not x.is_cpu or torch.compiler.is_compiling() or not panels.has_tiles():
        return False
    fits = x.ndim == 2 and len(x) <= FEW and not any(size % panels.DEEP for size in weight.shape)
    return fits and panels_multiply(x.dtype)


def _replaces_blas(x: Tensor) -> bool:
    """Return whether oneDNN's private operators compute products with a tensor; in bf16 torch itself calls oneDNN."""
    return x.dtype == torch.float32 and _by_onednn(x)


def _by_onednn(x: Tensor) -> bool:
    """Return whether products with a tensor are computed by oneDNN, be it by torch or by its private operators."""
    return x.is_cpu and not torch.compiler.is_compiling() and onednn_multiplies(x.dtype)


def fill_up(x: Tensor) -> Tensor:
    """Append rows of zeros to a matrix, so that one of few shapes results: (rows, width) to (rows or more, width).

    At most every 16th row is added; where products need no kernels, none, and `x` itself is returned.
    """
    if not _by_onednn(x):
        return x
    missing = -len(x) % (1 << max(0, len(x).bit_length() - STEPS_PER_OCTAVE))
    return pad(x, (0, 0, 0, missing)) if missing else x
