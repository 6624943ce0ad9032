"""A body that reads padded input, as exported programs do: the only place where a batch itself has padding.

In: token ids (batch, length), and which of them are real. Out: the last layer, (batch, length, width). The batch is one
group of equally long sequences whose padding stays in the stream, so that no shape depends on data and a program
exported from here takes any batch and length. Attention sees no padding, so what stands there is arbitrary in and out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.batches.batch import Group, Tokens
from unmask.encoders.encoder import Encoder


class Padded(nn.Module):
    """Reads padded input with a body.

    Args:
        body: any encoder. Exporting chooses the plain attention kernel by itself; see `unmask.layers.attention`.
    """

    def __init__(self, body: Encoder) -> None:
        super().__init__()
        self.body = body

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return the last layer, (batch, length, width); what it holds at padding means nothing.

        Args:
            ids: token ids, (batch, length) int64; any id that the body knows at padding.
            real: whether a token is one, False at padding, (batch, length) bool. Padding comes last in a row.
            segments: of the tokens, (batch, length) int64; None: all are 0.
        """
        batch, length = ids.shape
        position_ids = torch.arange(length, device=ids.device).expand(batch, length)
        tokens = Tokens(
            ids=ids.reshape(-1),
            segments=(torch.zeros_like(ids) if segments is None else segments).reshape(-1),
            position_ids=position_ids.reshape(-1),
            offsets=torch.arange(batch + 1, dtype=torch.int32, device=ids.device) * length,
            groups=(Group(0, batch * length, batch, length, None, None, real),),
        )
        return self.body(tokens).last.view(batch, length, -1)
