"""The interface of encoders, between bodies and objectives.

Common to all bodies is `Encoder`. Features of only some bodies (token embeddings to tie a decoder to, a pooler,
attention scores, state carried from step to step) are capabilities: names in `Encoder.provides`, required by
`ObjectiveSettings.requires`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn

from unmask.nn.layers.block import Activation, FeedForward, GatedFeedForward, SelfAttention
from unmask.nn.layers.embeddings import Embeddings

if TYPE_CHECKING:
    from unmask.data.batches.batch import Batch
    from unmask.data.batches.tokens import Tokens
    from unmask.support.choices import SummaryKind

BOTH_SIDES = "bidirectional context"
LEFT_TO_RIGHT = "left-to-right context"
TOKEN_EMBEDDINGS = "token embeddings"
"""The body has `words`, a table to which a decoder can be tied."""
POOLER = "a pooler"
"""The body has `pooler`, which is, or can be, trained on the vector that represents a whole text."""
NARROW_BLOCKS = "narrower blocks over its embeddings"
"""The body has `embed` and `block`: a second, narrower body can be built over the same embeddings."""
SCORES = "attention scores"
SEPARATE_LAYERS = "layers with separate weights"
CARRY = "state carried from step to step"
TWO_LMS = "a language model in each direction"
"""The body reads each sequence of a batch with directions by one of two language models, whose states are half as wide
as its output (nn/encoders/two_lms.py)."""
UNSEEN_TOKENS = "tokens that no token attends to"
"""Tokens of the body can attend to others without being attended to (`UNSEEN` in data/batches/batch.py)."""
CHARACTERS = "the characters of words as input"
TWO_STREAMS = "a second stream of queries"
"""The body predicts the tokens in `Tokens.queries` without reading them (nn/encoders/two_streams.py)."""

Carry = Mapping[str, Tensor]
"""The state that is passed from one step to the next, by name; each tensor is (streams, ...). Empty for most bodies."""
NO_CARRY: Carry = MappingProxyType({})


@dataclass(frozen=True)
class Keep:
    """The inner results of a body to return.

    Attributes:
        layers: numbers of layers; 0 is the embeddings.
        scores: numbers of layers (from 1) whose attention scores to return; only for bodies that give `SCORES`.
        rows: distinct tokens whose output is needed, (rows,) int64; that of the others may then be zero. None: all.
    """

    layers: frozenset[int] = frozenset()
    scores: frozenset[int] = frozenset()
    rows: Tensor | None = field(default=None, compare=False)

    def __or__(self, other: Keep) -> Keep:
        return Keep(self.layers | other.layers, self.scores | other.scores)


NOTHING = Keep()


@dataclass(frozen=True)
class Encoded:
    """The output of an encoder for a batch.

    Attributes:
        last: the last layer, (tokens, width).
        layers: the requested layers, each (tokens, width); 0 is the embeddings.
        scores: attention scores of the requested layers before the softmax: for each of the batch's groups
            (sequences, heads, longest, longest), 0 at padding.
        carry: new state, one row per sequence of the batch, detached; empty if no state was passed.
        queries: the last layer of the query stream, (queries, width); None if the batch has no queries.
    """

    last: Tensor
    layers: Mapping[int, Tensor]
    scores: Mapping[int, Sequence[Tensor]] = field(default_factory=dict)
    carry: Carry = field(default_factory=dict)
    queries: Tensor | None = None


@dataclass(frozen=True)
class Initializer:
    """Initialization of weights: matrices from a normal distribution, biases 0, LayerNorms 1 and 0.

    Attributes:
        std: standard deviation of the normal distribution.
        truncated: whether it is truncated at two standard deviations (google-research/bert).
        sublayers: number of sublayers by whose square root the standard deviation of matrices is divided whose output
            is added to the residual stream (Radford et al. 2019, section 2.3).
        offsets: offsets of the tokens that the first heads of each layer attend to; see `SelfAttention.attend_at`.
    """

    std: float = 0.02
    truncated: bool = True
    sublayers: int = 1
    offsets: tuple[int, ...] = ()

    def __call__(self, module: nn.Module) -> None:
        """Initialize all weights of a module, with torch's global generator."""
        if any(weight.is_meta for weight in module.parameters()):
            return  # they have no values, and torch would first import its compiler
        added = {id(part) for inner in module.modules() for part in _added(inner)}
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                self.draw(part.weight, added=id(part) in added)
            if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
                nn.init.zeros_(part.bias)
            if isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
        for part in module.modules() if self.offsets else ():
            if isinstance(part, SelfAttention):
                part.attend_at(self.offsets)
            if isinstance(part, Embeddings):
                part.begin_with_sinusoids(self.std)

    def draw(self, weight: Tensor, *, added: bool) -> None:
        """Draw a matrix, (outputs or rows, inputs or width); `added`: its output is added to the residual stream."""
        std = self.std / self.sublayers**0.5 if added else self.std
        (_truncated_normal if self.truncated else nn.init.normal_)(weight, std=std)


