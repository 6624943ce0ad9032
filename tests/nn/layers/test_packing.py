"""The order in which recurrent networks read a ragged batch: as torch packs it; mirrored sequences."""

import torch
from torch.nn.utils.rnn import pack_sequence

from unmask.nn.layers.lstm import mirror, pack

LENGTHS = (1, 2, 2, 5)
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])
OFFSETS = torch.tensor([0, 1, 3, 5, 10], dtype=torch.int32)


def test_the_order_is_torchs():
    tokens = torch.arange(sum(LENGTHS))
    theirs = pack_sequence(list(tokens.split(LENGTHS))[::-1])
    order, sizes = pack(POSITIONS)
    assert order.tolist() == theirs.data.tolist()
    assert sizes.tolist() == theirs.batch_sizes.tolist()


def test_no_tokens():
    order, sizes = pack(POSITIONS[:0])
    assert len(order) == len(sizes) == 0


def test_mirrored():
    assert mirror(POSITIONS, OFFSETS).tolist() == [0, 2, 1, 4, 3, 9, 8, 7, 6, 5]
