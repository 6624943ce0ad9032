"""What every encoder gives and takes: the protocol between families and objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from unmask.batches.batch import Tokens


@dataclass(frozen=True)
class Encoded:
    """What an encoder gives for a batch.

    Attributes:
        last: the last layer, (tokens, width).
        layers: the layers asked for, each (tokens, width); 0 is the embeddings.
    """

    last: Tensor
    layers: Mapping[int, Tensor]


class Encoder(Protocol):
    """A module that reads tokens.

    Attributes:
        width: of its output.
        vocabulary: how many token ids it knows.
        longest: the longest sequence that it reads, in tokens.
        recompute: compute each layer again in the backward pass instead of keeping its activations.
    """

    width: int
    vocabulary: int
    longest: int
    recompute: bool

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings; tied decoders read its weight at call time, nobody registers it twice."""
        ...

    @property
    def levels(self) -> Sequence[nn.Module]:
        """Its parts from the bottom up, for learning rates by depth: the embeddings, then each layer.

        A module that serves as several layers stands there once; what is in none (the pooler) counts as a head.
        """
        ...

    def __call__(self, tokens: Tokens, keep: frozenset[int] = frozenset()) -> Encoded:
        """Encode a batch and hand out the layers in `keep`."""
        ...

    def pool(self, rows: Tensor) -> Tensor:
        """BERT's tanh layer over the rows at [CLS]: (sequences, width) to (sequences, width)."""
        ...

    def forward_flops(self, tokens: Tokens) -> int:
        """Return the floating-point operations of the matrix products of one forward pass over a batch, `pool` aside.

        A product of (n, k) and (k, m) counts 2 n k m. Counted are the tokens that are there: no padding, no look-ups,
        no norms, and nothing that is computed a second time to save memory. `tokens` lie on the CPU.
        """
        ...
