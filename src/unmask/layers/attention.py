"""Multi-head self-attention over a ragged batch (Vaswani et al. 2017, section 3.2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from unmask.batches.batch import Group


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
        x = scaled_dot_product_attention(query, key, value, attn_mask=group.mask, dropout_p=dropout)
        x = x.transpose(1, 2).reshape(rows, -1)  # (rows, width)
        return x if group.index is None else x.index_select(0, group.index)
