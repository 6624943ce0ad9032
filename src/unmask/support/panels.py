"""Products with matrices in panels, fastest of few rows, as of a text; attention by such products, with its gradient.

They are in float32 on processors with AVX2 or AVX-512, and in bf16 on those with AVX-512 for bf16 or AMX, whose tiles
multiply many rows, too, faster than those registers; so there training uses them as well. In int8, for inference, the
rows of matrices and weights become bytes, where processors have VNNI; numbers before and after are float32 or bf16.

A panel holds 16 rows of a weight, column by column, as the product reads them: in bf16 two columns together, in int8
four. torch's libraries rearrange a weight for each product, which takes as long as a product of some 16 rows; and with
few rows they use little of a second core.

The products are a C extension (_panels.c), which pip compiles where there is a C compiler. Without it, and on other
processors, `registers` is 0. Arguments of `multiply` are checked here, as the extension gets addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
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
DEEP = 32
"""Rows of which `pack_columns` and `transpose` fill up a matrix to a multiple."""
COLUMNS = {torch.float32: 1, torch.bfloat16: 2, torch.int8: 4}
"""Columns of a weight that lie together in a panel, by the type of its numbers."""
HEADER = 2
"""Lines of a panel of bytes before its columns: the scales of its rows, and the sums of their bytes."""
WIDEST = 2**16
"""Widest rows of bytes whose products fit into 32 bits."""
BYTE = 127
"""Largest byte of a weight."""
NUMBERS = (torch.float32, torch.bfloat16)
"""Types of what is multiplied, and of the result."""
BF16, TILES = 16, 8
"""What _panels.c takes for bf16 in place of the size of registers: with registers of 512 bits, and with tiles."""

_ROWS, _COLUMNS, _DOWN = range(3)
"""Orders of _panels.c."""


@cache
def registers() -> int:
    """Return the bits of the registers that products use: 512 with AVX-512, 256 with AVX2, 0 where there are none."""
    return 0 if _panels is None else _panels.registers()


@cache
def has_tiles() -> bool:
    """Return whether products in bf16 use the tiles of AMX."""
    return multiplies(torch.bfloat16) and _panels.has_tiles()


def multiplies(dtype: torch.dtype) -> bool:
    """Return whether there are products of such numbers here; int8: of rows that are rounded to bytes."""
    if dtype == torch.bfloat16:
        return _panels is not None and _panels.multiplies_bf16()
    if dtype == torch.int8:
        return _panels is not None and _panels.multiplies_bytes()
    return dtype == torch.float32 and registers() > 0


def fits(weight: Tensor) -> bool:
    """Return whether a weight, (outputs, width), can be packed: float32 or bf16 on the CPU, with full panels."""
    if not weight.is_cpu or weight.dtype not in NUMBERS or not weight.numel():
        return False
    return not weight.shape[0] % WIDE and not weight.shape[1] % COLUMNS[weight.dtype]


def pack(weight: Tensor) -> Tensor:
    """Return a weight that `fits`, (outputs, width), in panels.

    Returns:
        (outputs / 16, width, 16), in bf16 (outputs / 16, width / 2, 32).
    """
    if weight.dtype is torch.bfloat16:
        return _write(weight, _ROWS).view(len(weight) // WIDE, -1, 2 * WIDE)
    return weight.detach().reshape(len(weight) // WIDE, WIDE, -1).transpose(1, 2).contiguous()


def fits_bytes(weight: Tensor) -> bool:
    """Return whether a weight, (outputs, width), can be rounded to bytes: it `fits`, in rows of whole registers."""
    return fits(weight) and not weight.shape[1] % WIDE and weight.shape[1] <= WIDEST


def pack_bytes(weight: Tensor) -> Tensor:
    """Return a weight that `fits_bytes`, (outputs, width), in panels of bytes, each of its rows with a scale.

    Returns:
        (outputs / 16, 2 + width / 4, 64) int8: for each panel 16 scales in float32, the 16 sums of the bytes in int32,
        and then four columns at a time. What is infinite or no number makes the scale of its row none.
    """
    rows = weight.detach().float()
    scales = rows.abs().amax(1) / BYTE
    poison = (rows * 0).sum(1)  # a number that is none would be rounded to one
    whole = (rows / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round_().clamp_(-BYTE, BYTE)
    panels, each = len(weight) // WIDE, COLUMNS[torch.int8]
    lines = whole.to(torch.int8).view(panels, WIDE, -1, each).transpose(1, 2).reshape(panels, -1, WIDE * each)
    sums = lines.view(panels, -1, WIDE, each).sum((1, 3), dtype=torch.int32)  # (panels, 16)
    headers = (scales + poison).view(panels, WIDE), sums
    return torch.cat([*(line.view(torch.int8)[:, None] for line in headers), lines], 1)


def pack_columns(matrix: Tensor) -> Tensor:
    """Return a matrix of bf16, (rows, columns), in panels by which products multiply by it, not by its transpose.

    Rows are filled up to a multiple of 32 with zeros, as the columns of what `transpose` returns.

    Returns:
        (columns / 16, filled rows / 2, 32).

    Raises:
        ValueError: the matrix does not fit.
    """
    return _write(matrix, _COLUMNS).view(matrix.shape[1] // WIDE, -1, 2 * WIDE)


def transpose(matrix: Tensor) -> Tensor:
    """Return the transpose of a matrix that `pack_columns` takes, (columns, filled rows)."""
    return _write(matrix, _DOWN).view(matrix.shape[1], -1)


def _write(matrix: Tensor, order: int) -> Tensor:
    """Return the numbers of a matrix of bf16 in an order of _panels.c."""
    rows, columns = matrix.shape
    whole = not (rows % WIDE or columns % 2) if order == _ROWS else not columns % WIDE
    if not matrix.is_cpu or matrix.dtype is not torch.bfloat16 or not whole:
        raise ValueError("a matrix of whole panels is needed, in bfloat16 on the CPU")
    matrix = matrix.detach().contiguous()
    y = matrix.new_empty((rows if order == _ROWS else -(-rows // DEEP) * DEEP) * columns)
    _panels.pack(torch.get_num_threads(), matrix.data_ptr(), rows, columns, y.data_ptr(), order)
    return y


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
        gated: whether the first half of the outputs becomes its GELU times the second half, and is all that counts.
    """

    panels: Tensor
    bias: Tensor | None = None
    gelu: bool = False
    norm: Norm | None = None
    gated: bool = False


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
        ValueError: arguments are not all float32 or all bf16, but for panels of bytes, not on the CPU or of another
            shape.
        MemoryError: too little memory.
    """
    x = x.contiguous()
    onto = None if onto is None else onto.contiguous()
    y = x.new_empty(len(x), _outputs(product))
    _panels.multiply(_numbers(x), torch.get_num_threads(), *_fields(x, product, onto, y, y))
    return _real(y, product)


class Attention(NamedTuple):
    """softmax(query key^T / sqrt(head width)) value of sequences that lie one after the other.

    Nothing is padded, and sums are in float32.

    Attributes:
        offsets: where sequences begin and the last one ends, (sequences + 1,) int32.
        heads: number of heads, whose width is a multiple of 16.
        tables: cosine and sine of the angles by which pairs of components of queries and keys are rotated, (length of
            the longest sequence or more, head width / 2) each, float32; None: they are not rotated.
        adjacent: whether the components of a pair are, or one in each half.
        before, after: number of tokens before and after it that a token attends to; None: all of its sequence.
        dropout: share of the probabilities that are set to 0, at random; the others are scaled up.
        seed: determines which, also in the backward pass; from 0 to 2^63 - 1.
    """

    offsets: Tensor
    heads: int
    tables: tuple[Tensor, Tensor] | None = None
    adjacent: bool = False
    before: int | None = None
    after: int | None = None
    dropout: float = 0.0
    seed: int = 0


def attend(qkv: Tensor, attention: Attention, sums: Tensor | None = None) -> Tensor:
    """Return the outputs of attention.

    Args:
        qkv: queries, keys and values of all heads, (rows, 3 * width); after those of the sequences, others may follow.
        attention: what is computed.
        sums: set to what `attend_back` needs besides, (rows, heads, 2) float32.

    Returns:
        (rows, width), with 0 in rows of no sequence.

    Raises:
        ValueError: an argument has another type or shape, offsets do not ascend up to at most the number of rows, or a
            number of tokens is negative.
        MemoryError: too little memory.
    """
    y = qkv.new_empty(qkv.shape[0], qkv.shape[-1] // 3)
    _panels.attend(_numbers(qkv), torch.get_num_threads(), *_of_qkv(qkv, y, attention, sums))
    return y


def attend_back(grad: Tensor, qkv: Tensor, y: Tensor, attention: Attention, sums: Tensor) -> Tensor:
    """Return the gradient of queries, keys and values, with 0 in rows of no sequence.

    Args:
        grad: that of the outputs, (rows, width).
        qkv, attention, sums: those of `attend`.
        y: what that returned.

    Returns:
        (rows, 3 * width).

    Raises:
        ValueError, MemoryError: as there.
    """
    grad, of_qkv = grad.contiguous(), torch.empty_like(qkv)
    fields = _of_qkv(qkv, y, attention, sums)
    for matrix in (grad, y):
        if matrix.dtype is not qkv.dtype or matrix.shape != (qkv.shape[0], qkv.shape[1] // 3) or not matrix.is_cpu:
            raise ValueError("outputs and their gradients are needed, like queries, keys and values a third as wide")
    if not y.is_contiguous():
        raise ValueError("outputs are needed as `attend` returned them")
    _panels.attend_back(_numbers(qkv), torch.get_num_threads(), *fields, grad.data_ptr(), of_qkv.data_ptr())
    return of_qkv


class Layer:
    """A layer of an encoder: z = out(attention(qkv(x))) + x, and then down(up(z)) + z.

    Args:
        qkv, out, up, down: its products, each with what is done with it.
        begin: norm of what qkv reads; None: there is none.
        pre_norm: whether the norm of `out` is that of `up`'s input alone, and z is added without it.

    Raises:
        ValueError: the products do not fit, or not to each other.
    """

    def __init__(
        self,
        qkv: Product,
        out: Product,
        up: Product,
        down: Product,
        *,
        begin: Norm | None = None,
        pre_norm: bool = False,
    ) -> None:
        self.qkv, self.out, self.up, self.down, self.begin, self.pre_norm = qkv, out, up, down, begin, pre_norm
        products = qkv, out, up, down
        shapes = [(_width(product), _outputs(product)) for product in products]
        self.width, wide = _outputs(out), _outputs(up)
        inner = wide // 2 if up.gated else wide
        fit = [(self.width, 3 * self.width), (self.width, self.width), (self.width, wide), (inner, self.width)]
        if shapes != fit or len({product.panels.dtype for product in products}) > 1:
            raise ValueError("the products of a layer are needed, with fitting widths, in one type of numbers")
        if any(product.gelu or product.gated for product in (qkv, out, down)) or qkv.norm or up.norm or not out.norm:
            raise ValueError("a layer has GELU or a gate in `up` alone, and norms of `out` and perhaps `down`")
        if out.norm.weight is None:
            raise ValueError("a norm needs a weight")
        self.dtype = out.norm.weight.dtype if _are_bytes(out) else out.panels.dtype
        for product in products:
            _check(product, self.dtype)
        if begin is not None:
            _check(Product(out.panels, norm=begin), self.dtype)
        self.fields = _addresses(*(begin or (None, None))[:2])
        self.epsilons = tuple(0.0 if norm is None else norm.epsilon for norm in (begin, out.norm, down.norm))
        for product in products:
            scale, shift = (product.norm or (None, None))[:2]
            gelu = 2 if product.gated else int(product.gelu)
            weights, norms = _addresses(product.panels, product.bias), _addresses(scale, shift)
            self.fields += *weights, _width(product), _outputs(product), _are_bytes(product), gelu, *norms


def encode(x: Tensor, layers: Sequence[tuple[Layer, Attention]], rows: Tensor | None = None) -> Tensor:
    """Return the output of layers, one after the other, in one call; without gradient.

    Args:
        x: (tokens, width).
        layers: each with its attention; the tensors of a layer must have the memory that they had when it was made.
        rows: the tokens to return, (rows,) int64; None: all.

    Returns:
        (tokens or rows, width).

    Raises:
        ValueError: an argument has another type or shape; see `attend`.
        IndexError: a token to return is not there.
        MemoryError: too little memory.
    """
    x, width, dtype = x.contiguous(), layers[0][0].width, layers[0][0].dtype
    if any(layer.width != width or layer.dtype is not dtype for layer, _ in layers):
        raise ValueError("layers of one width are needed, in one type of numbers")
    if x.dtype is not dtype or not x.is_cpu or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"a matrix {width} wide is needed, {_where(dtype)}")
    if rows is not None and (rows.dtype is not torch.int64 or rows.ndim != 1 or not rows.is_cpu):
        raise ValueError("the numbers of rows are needed, int64 on the CPU")
    rows = None if rows is None else rows.contiguous()
    between = torch.empty_like(x)
    y = between if rows is None else x.new_empty(len(rows), width)
    fields: list[float] = []
    last: Attention | None = None
    for layer, attention in layers:
        if attention is not last:
            last, attends = attention, _attention_fields(len(x), width, attention, None)
        fields += 0, 0, *attends, layer.pre_norm, *layer.fields, *layer.epsilons
    addresses = x.data_ptr(), between.data_ptr(), y.data_ptr(), *_addresses(rows)
    _panels.layers(_numbers(x), torch.get_num_threads(), *addresses, len(y), *fields)
    return y


def transform(x: Tensor, onto: Tensor, layer: Layer) -> Tensor:
    """Return what follows attention in a layer, from the attention's output and what `out` is added to.

    Faster than three calls of `multiply`; arguments, result and errors are as there.

    Args:
        x, onto: (rows, width) each.
        layer: the layer.
    """
    x, onto = x.contiguous(), onto.contiguous()
    y, inner = torch.empty_like(onto), x.new_empty(len(x), _outputs(layer.up))
    normed = torch.empty_like(y) if layer.pre_norm else y
    _panels.multiply(
        _numbers(x),
        torch.get_num_threads(),
        *_fields(x, layer.out, onto, y, normed),
        *_fields(normed, layer.up, None, inner, inner),
        *_fields(_real(inner, layer.up), layer.down, y, y, y),  # each number is read before it is written
    )
    return y


def _of_qkv(qkv: Tensor, y: Tensor, attention: Attention, sums: Tensor | None) -> tuple[int, ...]:
    """Return the fields of an attention in _panels.c, whose tensors must live until it is computed.

    Raises:
        ValueError: see `attend`.
    """
    fits = qkv.ndim == 2 and qkv.is_cpu and qkv.is_contiguous() and multiplies(qkv.dtype)
    if not fits or qkv.shape[1] % (3 * attention.heads * WIDE):
        raise ValueError("a matrix of queries, keys and values is needed, on the CPU, with heads of full panels")
    fields = _attention_fields(qkv.shape[0], qkv.shape[1] // 3, attention, sums)
    return qkv.data_ptr(), y.data_ptr(), *fields


def _attention_fields(rows: int, width: int, attention: Attention, sums: Tensor | None) -> tuple[int, ...]:
    """Return the same without the first two, the matrices."""
    offsets, heads, tables, adjacent, before, after, dropout, seed = attention
    adjacent_numbers = offsets.is_cpu and offsets.is_contiguous() and offsets.ndim == 1 and len(offsets) > 0
    if offsets.dtype is not torch.int32 or not adjacent_numbers:
        raise ValueError("offsets are needed, int32 on the CPU")
    if width % (heads * WIDE):
        raise ValueError("heads of full panels are needed")
    size, positions = width // heads, rows if tables is None else min(map(len, tables))
    for table in tables or ():
        fits = table.dtype is torch.float32 and table.is_cpu and table.is_contiguous()
        if not fits or table.shape != (len(table), size // 2):
            raise ValueError(f"a table of {size // 2} angles for each position is needed, in float32 on the CPU")
    seen = [rows if number is None else min(number, rows) for number in (before, after)]
    if min(seen) < 0:
        raise ValueError("a token attends to itself: before and after must be at least 0")
    if not 0 <= dropout < 1 or seed < 0:
        raise ValueError("the share of probabilities that are dropped must be from 0 to below 1, and the seed positive")
    if sums is not None:
        fits = sums.dtype is torch.float32 and sums.is_cpu and sums.is_contiguous()
        if not fits or sums.shape != (rows, heads, 2):
            raise ValueError("two sums are needed for each row and head, float32 on the CPU")
    shape = len(offsets) - 1, rows, positions, heads, size
    dropped = min(round(dropout * 2**32), 2**32 - 1)
    angles = _addresses(*(tables or (None, None)))
    return offsets.data_ptr(), *shape, *angles, adjacent, *seen, *_addresses(sums), dropped, seed


def _numbers(x: Tensor) -> int:
    """Return what _panels.c is told of a matrix's numbers: the size of registers, `BF16` or `TILES`."""
    if x.dtype is torch.bfloat16:
        return TILES if has_tiles() else BF16
    return registers()


