"""The body of XLNet: a Transformer with relative positions, a second stream of queries, and memory (Yang et al. 2019).

Input: a ragged batch; in pretraining with a factorization order, the tokens that are predicted, and the memory of each
sequence. Output: the content stream, one vector per token, and the query stream, one per predicted token, which starts
from a learned vector and attends to the content of the tokens earlier in the order. Only these tokens are in the query
stream, as in section 2.4. Both streams are rows of one matrix, tokens first, that each layer transforms at once.

Memory is the hidden states that a stream's previous windows had in each layer below. No gradient flows into it from
step to step. `remember` limits which tokens of a window enter it; the last `memory` ones are kept. In the reference
code memory starts as zeros that are attended to; here what does not exist yet is not attended to.

A sequence longer than `window` is read in windows of this length, from the start, each with the previous ones' states
as memory: time and space are linear in its length. There gradients do flow through the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.data.batches.frame import cut_windows
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, Keep, Shape
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import fill_up
from unmask.nn.layers.relative import RelativeBlock, distance_table
from unmask.nn.layers.relative_kernels import views

if TYPE_CHECKING:
    from unmask.data.batches.tokens import Tokens
    from unmask.nn.layers.embeddings import Embeddings
    from unmask.nn.layers.pooler import Pooler

REMEMBERED = "remembered"
"""Name, in the state, of how many tokens of memory a stream has."""


class MemoryShape(Shape, Protocol):
    """The part of a family's settings that this body is built from."""

    @property
    def memory(self) -> int:
        """Maximum number of tokens of memory."""
        ...

    @property
    def window(self) -> int | None:
        """Maximum number of tokens that are read at once; None: no limit."""
        ...

    @property
    def dropout(self) -> float:
        """Dropout rate."""
        ...


