"""A layer of XLNet: residual connections, which rows it computes, its operations."""

import torch
from torch.nn.functional import gelu

from unmask.data.batches.batch import collate
from unmask.nn.layers.block import FeedForward
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.relative import RelativeAttention, RelativeBlock, distance_table
from unmask.nn.layers.relative_kernels import views

WIDTH = 16


def block_of():
    torch.manual_seed(0)
    norms = (LayerNorm(WIDTH, 1e-12) for _ in range(2))
    attention, feed_forward = RelativeAttention(WIDTH, 2, 0.1), FeedForward(WIDTH, 32, "gelu")
    block = RelativeBlock(attention, next(norms), feed_forward, next(norms), 0.1).eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return block


def inputs_of(tokens):
    x = torch.randn(len(tokens.ids) + len(tokens.reading.queries), WIDTH)
    longest = max(group.longest for group in tokens.groups)
    return x, None, distance_table(longest, WIDTH, x), views(tokens, 0, None, x)


def test_each_sublayer_is_added_and_normalized(ordered):
    block, tokens = block_of(), collate(ordered((5, 8))).tokens
    x, *others = inputs_of(tokens)
    first = block.attention_norm(x + block.attention(x, *others))
    inner = gelu(first @ block.feed_forward.up.weight.T + block.feed_forward.up.bias)
    second = inner @ block.feed_forward.down.weight.T + block.feed_forward.down.bias
    torch.testing.assert_close(block(x, *others), block.feed_forward_norm(first + second))


def test_some_rows_are_those_of_the_whole(ordered):
    block, tokens = block_of(), collate(ordered((5, 8))).tokens
    given = inputs_of(tokens)
    whole = block(*given)
    torch.testing.assert_close(block(*given, queries_alone=True), whole[13:])
    torch.testing.assert_close(block(*given, torch.tensor([2, 7])), whole[[2, 7]])
