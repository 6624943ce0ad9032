"""Attention with relative positions and relative segments of one stream to the keys of one group.

Input: queries for content, for positions and for segments, keys and values, and the keys of distances, all by heads.
Output: what each row attends to, weighted. The scores are

    content_query key^T + shift(position_query distance^T) + segment_query * other + mask,

the four terms of Dai et al. 2019 (Transformer-XL), section 3.3, and the relative segments of Yang et al. 2019 (XLNet),
section 2.6. Queries are scaled already. The score of a row of a distance's table belongs to another key for each row of
the stream: for consecutive tokens the shift is a view of the same memory with another stride, for the few queries it is
an index.

There are two kernels with equal outputs and gradients: `fused`, one autograd function, and `plain`, for export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from unmask.nn.layers.dropout import draw, keep
from unmask.nn.layers.fused_attention import softmax, softmax_backward
from unmask.nn.layers.relative_view import Rows
from unmask.support.capabilities import cpu_or_gpu

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
            probabilities, kept = _probabilities(inputs, rows, heads, part, dropout, ctx.seed)
            dropped = probabilities if kept is None else probabilities * kept
            out[heads, part] = dropped @ inputs.values[heads, part]
            if learning and not ctx.recompute:
                saved += (probabilities, kept)
        ctx.save_for_backward(*inputs, *saved)
        return out.mul_(1 / (1 - dropout)) if dropout else out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        given = ctx.saved_tensors  # may be read only once
        inputs, saved = Inputs(*given[:6]), iter(given[6:])
        rows, dropout = ctx.rows, ctx.dropout
        grad_out = grads[0] * (1 / (1 - dropout)) if dropout else grads[0]
        sums = Inputs(*(torch.empty_like(x) if x is not None else x for x in inputs))  # type: ignore[arg-type]
        sums.distances.zero_()
        for heads, part in _parts(inputs):
            if ctx.recompute:
                probabilities, kept = _probabilities(inputs, rows, heads, part, dropout, ctx.seed)
            else:
                probabilities, kept = next(saved), next(saved)
            dropped = probabilities if kept is None else probabilities * kept
            out = grad_out[heads, part]
            sums.values[heads, part] = dropped.transpose(2, 3) @ out
            found = out @ inputs.values[heads, part].transpose(2, 3)
            found = softmax_backward(found if kept is None else found.mul_(kept), probabilities)
            sums.content[heads, part] = found @ inputs.keys[heads, part]
            sums.keys[heads, part] = found.transpose(2, 3) @ inputs.content[heads, part]
            if sums.segment is not None:
                sums.segment[heads, part] = (found * rows.other[part]).sum(-1, keepdim=True)
            _shift_back(found, inputs, rows, heads, part, sums)
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


def _shift_back(found: Tensor, inputs: Inputs, rows: Rows, heads: slice, part: slice, sums: Inputs) -> None:
    """Write the gradient of the position queries of a part, and add that of the distances, given that of the scores."""
    table = inputs.distances[heads]
    count, sequences, longest, keys = found.shape
    distances = table.shape[1]
    by_distance = found.new_zeros(count, sequences * longest, distances)
    if rows.shifts is not None:
        shifts = _shifts(rows, part, longest, keys, distances).expand(count, -1)
        by_distance.view(count, -1).scatter_(1, shifts, found.reshape(count, -1))
    else:
        strides = (longest * distances, distances - 1, 1)
        by_distance.as_strided((count * sequences, longest, keys), strides, longest - 1).copy_(found.flatten(0, 1))
    sums.position[heads, part] = (by_distance @ table).view(count, sequences, longest, -1)
    queries = inputs.position[heads, part].reshape(count, sequences * longest, -1)
    sums.distances[heads] += by_distance.transpose(1, 2) @ queries
