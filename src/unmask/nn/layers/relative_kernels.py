"""What rows attend to in attention with relative positions and segments, and the kernels that compute it.

`views` returns what all layers of a body share. Input: a ragged batch, and how many tokens of memory precede each of
its sequences. Output: for each attention group the rows that attend (its tokens, and its queries if there are any), the
keys that are hidden from them, and the distances of the keys.

A token sees the tokens whose rank in the factorization order is not above its own; ordinary tokens, which are not
predicted, share a rank. A query sees only those with a lower rank, so not the token itself. Without an order all tokens
see each other. Memory is seen by all (Yang et al. 2019 (XLNet), sections 2.3 and 2.4).

A kernel computes the attention of one stream to the keys of one group. Input: queries for content, for positions and
for segments, keys and values, and the keys of distances, all by heads. Output: what each row attends to, weighted. The
scores are

    content_query key^T + shift(position_query distance^T) + segment_query * other + mask,

the four terms of Dai et al. 2019 (Transformer-XL), section 3.3, and the relative segments of Yang et al. 2019 (XLNet),
section 2.6. Queries are scaled already. The score of a row of a distance's table belongs to another key for each row of
the stream: for consecutive tokens the shift is a view of the same memory with another stride, for the few queries it is
an index.

There are two kernels with equal outputs and gradients: `plain`, for export, and `fused`, one autograd function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from unmask.nn.layers.dropout import draw, keep
from unmask.nn.layers.fused_attention import softmax, softmax_backward
from unmask.nn.layers.score_blocks import to_bias
from unmask.support.capabilities import cpu_or_gpu

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.data.batches.tokens import Tokens


@dataclass(frozen=True)
class Rows:
    """Rows of the stream that attend to the keys of a group: its tokens, or its queries.

    Attributes:
        group: the rows and their padded shape; their number per sequence is called `longest`.
        mask: (sequences, longest, keys), added to the scores: 0 where a row attends to a key; None: to all.
        other: (sequences, longest, keys), 1 where a key belongs to another segment; None: segments are not compared.
        shifts: (sequences * longest * keys,) index of each key's position score among (sequences, longest, distances);
            None: the rows are all tokens in order.
        seeing: (sequences, longest, 1) whether a row attends to any key; None: each does.
    """

    group: Group
    mask: Tensor | None
    other: Tensor | None
    shifts: Tensor | None = None
    seeing: Tensor | None = None


@dataclass(frozen=True)
class View:
    """A group with its keys: the memory of each of its sequences, then its tokens.

    Attributes:
        tokens: the tokens as rows.
        queries: the queries as rows; None: there are none.
        sequences: the range of its sequences in the batch.
        memory: number of tokens of memory before each sequence.
    """

    tokens: Rows
    queries: Rows | None
    sequences: slice
    memory: int

    @property
    def group(self) -> Group:
        """The group."""
        return self.tokens.group

    @property
    def keys(self) -> int:
        """Number of keys of each sequence, with padding."""
        return self.memory + self.group.longest

    def distances(self, table: Tensor, most: int) -> Tensor:
        """Return the rows of a table of distances that its tokens read.

        For the key in place j and the token in place i of the sequence, this is row longest - 1 - i + j.

        Args:
            table: (..., 2 * most - 1, width), for the distances most - 1 to 1 - most.
            most: the largest number of keys in the batch.

        Returns:
            (..., longest + keys - 1, width).
        """
        longest, keys = self.group.longest, self.keys
        if self.group.backward:
            table = table.flip(-2)  # later tokens of a sequence are earlier in the text
        return table if most == keys == longest else table[..., most - keys : most + longest - 1, :]


def views(tokens: Tokens, memory: int, remembered: Tensor | None, like: Tensor) -> list[View]:
    """Return the views of all groups of a batch.

    Args:
        tokens: the batch.
        memory: number of tokens of memory before each sequence.
        remembered: how many of them, the last ones, exist, (sequences,); None: all.
        like: a tensor with the dtype and device of the scores.
    """
    batch_views, first = [], 0
    in_rows = not memory and not tokens.reading.query_groups  # both are looked up by sequence
    for number, group in enumerate(tokens.attention_groups if in_rows else tokens.groups):
        sequences = slice(first, first + group.sequences)
        first += group.sequences
        real = _real(group, memory, None if remembered is None else remembered[sequences], like.device)
        queries = _queries(tokens, number, memory, real, like) if tokens.reading.query_groups else None
        batch_views.append(View(_tokens(tokens, group, memory, real, like), queries, sequences, memory))
    return batch_views


def _tokens(tokens: Tokens, group: Group, memory: int, real: Tensor | None, like: Tensor) -> Rows:
    """Return the tokens of a group as rows."""
    attended, other = real, None
    if tokens.reading.order is not None:
        order = _by_sequence(tokens.reading.order, group)
        attended = _and(real, _with_memory(order[:, None] <= order[:, :, None], memory, None))
    if tokens.segments is not None:
        segments = _by_sequence(tokens.segments, group)
        other = _with_memory(segments[:, None] != segments[:, :, None], memory, segments != 0)
    return Rows(group, None if attended is None else to_bias(attended, like), _to(other, like))


def _queries(tokens: Tokens, number: int, memory: int, real: Tensor | None, like: Tensor) -> Rows | None:
    """Return the queries of a group as rows; None if it has none."""
    reading = tokens.reading
    assert reading.queries is not None
    group, asking = tokens.groups[number], reading.query_groups[number]
    if not asking.longest:
        return None
    at = _by_sequence(reading.queries, asking)  # (sequences, longest)
    place = tokens.position_ids[at]  # (sequences, longest)
    order, segments = reading.order, tokens.segments
    assert order is not None, "queries need an order"
    token_order = _by_sequence(order, group)  # (sequences, longest token)
    attended = _and(real, _with_memory(token_order[:, None] < order[at][:, :, None], memory, None))
    other = None
    if segments is not None:
        query_segments, key_segments = segments[at], _by_sequence(segments, group)
        other = _with_memory(key_segments[:, None] != query_segments[:, :, None], memory, query_segments != 0)
    keys, width = memory + group.longest, 2 * group.longest + memory - 1
    row = torch.arange(asking.sequences * asking.longest, device=at.device) * width  # (sequences * longest,)
    starts = row + (group.longest - 1 - place).view(-1)
    shifts = (starts[:, None] + torch.arange(keys, device=at.device)).view(-1)
    return Rows(asking, to_bias(attended, like), _to(other, like), shifts, attended.any(-1, keepdim=True))


def _by_sequence(values: Tensor, group: Group) -> Tensor:
    """Return the values of a group's rows, (sequences, longest), arbitrary at padding."""
    rows = values[group.start : group.stop] if group.slots is None else values.index_select(0, group.slots)
    return rows.view(group.sequences, group.longest)


