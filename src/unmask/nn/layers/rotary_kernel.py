"""The rotation of queries and keys as one Triton kernel, for GPUs.

With torch's operations a rotation reads and writes queries and keys some eight times, and its backward pass more often:
more than a third of a step of ModernBERT on an H100. The kernel reads them once and writes them once, together with the
values, and the backward pass writes the gradient of all three at once.

This module is imported where a GPU has Triton (support/gpus.py), which comes with torch.
"""

# ruff: noqa: ANN001, ANN202  # Triton reads annotations

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from unmask.nn.layers.rotary import Rotation


def split_rotated(
    qkv: Tensor, heads: int, rotation: Rotation, tables: tuple[Tensor, Tensor], positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the same as `split_rotated` of fused_attention.py; sums of products are rounded once."""
    found: tuple[Tensor, Tensor, Tensor] = _SplitRotated.apply(qkv, heads, rotation.interleaved, *tables, positions)  # type: ignore[no-untyped-call]
    return found


class _SplitRotated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, heads: int, interleaved: bool, cos: Tensor, sin: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin, positions)
        ctx.heads, ctx.interleaved = heads, interleaved
        parts = qkv.view(len(qkv), 3, heads, -1).unbind(1)  # (tokens, heads, head width) each
        return _rotate(parts, cos, sin, positions, interleaved).view(len(qkv), 3, heads, -1).unbind(1)  # type: ignore[return-value]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin, positions = ctx.saved_tensors
        return _rotate(grads, cos, sin, positions, ctx.interleaved, back=True), None, None, None, None, None


def _rotate(
    parts: tuple[Tensor, ...], cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool, *, back: bool = False
) -> Tensor:
    """Return queries and keys, rotated, and values side by side.

    Args:
        parts: queries, keys and values, or their gradients, (tokens, heads, head width) each.
        cos, sin: at each position, (positions, head width / 2).
        positions: index of each token in its sequence, (tokens,).
        interleaved: see `Rotation`.
        back: whether to rotate back.

    Returns:
        (tokens, 3 * width).
    """
    rows = [part if part.stride()[1:] == (part.shape[2], 1) else part.contiguous() for part in parts]
    tokens, heads, width = rows[0].shape
    out = torch.empty(tokens, 3 * heads * width, dtype=rows[0].dtype, device=rows[0].device)
    if tokens:
        _kernel[(tokens,)](
            *(*rows, out, cos.contiguous(), sin.contiguous(), positions),
            *(row.stride(0) for row in rows),
            HEADS=heads,
            HALF=width // 2,
            INTERLEAVED=interleaved,
            SIGN=-1.0 if back else 1.0,
            BLOCK_HEADS=triton.next_power_of_2(heads),
            BLOCK_HALF=triton.next_power_of_2(width // 2),
        )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    out,
    cos_table,
    sin_table,
    positions,
    query_stride,
    key_stride,
    value_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    """Rotate one token."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    pair = tl.arange(0, BLOCK_HALF)[None, :]
    inside = (head < HEADS) & (pair < HALF)
    if INTERLEAVED:
        first = head * (2 * HALF) + 2 * pair
        second = first + 1
    else:
        first = head * (2 * HALF) + pair
        second = first + HALF
    at = tl.load(positions + token) * HALF + pair
    cos = tl.load(cos_table + at, mask=pair < HALF, other=0.0).to(tl.float32)
    sin = SIGN * tl.load(sin_table + at, mask=pair < HALF, other=0.0).to(tl.float32)
    to = out + token * (3 * 2 * HEADS * HALF)
    for part in tl.static_range(2):
        source = query + token * query_stride if part == 0 else key + token * key_stride
        a = tl.load(source + first, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(source + second, mask=inside, other=0.0).to(tl.float32)
        tl.store(to + part * (2 * HEADS * HALF) + first, (a * cos - b * sin).to(out.dtype.element_ty), mask=inside)
        tl.store(to + part * (2 * HEADS * HALF) + second, (b * cos + a * sin).to(out.dtype.element_ty), mask=inside)
    source = value + token * value_stride
    to += 2 * (2 * HEADS * HALF)
    tl.store(to + first, tl.load(source + first, mask=inside), mask=inside)
    tl.store(to + second, tl.load(source + second, mask=inside), mask=inside)