class TwoStreams(Encoder):
    """See the module; implements `Encoder`, `WithTokenEmbeddings`, `WithPooler` and `WithCarry`.

    Args:
        settings: settings of the family.
        vocabulary: number of token ids.
        embeddings: token embeddings.
        blocks: the layers.
        pooler: the pooler.
    """

    def __init__(
        self,
        settings: MemoryShape,
        vocabulary: int,
        embeddings: Embeddings,
        blocks: Sequence[RelativeBlock],
        pooler: Pooler,
    ) -> None:
        super().__init__()
        self.take(settings, vocabulary)
        self.embeddings = embeddings
        self.query = nn.Parameter(torch.zeros(settings.width))
        self.blocks: Sequence[RelativeBlock] = nn.ModuleList(blocks)  # type: ignore[assignment]  # used as a sequence
        self.dropout = Dropout(settings.dropout)
        self.pooler = pooler

    @property
    def words(self) -> nn.Embedding:
        """See `WithTokenEmbeddings`."""
        return self.embeddings.words

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`."""
        return [self.embeddings, *self.blocks]

    def start(self, streams: int) -> Carry:
        """See `WithCarry`; all streams start without memory."""
        weight = self.words.weight
        state = {name: weight.new_zeros(streams, self.settings.memory, self.width) for name in self._names}
        return {**state, REMEMBERED: torch.zeros(streams, dtype=torch.int64, device=weight.device)}

    @property
    def _names(self) -> list[str]:
        """Names of the layers' memory: what enters each of them."""
        return [f"memory.{number}" for number in range(self.num_layers)]

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """Encode a batch; see `Encoder`.

        With queries, `last` is 0 if `keep.rows` is empty: the last layer is then computed for the queries alone.
        """
        if not carry and self.in_windows(tokens):
            return self._read_windows(tokens, keep)
        encoded, entered = self._read(tokens, keep, carry)
        if carry:
            state = {name: rows.detach() for name, rows in self._remember(tokens, entered, carry).items()}
            return replace(encoded, carry=state)
        return encoded

    def in_windows(self, tokens: Tokens) -> bool:
        """Return whether the sequences of a batch are read in windows: if one is longer, and nothing is predicted."""
        size, ragged = (
            self.settings.window,
            all(group.real_in_batch is None for group in tokens.groups),
        )
        independent = tokens.reading.order is None and tokens.reading.backward is None and ragged
        return size is not None and independent and max(group.longest for group in tokens.groups) > size

    def _read_windows(self, tokens: Tokens, keep: Keep) -> Encoded:
        """Encode a batch window by window; the rows that `keep` asks for are among all."""
        carry: Carry = NO_CARRY
        last, layers = [], dict[int, list[Tensor]]()
        indices = []
        for window in cut_windows(tokens, self.settings.window):
            sequences = len(window.tokens.offsets) - 1
            carry = {name: rows[len(rows) - sequences :] for name, rows in carry.items()}
            encoded, entered = self._read(window.tokens, Keep(keep.layers), carry)
            carry = self._remember(window.tokens, entered, carry or self.start(sequences))
            indices.append(window.index)
            last.append(encoded.last)
            for number, x in encoded.layers.items():
                layers.setdefault(number, []).append(x)
        order = torch.cat(indices)  # (tokens,)

        def whole(parts: list[Tensor]) -> Tensor:
            x = torch.cat(parts)
            return torch.empty_like(x).index_copy(0, order, x)

        return Encoded(whole(last), {number: whole(parts) for number, parts in layers.items()})

    def _read(self, tokens: Tokens, keep: Keep, carry: Carry) -> tuple[Encoded, list[Tensor]]:
        """Encode a batch, and also return what entered each layer, (tokens, width)."""
        x = self.embeddings(tokens)  # (tokens, width)
        count, layers, entered = x.shape[0], {0: x}, [x]
        asked = 0 if tokens.reading.queries is None else tokens.reading.queries.shape[0]
        if asked:
            x = torch.cat([x, self.dropout(self.query.expand(asked, -1))])
        x = fill_up(x)  # (rows, width): the tokens, the queries, then rows that nothing reads
        memory = self.settings.memory if carry else 0
        seen = views(tokens, memory, carry.get(REMEMBERED), x)
        table = distance_table(max(view.keys for view in seen), self.width, x)
        read = None if self.num_layers in keep.layers else keep.rows
        alone = asked > 0 and read is not None and not read.shape[0]
        for number, block in enumerate(self.blocks, 1):
            old = carry[f"memory.{number - 1}"] if memory else None
            top = number == self.num_layers
            rows = read if top and read is not None and read.shape[0] and not asked else None
            if self.recompute and torch.is_grad_enabled():
                y = checkpoint(block, x, old, table, seen, rows, queries_alone=top and alone, use_reentrant=False)
            else:
                y = block(x, old, table, seen, rows, queries_alone=top and alone)
            if rows is not None:
                y = torch.zeros_like(x).index_copy(0, rows, y)
            x = torch.cat([torch.zeros_like(x[:count]), y]) if top and alone else y
            layers[number] = x[:count]
            entered.append(x[:count])
        x = self.dropout(x)
        wanted = {number: layers[number] for number in keep.layers}
        queries = x[count : count + asked] if tokens.reading.queries is not None else None
        return Encoded(x[:count], wanted, queries=queries), entered

    def _remember(self, tokens: Tokens, entered: Sequence[Tensor], carry: Carry) -> Carry:
        """Return the new state: the memory of each sequence, with the tokens of this batch that are remembered."""
        count = len(tokens.offsets) - 1
        slots = torch.arange(self.settings.memory, device=tokens.ids.device)
        starts, ends = tokens.offsets[:-1].long(), tokens.offsets[1:].long()
        remember = tokens.reading.remember
        new = ends - starts if remember is None else (ends - starts).clamp(max=remember)  # (sequences,)
        last = (
            slots - len(slots) + new[:, None]
        )  # (sequences, memory) position in the sequence; negative: in the memory
        is_new, old = last >= 0, (last + len(slots)).clamp(max=len(slots) - 1)
        at = (starts[:, None] + last.clamp(min=0)).view(-1)
        state = {}
        for name, x in zip(self._names, entered, strict=False):
            before = carry[name].gather(1, old[:, :, None].expand(-1, -1, self.width))
            state[name] = torch.where(is_new[:, :, None], x.index_select(0, at).view(count, -1, self.width), before)
        return {**state, REMEMBERED: (carry[REMEMBERED] + new).clamp(max=len(slots))}
