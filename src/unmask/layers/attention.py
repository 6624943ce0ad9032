"""Multi-head self-attention over a ragged batch (Vaswani et al. 2017, section 3.2.2).

On a CPU attention is two batched products with a softmax between, forwards and backwards in one autograd function:
torch's fused kernel for CPUs is slow backwards and has no dropout. Only here are sequences padded, each `Group` of
neighbours to its longest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from unmask.batches.batch import Group
from unmask.layers.dropout import keep


class SelfAttention(nn.Module):
    """Every token attends to every token of its sequence, itself included.

    Args:
        width: of the tokens.
        heads: how many; each is `width // heads` wide.
        dropout: of the attention's probabilities.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, groups: tuple[Group, ...]) -> Tensor:
        """Return what each token gathers.

        Shape:
            x: (tokens, width); returns (tokens, width).
        """
        qkv = self.qkv(x)  # (tokens, 3 * width)
        return self.out(torch.cat([self._attend(qkv[group.start : group.stop], group) for group in groups]))

    def _attend(self, qkv: Tensor, group: Group) -> Tensor:
        rows = group.sequences * group.longest
        if group.index is not None:
            qkv = qkv.new_zeros(rows, qkv.shape[1]).index_copy(0, group.index, qkv)  # (rows, 3 * width)
        qkv = qkv.view(group.sequences, group.longest, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (sequences, heads, longest, width / heads)
        dropout = self.dropout if self.training else 0.0
        if query.is_cuda:
            x = scaled_dot_product_attention(query, key, value, attn_mask=group.mask, dropout_p=dropout)
        else:
            x = _Attention.apply(query, key, value, group.mask, dropout)  # type: ignore[no-untyped-call]
        x = x.transpose(1, 2).reshape(rows, -1)  # (rows, width)
        return x if group.index is None else x.index_select(0, group.index)


class _Attention(torch.autograd.Function):
    """softmax(query key^T / sqrt(width)) value, with dropout on the probabilities."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        shape = query.shape  # (sequences, heads, longest, head width)
        query, key, value = (x.reshape(-1, *shape[2:]) for x in (query, key, value))  # (sequences * heads, longest, …)
        bias = query.new_zeros(()) if mask is None else _bias(mask, shape, query.dtype)
        scale = shape[-1] ** -0.5
        chances = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scale).softmax(-1)  # (…, longest, longest)
        factors = keep(chances.shape, dropout, chances.dtype) if dropout else None
        ctx.save_for_backward(query, key, value, chances, factors)
        return torch.bmm(chances if factors is None else chances * factors, value).view(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, chances, factors = ctx.saved_tensors
        shape = grads[0].shape
        grad = grads[0].reshape(-1, *shape[2:])
        dropped = chances if factors is None else chances * factors
        grad_value = torch.bmm(dropped.transpose(1, 2), grad)
        grad_chances = torch.bmm(grad, value.transpose(1, 2))
        if factors is not None:
            grad_chances.mul_(factors)
        scores = torch.ops.aten._softmax_backward_data(grad_chances, chances, -1, chances.dtype)
        scores.mul_(shape[-1] ** -0.5)
        grad_query = torch.bmm(scores, key)
        grad_key = torch.bmm(scores.transpose(1, 2), query)
        return grad_query.view(shape), grad_key.view(shape), grad_value.view(shape), None, None


def _bias(mask: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Return 0 at tokens and the lowest number at padding, (sequences * heads, 1, longest)."""
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return bias.expand(shape[0], shape[1], 1, shape[2]).reshape(-1, 1, shape[2])
