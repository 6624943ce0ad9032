"""Which keys the fused kernel multiplies each query with: all of them, or with a window only the blocks in reach.

Input: queries, keys and values by heads, (3, rows, longest, head width), where a row is a head of a sequence. Output:
batches of matrices to multiply, and the scores, masked. `Whole` multiplies each query with all keys. `Blocks` divides
the queries of a row into blocks, and multiplies each block with the keys at most the window away from it (Beltagy et
al. 2020 (Longformer), section 3.1), so that time and memory are linear in the sequence length.

Masks are half of the lowest number, so that the sum of two of them is finite: a padding token may attend to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.nn.layers.plain_attention import AttentionSpec

CHUNK = 1 << 20
"""Maximum number of probabilities computed at once, but at least those of one head."""
BLOCK = 64
"""Number of queries in a block; keys in reach are rounded up to whole blocks."""
MIN_SAVING = 2.5
"""How many times more keys a sequence must have than a block reaches; otherwise a mask on all scores is as fast."""


class Whole:
    """Scores of all keys, for chunks of rows.

    Args:
        group: the sequences.
        spec: parameters of the attention.
        like: a tensor with the dtype and device of the scores.
    """

    def __init__(self, group: Group, spec: AttentionSpec, like: Tensor) -> None:
        self.group, self.spec, self.like = group, spec, like
        self.rows, self.longest = group.sequences * spec.heads, group.longest

    @cached_property
    def band(self) -> Tensor | None:
        """Bias by distance, (1, queries, keys); the backward pass needs it only if it computes scores again."""
        if not (self.spec.causal or self.spec.is_local(self.longest)):
            return None
        positions = torch.arange(self.longest, device=self.like.device)
        return to_bias(self.spec.attends(positions - positions[:, None])[None], self.like)

    @cached_property
    def others(self) -> Tensor | None:
        """Bias at padding, or at tokens of other sequences in the row, (rows, 1 or longest, longest)."""
        group, heads = self.group, self.spec.heads
        if group.owner is not None:
            return by_rows(to_bias(group.owner[:, :, None] == group.owner[:, None, :], self.like), heads)
        if group.attended is None or self.spec.causal:  # if causal, padding comes after all real tokens
            return None
        return padding_bias(group.attended, heads, self.like)

    @cached_property
    def idle(self) -> Tensor | None:
        """Whether a token attends to nothing, (rows, longest, 1); None: none does, or it is padding."""
        if self.group.keys is None or not self.spec.limited:
            return None
        positions = torch.arange(self.longest, device=self.like.device)
        attended = self.spec.attends(positions - positions[:, None]) & self.group.keys[:, None, :]
        return by_rows(~attended.any(2, keepdim=True), self.spec.heads)

    def silence(self, probabilities: Tensor, part: slice) -> Tensor:
        """Return the probabilities of a part, which are 0 where a token attends to nothing; changes them in place."""
        return probabilities if self.idle is None else probabilities.masked_fill_(self.idle[part], 0)

    def pad(self, x: Tensor) -> Tensor:
        """Return a tensor of the group, (..., rows, longest, head width), in the shape that the other methods take."""
        return x

    def strip(self, x: Tensor) -> Tensor:
        """Return the inverse of `pad`."""
        return x

    def sums_like(self, x: Tensor) -> Tensor:
        """Return a tensor to which `add_product` can add, in the shape of a padded one."""
        return torch.empty_like(x)

    def parts(self) -> Iterator[slice]:
        """Yield the rows to compute together."""
        size = max(1, CHUNK // self.longest**2)
        for start in range(0, self.rows, size):
            yield slice(start, start + size)

    def queries(self, x: Tensor, part: slice) -> Tensor:
        """Return a view of the queries, or of what has their shape, in a part: (batch, queries, head width)."""
        return x[part]

    def keys(self, x: Tensor, part: slice) -> Tensor:
        """Return a view of the keys or values in a part, (batch, keys, head width)."""
        return x[part]

    def add_product(self, sums: Tensor, part: slice, left: Tensor, right: Tensor) -> None:
        """Add a product, (batch, keys, head width), to gradients of keys or values that `sums_like` returned."""
        torch.bmm(left, right, out=sums[part])

    def scores(self, query: Tensor, key: Tensor, part: slice) -> Tensor:
        """Return the scaled scores of a part, masked, (batch, queries, keys)."""
        others = None if self.others is None else self.others[part]
        bias = self.band if self.band is not None else others
        scores = _scaled(query, key, bias)
        return scores if others is None or bias is others else scores.add_(others)


class Blocks(Whole):
    """Scores of the keys in reach, row by row; the arguments are those of `Whole`."""

    def __init__(self, group: Group, spec: AttentionSpec, like: Tensor) -> None:
        assert spec.window is not None
        self.rows, self.longest, self.heads = group.sequences * spec.heads, group.longest, spec.heads
        self.idle = None
        self.reach = -(-spec.window // BLOCK) * BLOCK
        self.count = -(-group.longest // BLOCK)
        size = self.reach + self.count * BLOCK + self.reach
        queries = torch.arange(BLOCK, device=like.device)
        keys = torch.arange(-self.reach, BLOCK + self.reach, device=like.device)
        self.band = to_bias(spec.attends(keys - queries[:, None])[None], like)  # (1, block, keys)
        attended = group.attended
        real = torch.zeros(group.sequences, size, dtype=torch.bool, device=like.device)
        real[:, self.reach : self.reach + group.longest] = True if attended is None else attended
        self.missing = to_bias(real, like).unfold(1, len(keys), BLOCK)[:, :, None]  # (sequences, blocks, 1, keys)
        lengths = [group.longest] * group.sequences if attended is None else attended.sum(1).tolist()
        self.complete = [max(0, length - self.reach) // BLOCK for length in lengths]
        """For each sequence the first block that reaches beyond the end."""

    def pad(self, x: Tensor) -> Tensor:
        """See `Whole`; adds zeros in reach of the first and the last block, and fills up the last block."""
        return pad(x, (0, 0, self.reach, self.count * BLOCK - self.longest + self.reach))

    def strip(self, x: Tensor) -> Tensor:
        """See `Whole`."""
        return x[..., self.reach : self.reach + self.longest, :]

    def sums_like(self, x: Tensor) -> Tensor:
        """See `Whole`."""
        return torch.zeros_like(x)

    def parts(self) -> Iterator[slice]:
        """See `Whole`: single rows."""
        return (slice(row, row + 1) for row in range(self.rows))

    def queries(self, x: Tensor, part: slice) -> Tensor:
        """See `Whole`: (blocks, block, head width)."""
        return x[part.start, self.reach : self.reach + self.count * BLOCK].view(self.count, BLOCK, -1)

    def keys(self, x: Tensor, part: slice) -> Tensor:
        """See `Whole`: (blocks, keys in reach, head width), overlapping views."""
        return x[part.start].unfold(0, BLOCK + 2 * self.reach, BLOCK).transpose(1, 2)

    def add_product(self, sums: Tensor, part: slice, left: Tensor, right: Tensor) -> None:
        """See `Whole`."""
        products = torch.bmm(left, right)
        for shift, product in enumerate(torch.split(products, BLOCK, 1)):  # (blocks, block, head width)
            sums[part.start].view(-1, BLOCK, sums.shape[-1])[shift : shift + self.count] += product

    def scores(self, query: Tensor, key: Tensor, part: slice) -> Tensor:
        """See `Whole`: (blocks, block, keys in reach)."""
        scores = _scaled(query, key, self.band)
        sequence = part.start // self.heads
        first, missing = self.reach // BLOCK, self.missing[sequence]
        last = max(first, self.complete[sequence])
        scores[:first].add_(missing[:first])
        scores[last:].add_(missing[last:])
        return scores


def choose(group: Group, spec: AttentionSpec, like: Tensor) -> Whole:
    """Return `Blocks` for long sequences with a window, otherwise `Whole`."""
    return (Blocks if pays(spec.window, group.longest) and group.keys is None else Whole)(group, spec, like)


def pays(window: int | None, longest: int) -> bool:
    """Return whether sequences are so long that a window saves more than the division into blocks costs."""
    return window is not None and longest > MIN_SAVING * (window * 2 + BLOCK)


def to_bias(attended: Tensor, like: Tensor) -> Tensor:
    """Return 0 where a mask is true, and half of the lowest number elsewhere."""
    return (attended.to(like.dtype) - 1).mul_(torch.finfo(like.dtype).max / 2)


def padding_bias(real: Tensor, heads: int, like: Tensor) -> Tensor:
    """Return 0 at tokens and half of the lowest number at padding, (sequences * heads, 1, longest)."""
    return by_rows(to_bias(real, like)[:, None], heads)


def by_rows(bias: Tensor, heads: int) -> Tensor:
    """Return the biases of sequences for each of their heads: (sequences, ...) to (sequences * heads, ...)."""
    return bias[:, None].expand(-1, heads, -1, -1).flatten(0, 1)


def _scaled(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    """Return query key^T / sqrt(width) + bias."""
    scale = query.shape[-1] ** -0.5
    if bias is None:
        return torch.baddbmm(query.new_zeros(()), query, key.transpose(1, 2), beta=0, alpha=scale)
    return torch.baddbmm(bias, query, key.transpose(1, 2), beta=1, alpha=scale)