def _outputs(product: Product) -> int:
    return product.panels.shape[0] * WIDE


def _real(y: Tensor, product: Product) -> Tensor:
    """Return the part of the outputs that counts."""
    return y[:, : y.shape[1] // 2] if product.gated else y


def _are_bytes(product: Product) -> bool:
    return product.panels.dtype is torch.int8


def _width(product: Product) -> int:
    lines = product.panels.shape[1] - HEADER * _are_bytes(product)
    return lines * COLUMNS.get(product.panels.dtype, 0)


def _addresses(*tensors: Tensor | None) -> tuple[int, ...]:
    """Return the addresses of tensors, 0 for None."""
    return tuple([0 if tensor is None else tensor.data_ptr() for tensor in tensors])


def _check(product: Product, dtype: torch.dtype) -> None:
    """Check a product without what it multiplies, which has this type of numbers.

    Raises:
        ValueError: a tensor does not fit.
    """
    panels, bias, gelu, norm, gated = product
    kind, outputs = panels.dtype, panels.shape[0] * WIDE
    packed = panels.ndim == 3 and panels.shape[2] == WIDE * COLUMNS.get(kind, 0) and multiplies(kind)
    if not packed or not (panels.is_cpu and panels.is_contiguous()):
        raise ValueError("a weight in panels is needed, as `pack` or `pack_bytes` returns it")
    if _are_bytes(product) and (_width(product) % WIDE or not 0 < _width(product) <= WIDEST):
        raise ValueError("panels of bytes are needed in rows of whole registers")
    if dtype not in NUMBERS or not multiplies(dtype):
        raise ValueError("a matrix is needed, in a type of numbers that is multiplied here")
    if gated and (gelu or norm is not None or outputs % (2 * WIDE)):
        raise ValueError("a gate needs halves of whole panels, without GELU or a norm of both")
    if norm is not None and norm.weight is None:
        raise ValueError(f"a norm needs a weight, {_where(dtype)}")
    for vector in (bias, *(norm or (None, None))[:2]):
        if vector is None:
            continue
        if vector.dtype is not dtype or vector.shape != (outputs,) or not (vector.is_cpu and vector.is_contiguous()):
            raise ValueError(f"a vector of {outputs} adjacent numbers is needed, {_where(dtype)}")


def _fields(x: Tensor, product: Product, onto: Tensor | None, y: Tensor, normed: Tensor) -> tuple[float, ...]:
    """Return the fields of a product in _panels.c, whose tensors must live until it is computed.

    The norm, if there is one, is written to `normed`.

    Raises:
        ValueError: a tensor does not fit.
    """
    panels, bias, gelu, norm, gated = product
    dtype = x.dtype if _are_bytes(product) else panels.dtype
    _check(product, dtype)
    needed, outputs = _width(product), _outputs(product)
    if x.ndim != 2 or x.stride(1) != 1 or not y.is_contiguous():
        raise ValueError("a matrix is needed")
    rows, width = x.shape
    if x.dtype is not dtype or not x.is_cpu or needed != width or y.shape != (rows, outputs):
        raise ValueError(f"a matrix {needed} wide is needed, {_where(dtype)}")
    if onto is not None and (onto.dtype is not dtype or not onto.is_cpu or onto.shape != y.shape):
        raise ValueError(f"a matrix to add of {rows} rows and {outputs} columns is needed, {_where(dtype)}")
    scale, shift, epsilon = norm or (None, None, 0.0)
    matrices, sizes = _addresses(x, panels, bias, onto, y, normed), (rows, x.stride(0), width, outputs)
    return *matrices, *sizes, _are_bytes(product), 2 if gated else int(gelu), *_addresses(scale, shift), epsilon


def _where(dtype: torch.dtype) -> str:
    return f"in {str(dtype).removeprefix('torch.')} on the CPU"
