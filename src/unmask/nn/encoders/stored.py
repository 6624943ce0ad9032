"""An encoder that looks up features computed before, and padded input of encoders.

`padded_tokens` makes the input of a body of token ids (batch, length) and a mask of real tokens, for export: the only
place where a batch itself contains padding. The batch is one group of sequences of equal length whose padding stays in
the stream, so that no shape depends on data and the exported program accepts any batch size and length. Attention
ignores padding, so inputs and outputs there are arbitrary.

`Stored` is a frozen encoder with precomputed features, which it looks up by row index. Input: batches whose token ids
are row indices in a table on disk. Output: the layers that were stored there. It can replace the encoder that computed
them. It has no parameters and is not part of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.batches.groups import Group
from unmask.data.batches.tokens import Plan, Tokens
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, HeadSpec, Keep

ROWS = "rows"
"""Name of the rows of the table in the plan of a batch."""


def padded_tokens(ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tokens:
    """Return padded input as the input of a body, whose output at padding is meaningless.

    Args:
        ids: token ids, (batch, length) int64; any valid id at padding.
        real: False at padding, (batch, length) bool. Padding must be at the end of a row.
        segments: segment ids, (batch, length) int64; None: all are 0.
    """
    batch, length = ids.shape
    position_ids = torch.arange(length, device=ids.device).expand(batch, length)
    return Tokens(
        ids=ids.reshape(-1),
        segments=(torch.zeros_like(ids) if segments is None else segments).reshape(-1),
        position_ids=position_ids.reshape(-1),
        offsets=torch.arange(batch + 1, dtype=torch.int32, device=ids.device) * length,
        groups=(Group(0, batch * length, batch, length, None, None, real),),
    )


class Stored(Encoder):
    """See the module; implements `Encoder`.

    Args:
        table: the stored layers, (rows, layers, width), a memory map.
        numbers: numbers of the encoder's layers that are stored.
        head, num_layers, longest: attributes of the encoder that computed them.
    """

    def __init__(
        self, table: np.ndarray, numbers: Sequence[int], head: HeadSpec, num_layers: int, longest: int
    ) -> None:
        super().__init__()
        self.table = table
        self.numbers = tuple(numbers)
        self.head = head
        self.width = head.width
        self.num_layers = num_layers
        self.vocabulary = len(table)
        self.longest = longest
        self.like: Tensor  # determines the device and dtype of the outputs
        self.register_buffer("like", torch.empty(0), persistent=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Stored:
        """Return a copy that shares the table: copying a memory map would read it into memory."""
        return Stored(self.table, self.numbers, self.head, self.num_layers, self.longest)

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`; there is nothing to train."""
        return ()

    def plan(self, tokens: Tokens) -> Tokens:
        """See `Encoder`; the plan is the rows of the table."""
        return replace(tokens, plan=Plan({ROWS: torch.from_numpy(self.table[tokens.ids.cpu().numpy()])}))

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`; `last` is the last stored layer."""
        plan = tokens.plan or self.plan(tokens).plan
        assert plan is not None
        rows = plan.tensors[ROWS].to(self.like)  # (tokens, layers, width)
        layers = {number: rows[:, index] for index, number in enumerate(self.numbers)}
        return Encoded(last=rows[:, -1], layers={number: layers[number] for number in keep.layers})
