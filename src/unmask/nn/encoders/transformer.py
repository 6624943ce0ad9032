"""The body of BERT and related families: embeddings, Transformer layers and a pooler.

Input: a ragged batch. Output: a vector for each token, and on request a pooled vector for each text.

Families differ in their embeddings, layers and poolers (families/bert.py and the other modules there).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, Keep, Shape
from unmask.nn.layers.block import Block, PreNormBlock, Sizes, in_one_call
from unmask.nn.layers.linear import fill_up
from unmask.support import panels

if TYPE_CHECKING:
    from unmask.data.batches.tokens import Tokens
    from unmask.nn.layers.embeddings import Embeddings
    from unmask.nn.layers.pooler import NormedPooler, Pooler

Layer: TypeAlias = Block | PreNormBlock


class BlockShape(Shape, Protocol):
    """The part of a family's settings that this body is built from."""

    def block(self, number: int, sizes: Sizes) -> Layer:
        """Return a new layer like that with this number (from 0), of these sizes."""
        ...


class Transformer(Encoder):
    """See the module; implements `Encoder` and the capabilities in `settings.provides`.

    Args:
        settings: settings of the family.
        vocabulary: number of token ids.
        embeddings: input embeddings.
        blocks: the layers; if there are fewer than `settings.layers`, the last one is repeated.
        pooler: the pooler, if the family has one.
    """

    def __init__(
        self,
        settings: BlockShape,
        vocabulary: int,
        embeddings: Embeddings,
        blocks: Sequence[Layer],
        pooler: Pooler | NormedPooler | None,
    ) -> None:
        super().__init__()
        self.take(settings, vocabulary)
        self.embeddings = embeddings
        self.blocks: Sequence[Layer] = nn.ModuleList(blocks)  # type: ignore[assignment]  # used as a sequence
        self.pooler = pooler

    @property
    def words(self) -> nn.Embedding:
        """See `WithTokenEmbeddings`."""
        return self.embeddings.words

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`."""
        return [self.embeddings, *self.blocks]

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """Encode a batch; see `Encoder`."""
        x = self.embeddings(tokens)  # (tokens, width)
        layers = {0: x} if 0 in keep.layers else {}
        blocks = [self.blocks[min(number, len(self.blocks) - 1)] for number in range(self.num_layers)]
        if not keep.scores and (together := in_one_call(blocks, x, tokens)) is not None:
            for start, stop in pairwise(sorted({0, *keep.layers, self.num_layers})):
                rows = self._needed(keep, stop)
                x = _spread(panels.encode(x, together[start:stop], rows), x, rows)
                if stop in keep.layers:
                    layers[stop] = x
            return Encoded(last=x, layers=layers)
        count = x.shape[0]  # export knows no `len`
        if self.blocks[0].attention.out.in_panels() is None:  # products in panels may have any number of rows
            x = fill_up(x)  # (rows, width): the tokens, then rows that nothing reads
        scores: dict[int, list[Tensor]] = {}
        for number, block in enumerate(blocks, 1):
            layer_scores = scores.setdefault(number, []) if number in keep.scores else None
            rows = self._needed(keep, number)
            if self.recompute and torch.is_grad_enabled() and layer_scores is None:
                y = checkpoint(block, x, tokens, rows=rows, use_reentrant=False)
            else:
                y = block(x, tokens, layer_scores, rows)  # (tokens or rows, width)
            x = _spread(y, x, rows)
            if number in keep.layers:
                layers[number] = x[:count]
        return Encoded(last=x[:count], layers=layers, scores=scores)

    def _needed(self, keep: Keep, number: int) -> Tensor | None:
        """Return the tokens whose output of a layer is needed; None: all."""
        return keep.rows if number == self.num_layers and number not in keep.layers else None

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings before their projection, (tokens, width of the embeddings)."""
        return self.embeddings.embed(tokens)

    def block(self, number: int, width: int, heads: int) -> Layer:
        """Return a newly initialized layer like one of its own, but narrower.

        Args:
            number: number of the layer, from 0.
            width: width of the new one; that of its feed-forward layers is in proportion.
            heads: number of its attention heads.
        """
        inner = self.blocks[0].feed_forward.down.in_features
        return self.settings.block(number, Sizes(width, heads, max(1, round(width * inner / self.width))))


def _spread(y: Tensor, x: Tensor, rows: Tensor | None) -> Tensor:
    """Return the output of some rows among zeros, like x; of all, as it is."""
    return y if rows is None else torch.zeros_like(x).index_copy(0, rows, y)