@dataclass(frozen=True)
class HeadSpec:
    """The properties of a body that its heads depend on.

    Attributes:
        width: width of the rows that heads read.
        init: initializes the weights of heads.
        activation: activation of dense layers in heads.
        lm_activation: activation of the dense layer in the masked-LM head.
        epsilon: epsilon of LayerNorms.
        dropout: dropout rate before the last layer of heads that read the vector of a text.
        token_dropout: dropout rate before the last layer of heads that read the vectors of tokens.
        pooler_dropout: additional dropout rate before the pooler, for heads of whole texts.
        rnn_dropout: dropout rate on the inputs of a recurrent model over the body's layers.
        bias: whether the last layer of a classifier of whole texts has a bias.
        dense_bias: whether the dense layer and the LayerNorm of the masked-LM head have biases.
        untied: whether the masked-LM head is a linear layer of its own, instead of a decoder tied to the embeddings.
        decoder_bias: whether that linear layer has a bias.
        pools_tokens: whether heads of tokens read them through the pooler.
        mean: whether the vector of a text is the mean of its tokens, instead of the one at the summary position.
        summary: where the vector of a text is read; see data/batches/frame.py.
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
    dense_bias: bool = True
    untied: bool = False
    decoder_bias: bool = True
    pools_tokens: bool = False
    mean: bool = False
    summary: SummaryKind = "first"


class Shape(Protocol):
    """The part of a family's settings that every body is built from."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        ...

    @property
    def width(self) -> int:
        """Width of the layers."""
        ...

    @property
    def positions(self) -> int:
        """Maximum sequence length in tokens."""
        ...

    @property
    def head(self) -> HeadSpec:
        """Properties of its heads."""
        ...

    @property
    def provides(self) -> frozenset[str]:
        """Capabilities; see `Encoder`."""
        ...


class Encoder(nn.Module):
    """Base class of all bodies: modules that encode tokens.

    Attributes:
        settings: settings of the family that it was built from (families/body.py); None for other encoders.
        width: width of its output.
        num_layers: number of layers above the embeddings.
        vocabulary: number of token ids.
        longest: maximum sequence length in tokens.
        recompute: whether to recompute each layer in the backward pass instead of keeping its activations.
        head: properties of its heads.
        provides: its capabilities, such as `TOKEN_EMBEDDINGS`.
        chosen: settings of a downstream model over another encoder (encoders/downstream.py); None for other encoders.
    """

    settings: Any = None
    width: int
    num_layers: int
    vocabulary: int
    longest: int
    recompute: bool = False
    head: HeadSpec
    provides: frozenset[str] = frozenset()
    chosen: Any = None

    def take(self, settings: Shape, vocabulary: int) -> None:
        """Set the attributes of a body that is built from the settings of a family."""
        self.settings = settings
        self.width = settings.width
        self.num_layers = settings.layers
        self.vocabulary = vocabulary
        self.longest = settings.positions
        self.head = settings.head
        self.provides = settings.provides

    def plan(self, tokens: Tokens) -> Tokens:
        """Return tokens of the host with the plan that `forward` reads; without one it makes it where they are."""
        return tokens

    @property
    def reads(self) -> tuple[int, ...]:
        """The encoder's layers that `last` is computed from; for a downstream model, the layers that it reads."""
        return (self.num_layers,)

    def over(self, encoder: Encoder) -> Encoder:
        """Return a downstream model with its encoder replaced by another one; for other encoders, that encoder."""
        return encoder

    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that a downstream model has in addition to its encoder's."""
        return {}

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """Layer groups from the bottom up, for layer-wise learning rates: the embeddings, then each layer.

        A module shared by several layers occurs once; modules in no group (the pooler) count as part of the head. In a
        body that gives `SEPARATE_LAYERS`, and no `CARRY`, each forward pass calls each layer once, and nothing else
        reads its weights: sharded training gathers them for that call.
        """
        raise NotImplementedError

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """Encode a batch, and also return the inner results that `keep` requests.

        Args:
            tokens: input tokens.
            keep: layers and attention scores to return, and the tokens whose output is needed.
            carry: for bodies that give `CARRY`, a row of state for each sequence, in the batch's order.
        """
        raise NotImplementedError


