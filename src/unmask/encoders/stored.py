"""A frozen encoder whose features were computed once: it looks rows up by id.

In: batches whose token ids are numbers of rows in a table on disk. Out: the layers that were stored there, so that
nothing above notices that no encoder computes. It has no parameters, and is in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.batches.batch import Tokens
from unmask.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, HeadSpec, Keep


class Stored(Encoder):
    """See the module; satisfies `Encoder`.

    Args:
        table: (rows, layers, width), mapped into memory.
        numbers: which of the encoder's layers these are.
        head, num_layers, longest: of the encoder that computed them.
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
        self.like: Tensor  # says where and how precisely to compute
        self.register_buffer("like", torch.empty(0), persistent=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Stored:
        """Return a copy that reads the same table: a copied map would be read into memory."""
        return Stored(self.table, self.numbers, self.head, self.num_layers, self.longest)

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`: nothing is left to learn."""
        return ()

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`; `last` is the last layer that was stored."""
        rows = torch.from_numpy(self.table[tokens.ids.cpu().numpy()]).to(self.like)  # (tokens, layers, width)
        layers = {number: rows[:, place] for place, number in enumerate(self.numbers)}
        return Encoded(last=rows[:, -1], layers={number: layers[number] for number in keep.layers})

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Encoder`: looking up is free."""
        return 0
