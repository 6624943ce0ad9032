"""What every encoder gives and takes: the protocol between bodies and objectives.

What every body has stands in `Encoder`. What only some have (token embeddings to tie a decoder to, a pooler, attention
scores, state carried from step to step) is a capability: a name in `Encoder.gives`, asked for by `Objective.asks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unmask.batches.batch import Tokens
from unmask.layers.block import Activation
from unmask.tokenizers.tokenizer import Summary

BOTH_SIDES = "context on both sides"
LEFT_TO_RIGHT = "reading from left to right"
TOKEN_EMBEDDINGS = "token embeddings"
"""There is `words`, a table to which a decoder can be tied."""
POOLER = "a pooler"
"""There is `pool`, which was trained, or can be, on the vector that stands for a whole text."""
NARROW_BLOCKS = "narrower blocks over its embeddings"
"""There are `embed` and `block`: a second, narrower body can be built over the same embeddings."""
SCORES = "attention scores"
SEPARATE_LAYERS = "layers with weights of their own"
CARRY = "state carried from step to step"

Carry = Mapping[str, Tensor]
"""What goes from one step to the next, by name; every tensor is (streams, ...). Most bodies carry nothing."""
NO_CARRY: Carry = MappingProxyType({})


@dataclass(frozen=True)
class Keep:
    """What of the inside of a body is handed out.

    Attributes:
        layers: numbers of layers; 0 is the embeddings.
        scores: numbers of layers (from 1) whose attention scores are wanted; only of bodies that give `SCORES`.
    """

    layers: frozenset[int] = frozenset()
    scores: frozenset[int] = frozenset()

    def __or__(self, other: Keep) -> Keep:
        return Keep(self.layers | other.layers, self.scores | other.scores)


NOTHING = Keep()


@dataclass(frozen=True)
class Encoded:
    """What an encoder gives for a batch.

    Attributes:
        last: the last layer, (tokens, width).
        layers: the layers asked for, each (tokens, width); 0 is the embeddings.
        scores: of the layers asked for, before the softmax: for each of the batch's groups
            (sequences, heads, longest, longest), 0 at padding.
        carry: new state, a row for each sequence of the batch, detached; empty where nothing was carried in.
    """

    last: Tensor
    layers: Mapping[int, Tensor]
    scores: Mapping[int, Sequence[Tensor]] = field(default_factory=dict)
    carry: Carry = field(default_factory=dict)


@dataclass(frozen=True)
class Initializer:
    """How weights are drawn: matrices from a normal distribution, biases 0, LayerNorms 1 and 0.

    Attributes:
        std: of the normal distribution.
        truncated: whether it is cut off at two standard deviations (google-research/bert).
    """

    std: float = 0.02
    truncated: bool = True

    def __call__(self, module: nn.Module) -> None:
        """Draw all weights of a module anew, from torch's global generator."""
        draw = _truncated_normal if self.truncated else nn.init.normal_
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                draw(part.weight, std=self.std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
            if isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)


@dataclass(frozen=True)
class HeadSpec:
    """What a head must know of the body that it sits on.

    Attributes:
        width: of the rows that it reads.
        init: draws its weights.
        activation: of dense layers in heads.
        lm_activation: of the dense layer of the masked-LM head.
        epsilon: of LayerNorms.
        dropout: before the last layer of heads that read a text's vector.
        token_dropout: before the last layer of heads that read each token's.
        pooler_dropout: before the pooler, where heads of whole texts have it there too.
        rnn_dropout: on what a recurrent model over the body's layers reads.
        bias: whether the last layer of a classifier of whole texts has one.
        summary: where a text's vector is read; see batches/frame.py.
    """

    width: int
    init: Initializer = Initializer()
    activation: Activation = "gelu"
    lm_activation: Activation = "gelu"
    epsilon: float = 1e-12
    dropout: float = 0.1
    token_dropout: float = 0.1
    pooler_dropout: float = 0.0
    rnn_dropout: float = 0.1
    bias: bool = True
    summary: Summary = "first"


class Encoder(nn.Module):
    """A module that reads tokens: what all bodies have in common.

    Attributes:
        settings: what its family built it from (families/body.py); None where no family did.
        width: of its output.
        num_layers: how many layers it has above the embeddings.
        vocabulary: how many token ids it knows.
        longest: the longest sequence that it reads, in tokens.
        recompute: compute each layer again in the backward pass instead of keeping its activations.
        head: what heads on it are like.
        gives: its capabilities, such as `TOKEN_EMBEDDINGS`.
        chosen: what makes it a small model over another encoder's layers (encoders/downstream.py); None: it is none.
    """

    settings: Any = None
    width: int
    num_layers: int
    vocabulary: int
    longest: int
    recompute: bool = False
    head: HeadSpec
    gives: frozenset[str] = frozenset()
    chosen: Any = None

    @property
    def reads(self) -> tuple[int, ...]:
        """The layers of the encoder itself that `last` is made of; of a small model over it, those that it reads."""
        return (self.num_layers,)

    def over(self, encoder: Encoder) -> Encoder:
        """Return what this is, over the layers of another encoder: that one, where this is no small model over one."""
        return encoder

    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that a small model has beside the encoder's."""
        return {}

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """Its layer groups from the bottom up, for learning rates by depth: the embeddings, then each layer.

        A module that serves as several layers stands there once; what is in none (the pooler) counts as a head.
        """
        raise NotImplementedError

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """Encode a batch and hand out what `keep` asks for.

        Args:
            tokens: what is read.
            keep: layers and attention scores to hand out.
            carry: where the body gives `CARRY`: a row of state for each sequence, in the batch's order.
        """
        raise NotImplementedError

    def forward_flops(self, tokens: Tokens) -> int:
        """Return the floating-point operations of the matrix products of one forward pass over a batch, `pool` aside.

        A product of (n, k) and (k, m) counts 2 n k m. Counted are the tokens that are there: no padding, no look-ups,
        no norms, and nothing that is computed a second time to save memory. `tokens` lie on the CPU.
        """
        raise NotImplementedError


class WithTokenEmbeddings(Protocol):
    """A body that gives `TOKEN_EMBEDDINGS`."""

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings; tied decoders read its weight at call time, nobody registers it twice."""
        ...


class WithPooler(Protocol):
    """A body that gives `POOLER`.

    Attributes:
        pooler: the module that pools.
    """

    pooler: nn.Module

    def pool(self, rows: Tensor) -> Tensor:
        """Return the pooled vectors of texts, such as BERT's tanh layer over [CLS]: (texts, width) to the same."""
        ...


class WithCarry(Protocol):
    """A body that gives `CARRY`."""

    def start(self, streams: int) -> Carry:
        """Return the state before the first step, a row for each stream. State is never a buffer."""
        ...


@torch.no_grad()
def _truncated_normal(weight: Tensor, std: float) -> None:
    """Draw each element again until it is within two standard deviations.

    torch's trunc_normal_ draws the whole matrix again and again, which takes four times as long.
    """
    if weight.is_meta:
        return
    values = weight.view(-1).normal_(std=std)
    outside = (values.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        values[outside] = drawn = torch.empty_like(outside, dtype=values.dtype).normal_(std=std)
        outside = outside[drawn.abs() > 2 * std]
