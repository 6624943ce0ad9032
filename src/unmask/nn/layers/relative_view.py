"""What the rows of each attention group attend to: what all layers of a body with relative attention share.

Input: a ragged batch, and how many tokens of memory precede each of its sequences. Output: for each group the rows that
attend (its tokens, and its queries if there are any), the keys that are hidden from them, and the distances of the
keys.

A token sees the tokens whose rank in the factorization order is not above its own; ordinary tokens, which are not
predicted, share a rank. A query sees only those with a lower rank, so not the token itself. Without an order all tokens
see each other. Memory is seen by all (Yang et al. 2019 (XLNet), sections 2.3 and 2.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.data.batches.batch import Tokens
from unmask.data.batches.groups import Group
from unmask.nn.layers.score_blocks import to_bias


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
    found, first = [], 0
    for number, group in enumerate(tokens.groups):
        sequences = slice(first, first + group.sequences)
        first += group.sequences
        real = _real(group, memory, None if remembered is None else remembered[sequences], like.device)
        queries = _queries(tokens, number, memory, real, like) if tokens.query_groups else None
        found.append(View(_tokens(tokens, group, memory, real, like), queries, sequences, memory))
    return found


def _tokens(tokens: Tokens, group: Group, memory: int, real: Tensor | None, like: Tensor) -> Rows:
    """Return the tokens of a group as rows."""
    attended, other = real, None
    if tokens.order is not None:
        order = _by_sequence(tokens.order, group)
        attended = _and(real, _with_memory(order[:, None] <= order[:, :, None], memory, None))
    if tokens.segments is not None:
        segments = _by_sequence(tokens.segments, group)
        other = _with_memory(segments[:, None] != segments[:, :, None], memory, segments != 0)
    return Rows(group, None if attended is None else to_bias(attended, like), _to(other, like))


def _queries(tokens: Tokens, number: int, memory: int, real: Tensor | None, like: Tensor) -> Rows | None:
    """Return the queries of a group as rows; None if it has none."""
    assert tokens.queries is not None
    group, asking = tokens.groups[number], tokens.query_groups[number]
    if not asking.longest:
        return None
    at = _by_sequence(tokens.queries, asking)  # (sequences, longest)
    place = tokens.position_ids[at]  # (sequences, longest)
    order, segments = tokens.order, tokens.segments
    assert order is not None, "queries need an order"
    own = _by_sequence(order, group)  # (sequences, longest token)
    attended = _and(real, _with_memory(own[:, None] < order[at][:, :, None], memory, None))
    other = None
    if segments is not None:
        mine, theirs = segments[at], _by_sequence(segments, group)
        other = _with_memory(theirs[:, None] != mine[:, :, None], memory, mine != 0)
    keys, width = memory + group.longest, 2 * group.longest + memory - 1
    row = torch.arange(asking.sequences * asking.longest, device=at.device) * width  # (sequences * longest,)
    starts = row + (group.longest - 1 - place).view(-1)
    shifts = (starts[:, None] + torch.arange(keys, device=at.device)).view(-1)
    return Rows(asking, to_bias(attended, like), _to(other, like), shifts, attended.any(-1, keepdim=True))


def _by_sequence(values: Tensor, group: Group) -> Tensor:
    """Return the values of a group's rows, (sequences, longest), arbitrary at padding."""
    found = values[group.start : group.stop] if group.slots is None else values.index_select(0, group.slots)
    return found.view(group.sequences, group.longest)


def _real(group: Group, memory: int, remembered: Tensor | None, device: torch.device) -> Tensor | None:
    """Return whether keys exist, (sequences, 1, keys); None: all of them."""
    if group.real is None and remembered is None:
        return None
    parts = []
    if memory:
        old = torch.ones(group.sequences, memory, dtype=torch.bool, device=device)
        parts.append(old if remembered is None else torch.arange(memory, 0, -1, device=device) <= remembered[:, None])
    own = torch.ones(group.sequences, group.longest, dtype=torch.bool, device=device)
    return torch.cat([*parts, own if group.real is None else group.real], 1)[:, None]


def _with_memory(found: Tensor, memory: int, value: Tensor | None) -> Tensor:
    """Return (sequences, rows, keys) from (sequences, rows, tokens), with a value for each row's memory; None: true."""
    if not memory:
        return found
    old = torch.ones(*found.shape[:2], memory, dtype=torch.bool, device=found.device)
    return torch.cat([old if value is None else old & value[:, :, None], found], 2)


def _and(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first & second


def _to(values: Tensor | None, like: Tensor) -> Tensor | None:
    return None if values is None else values.to(like.dtype)
