"""The convolution reads the neighbors within a sequence; the block adds it to its output, for some rows or all."""

import torch
from torch.nn.functional import conv1d, gelu, layer_norm

from unmask.nn.layers.block import FeedForward
from unmask.nn.layers.disentangled import Convolution, DisentangledAttention, DisentangledBlock, Distances
from unmask.nn.layers.norm import LayerNorm

from .conftest import HEADS, tokens_of

WIDTH = HEADS * 8


def build(size=3):
    torch.manual_seed(0)
    attention = DisentangledAttention(WIDTH, HEADS, 0.1, Distances(WIDTH, 20, 8, None).double())
    convolution = Convolution(WIDTH, size, 0.1, "gelu", 1e-7) if size else None
    feed_forward, norms = FeedForward(WIDTH, 40, "gelu"), [LayerNorm(WIDTH, 1e-7) for _ in range(2)]
    block = DisentangledBlock(attention, norms[0], feed_forward, norms[1], 0.1, convolution=convolution)
    return block.eval().double()


def test_the_convolution_is_that_of_each_sequence_alone():
    for size in (1, 3, 5):
        block = build(size).convolution
        kernel = block.out.weight.view(WIDTH, size, WIDTH).transpose(1, 2)
        x, onto = torch.randn(2, 12, WIDTH, dtype=torch.float64)
        found = block(x, onto, tokens_of((3, 4, 5)))
        for start, stop in ((0, 3), (3, 7), (7, 12)):
            out = conv1d(x[start:stop].t()[None], kernel, block.out.bias, padding=size // 2)[0].t()
            expected = layer_norm(onto[start:stop] + gelu(out), (WIDTH,), eps=1e-7)
            torch.testing.assert_close(found[start:stop], expected)


def test_some_rows_are_those_of_all():
    block, tokens, rows = build(), tokens_of((3, 4, 5)), torch.tensor([0, 4, 11])
    x = torch.randn(16, WIDTH, dtype=torch.float64)  # with rows beyond the tokens
    torch.testing.assert_close(block(x, tokens, rows=rows), block(x, tokens)[rows])