def _real(group: Group, memory: int, remembered: Tensor | None, device: torch.device) -> Tensor | None:
    """Return whether keys exist, (sequences, 1, keys); None: all of them.

    Where rows hold several sequences, keys exist for the tokens of their own, (sequences, longest, keys).
    """
    if group.owner is not None:
        return group.owner[:, :, None] == group.owner[:, None, :]  # (sequences, longest, keys)
    if group.real is None and remembered is None:
        return None
    parts = []
    if memory:
        old = torch.ones(group.sequences, memory, dtype=torch.bool, device=device)
        parts.append(old if remembered is None else torch.arange(memory, 0, -1, device=device) <= remembered[:, None])
    new = torch.ones(group.sequences, group.longest, dtype=torch.bool, device=device)
    return torch.cat([*parts, new if group.real is None else group.real], 1)[:, None]


def _with_memory(flags: Tensor, memory: int, value: Tensor | None) -> Tensor:
    """Return (sequences, rows, keys) from (sequences, rows, tokens), with a value for each row's memory; None: true."""
    if not memory:
        return flags
    old = torch.ones(*flags.shape[:2], memory, dtype=torch.bool, device=flags.device)
    return torch.cat([old if value is None else old & value[:, :, None], flags], 2)


def _and(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first & second


def _to(values: Tensor | None, like: Tensor) -> Tensor | None:
    return None if values is None else values.to(like.dtype)


CHUNK = {"cpu": 1 << 20, "gpu": 1 << 28}
"""Maximum number of scores computed at once, but at least those of one head of one sequence."""
MANY_KEYS = 1024
"""Minimum number of keys for which probabilities are recomputed in the backward pass."""


class Inputs(NamedTuple):
    """What a kernel reads, by heads.

    Shape:
        content, position: (heads, sequences, longest, head width); segment: (heads, sequences, longest, 1), or None
        where segments are not compared; keys, values: (heads, sequences, keys, head width); distances: (heads,
        distances, head width), for the first key of the last row to the last key of the first row.
    """

    content: Tensor
    position: Tensor
    segment: Tensor | None
    keys: Tensor
    values: Tensor
    distances: Tensor


Kernel = Callable[[Inputs, Rows, float], Tensor]
"""Maps inputs, the rows and a dropout rate to what the rows attend to, (heads, sequences, longest, head width)."""


def plain(inputs: Inputs, rows: Rows, dropout: float) -> Tensor:
    """Compute attention with ordinary operations; see `Kernel`."""
    shares = probabilities(inputs, rows)
    return (drop(shares, dropout) if dropout else shares) @ inputs.values


def probabilities(inputs: Inputs, rows: Rows) -> Tensor:
    """Return the attention probabilities, (heads, sequences, longest, keys), without dropout; rows sum to 1."""
    return _scores(inputs, rows, slice(None), slice(None), plainly=True).softmax(-1)


def fused(inputs: Inputs, rows: Rows, dropout: float) -> Tensor:
    """Compute attention in parts that stay in the cache; see `Kernel`."""
    output: Tensor = _Attention.apply(*inputs, rows, dropout)  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        inputs, rows, dropout = Inputs(*args[:6]), args[6], args[7]
        ctx.rows, ctx.dropout, ctx.seed = rows, dropout, draw() if dropout else 0
        saved: list[Tensor | None] = []
        learning = any(ctx.needs_input_grad)
        ctx.recompute = inputs.keys.shape[2] >= MANY_KEYS
        out = torch.empty_like(inputs.content)
        for heads, part in _parts(inputs):
            probabilities, mask = _probabilities(inputs, rows, heads, part, dropout, ctx.seed)
            dropped = probabilities if mask is None else probabilities * mask
            out[heads, part] = dropped @ inputs.values[heads, part]
            if learning and not ctx.recompute:
                saved += (probabilities, mask)
        ctx.save_for_backward(*inputs, *saved)
        return out.mul_(1 / (1 - dropout)) if dropout else out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # may be read only once
        inputs, saved = Inputs(*tensors[:6]), iter(tensors[6:])
        rows, dropout = ctx.rows, ctx.dropout
        grad_out = grads[0] * (1 / (1 - dropout)) if dropout else grads[0]
        sums = Inputs(*(torch.empty_like(x) if x is not None else x for x in inputs))  # type: ignore[arg-type]
        sums.distances.zero_()
        for heads, part in _parts(inputs):
            if ctx.recompute:
                probabilities, mask = _probabilities(inputs, rows, heads, part, dropout, ctx.seed)
            else:
                probabilities, mask = next(saved), next(saved)
            dropped = probabilities if mask is None else probabilities * mask
            out = grad_out[heads, part]
            sums.values[heads, part] = dropped.transpose(2, 3) @ out
            scores = out @ inputs.values[heads, part].transpose(2, 3)
            scores = softmax_backward(scores if mask is None else scores.mul_(mask), probabilities)
            sums.content[heads, part] = scores @ inputs.keys[heads, part]
            sums.keys[heads, part] = scores.transpose(2, 3) @ inputs.content[heads, part]
            if sums.segment is not None:
                sums.segment[heads, part] = (scores * rows.other[part]).sum(-1, keepdim=True)
            _shift_back(scores, inputs, rows, heads, part, sums)
        return *sums, None, None


def _parts(inputs: Inputs) -> Iterator[tuple[slice, slice]]:
    """Yield the heads and the sequences to compute together."""
    heads, sequences, longest, _ = inputs.content.shape
    each = longest * inputs.distances.shape[1]
    capacity = max(1, CHUNK[cpu_or_gpu(inputs.content.device)] // each)
    many = min(sequences, capacity)
    wide = max(1, capacity // many) if many == sequences else 1
    for head in range(0, heads, wide):
        for first in range(0, sequences, many):
            yield slice(head, min(heads, head + wide)), slice(first, min(sequences, first + many))


def _probabilities(
    inputs: Inputs, rows: Rows, heads: slice, part: slice, dropout: float, seed: int
) -> tuple[Tensor, Tensor | None]:
    """Return the probabilities of a part, (heads, sequences, longest, keys), and its dropout mask."""
    probabilities = softmax(_scores(inputs, rows, heads, part))
    if not dropout:
        return probabilities, None
    key = (seed, heads.start, part.start)
    return probabilities, keep(probabilities.shape, dropout, probabilities.dtype, key, probabilities.device)


def _scores(inputs: Inputs, rows: Rows, heads: slice, part: slice, *, plainly: bool = False) -> Tensor:
    """Return the scores of a part, (heads, sequences, longest, keys)."""
    content, keys, table = inputs.content[heads, part], inputs.keys[heads, part], inputs.distances[heads]
    count, sequences, longest, width = content.shape
    queries = inputs.position[heads, part].reshape(count, sequences * longest, width)
    by_distance = queries @ table.transpose(1, 2)  # (heads, sequences * longest, distances)
    shifted = _shift(by_distance, rows, part, longest, keys.shape[2], plainly)  # (heads * sequences, longest, keys)
    scores = torch.baddbmm(shifted, content.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
    scores = scores.view(count, sequences, longest, -1)
    if inputs.segment is not None:
        assert rows.other is not None
        segment = inputs.segment[heads, part]
        scores = scores + segment * rows.other if plainly else scores.addcmul_(segment, rows.other[part])
    if rows.mask is None:
        return scores
    return scores + rows.mask if plainly else scores.add_(rows.mask[part])


def _shift(by_distance: Tensor, rows: Rows, part: slice, longest: int, keys: int, plainly: bool) -> Tensor:
    """Return the score of each key's distance, (heads * sequences, longest, keys).

    Args:
        by_distance: scores of distances, (heads, sequences * longest, distances).
        rows: the rows.
        part: the sequences.
        longest, keys: numbers of rows and of keys of each sequence.
        plainly: use operations that can be exported.
    """
    heads, _, distances = by_distance.shape
    if rows.shifts is not None:
        chosen = by_distance.reshape(heads, -1).index_select(1, _shifts(rows, part, longest, keys, distances))
        return chosen.view(-1, longest, keys)
    scores = by_distance.view(-1, longest, distances)
    if plainly:
        row, key = (torch.arange(size, device=scores.device) for size in (longest, keys))
        return scores.gather(2, (longest - 1 - row[:, None] + key).expand(scores.shape[0], -1, -1))
    return scores.as_strided((scores.shape[0], longest, keys), (longest * distances, distances - 1, 1), longest - 1)


def _shifts(rows: Rows, part: slice, longest: int, keys: int, distances: int) -> Tensor:
    """Return where the scores of the keys are among those of the distances, for the sequences of a part."""
    assert rows.shifts is not None
    first = part.start or 0
    each = rows.shifts.view(-1, longest * keys)[part] - first * longest * distances
    return each.reshape(-1)


def _shift_back(scores: Tensor, inputs: Inputs, rows: Rows, heads: slice, part: slice, sums: Inputs) -> None:
    """Write the gradient of the position queries of a part, and add that of the distances, given that of the scores."""
    table = inputs.distances[heads]
    count, sequences, longest, keys = scores.shape
    distances = table.shape[1]
    by_distance = scores.new_zeros(count, sequences * longest, distances)
    if rows.shifts is not None:
        shifts = _shifts(rows, part, longest, keys, distances).expand(count, -1)
        by_distance.view(count, -1).scatter_(1, shifts, scores.reshape(count, -1))
    else:
        strides = (longest * distances, distances - 1, 1)
        by_distance.as_strided((count * sequences, longest, keys), strides, longest - 1).copy_(scores.flatten(0, 1))
    sums.position[heads, part] = (by_distance @ table).view(count, sequences, longest, -1)
    queries = inputs.position[heads, part].reshape(count, sequences * longest, -1)
    sums.distances[heads] += by_distance.transpose(1, 2) @ queries
