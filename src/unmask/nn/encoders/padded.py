"""A wrapper that gives a body padded input, for export: the only place where a batch itself contains padding.

Input: token ids (batch, length), and a mask of real tokens. Output: the last layer, (batch, length, width). The batch
is one group of sequences of equal length whose padding stays in the stream, so that no shape depends on data and the
exported program accepts any batch size and length. Attention ignores padding, so inputs and outputs there are
arbitrary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Tokens
from unmask.data.batches.groups import Group
from unmask.nn.encoders.encoder import Encoder


class Padded(nn.Module):
    """An encoder for padded input.

    Args:
        body: any encoder. On export the plain attention kernel is chosen automatically; see `layers.attention`.
    """

    def __init__(self, body: Encoder) -> None:
        super().__init__()
        self.body = body

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the last layer, (batch, length, width); its values at padding are meaningless.

        Args:
            ids: token ids, (batch, length) int64; any valid id at padding.
            real: False at padding, (batch, length) bool. Padding must be at the end of a row.
            segments: segment ids, (batch, length) int64; None: all are 0.
        """
        return self.body(padded_tokens(ids, real, segments)).last.view(*ids.shape, -1)


def padded_tokens(ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tokens:
    """Return padded input as the input of a body; the arguments are those of `Padded`."""
    batch, length = ids.shape
    position_ids = torch.arange(length, device=ids.device).expand(batch, length)
    return Tokens(
        ids=ids.reshape(-1),
        segments=(torch.zeros_like(ids) if segments is None else segments).reshape(-1),
        position_ids=position_ids.reshape(-1),
        offsets=torch.arange(batch + 1, dtype=torch.int32, device=ids.device) * length,
        groups=(Group(0, batch * length, batch, length, None, None, real),),
    )