class WithTokenEmbeddings(Protocol):
    """A body that gives `TOKEN_EMBEDDINGS`."""

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings; tied decoders read the weight at call time instead of registering it again."""
        ...


class WithPooler(Protocol):
    """A body that gives `POOLER`.

    Attributes:
        pooler: pools the vectors of texts, as BERT's tanh layer on [CLS] does: (texts, width) to (texts, width); with
            `HeadSpec.pools_tokens`, also those of tokens.
    """

    pooler: nn.Module


class WithCarry(Protocol):
    """A body that gives `CARRY`."""

    def start(self, streams: int) -> Carry:
        """Return the state before the first step, one row per stream. State is never stored in a buffer."""
        ...


def text_rows(encoder: Encoder, batch: Batch) -> Tensor | None:
    """Return the tokens that `text_vectors` reads, (texts,); None: all."""
    return None if encoder.head.mean else batch.positions["summary"]


def text_vectors(encoder: Encoder, last: Tensor, batch: Batch) -> Tensor:
    """Return the vectors of texts before the pooler, if there is one, (texts, width).

    Args:
        encoder: determines whether these are means; see `HeadSpec`.
        last: its last layer, (tokens, width).
        batch: its input, with the positions "summary".
    """
    if not encoder.head.mean:
        return last.index_select(0, batch.positions["summary"])
    return mean_vectors(last, batch.tokens).to(last.dtype)


def mean_vectors(x: Tensor, tokens: Tokens) -> Tensor:
    """Return the mean over the tokens of each sequence, (sequences, width) float32.

    Args:
        x: (tokens, width); values at padding in the stream (`unmask.nn.encoders.stored`) do not count.
        tokens: determines the sequences.
    """
    group = tokens.groups[0]
    if group.real_in_batch is not None:  # for export: one group
        real = group.real_in_batch[..., None]
        rows = x.float().view(group.sequences, group.longest, x.shape[1])  # (sequences, longest, width)
        return torch.where(real, rows, 0).sum(1) / real.sum(1)
    return torch.segment_reduce(x.float(), "mean", offsets=tokens.offsets.long(), axis=0)


def token_vectors(encoder: Encoder, last: Tensor, batch: Batch, at: str) -> Tensor:
    """Return the vectors that heads of tokens read at the positions named `at`, (targets, width).

    The other arguments are those of `text_vectors`.
    """
    rows = last.index_select(0, batch.positions[at])
    return cast(WithPooler, encoder).pooler(rows) if encoder.head.pools_tokens and POOLER in encoder.provides else rows


def _added(module: nn.Module) -> tuple[nn.Module, ...]:
    """Return the linear layers of a sublayer whose output is added to the residual stream."""
    if isinstance(module, SelfAttention):
        return (module.out,)
    return (module.down,) if isinstance(module, FeedForward | GatedFeedForward) else ()


@torch.no_grad()
def _truncated_normal(weight: Tensor, std: float) -> None:
    """Draw weights from a normal distribution, redrawing those beyond two standard deviations.

    torch's trunc_normal_ redraws the whole matrix repeatedly, which takes four times as long.
    """
    if weight.is_meta:
        return
    values = weight.view(-1).normal_(std=std)
    outside = (values.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        values[outside] = drawn = torch.empty_like(outside, dtype=values.dtype).normal_(std=std)
        outside = outside[drawn.abs() > 2 * std]
