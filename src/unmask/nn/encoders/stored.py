"""A frozen encoder with precomputed features, which it looks up by row index.

Input: batches whose token ids are row indices in a table on disk. Output: the layers that were stored there. It can
replace the encoder that computed them. It has no parameters and is not part of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Tokens
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, HeadSpec, Keep


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

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`; `last` is the last stored layer."""
        rows = torch.from_numpy(self.table[tokens.ids.cpu().numpy()]).to(self.like)  # (tokens, layers, width)
        layers = {number: rows[:, index] for index, number in enumerate(self.numbers)}
        return Encoded(last=rows[:, -1], layers={number: layers[number] for number in keep.layers})

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Encoder`; look-ups are not counted."""
        return 0
