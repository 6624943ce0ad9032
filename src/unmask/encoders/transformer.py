"""The body of BERT and its family: a Transformer encoder, bidirectional (Devlin et al. 2019, section 3) or GPT's.

In: a ragged batch. Out: a vector for each token, and on request a pooled vector for a sequence.

Post-norm layers, learned positions, LayerNorm epsilon 1e-12, weights from a normal distribution of deviation 0.02 cut
off at two deviations (modeling.py of google-research/bert). GELU is the exact one, as in the paper and in the first
release (the reference code turned to the tanh approximation later: `activation = "gelu_tanh"`).

What its descendants changed about the body is a setting each: ALBERT's narrow embeddings and shared layers (Lan et al.
2020, section 3.1), RoBERTa's first position (fairseq: the one after that of padding, 2). GPT's body is the same one,
read from left to right, but that its embeddings are not normalised and have no segments, that its GELU is the
approximate one, that nothing is pooled, and that its initial weights are not cut off (Radford et al. 2018, section 4.1;
train.py of openai/finetune-transformer-lm). ELECTRA's body is told by its heads' pooling; its program draws the
projection of its embeddings by Glorot's rule, ALBERT's does not (modeling.py of google-research/electra and /albert).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

from unmask.batches.batch import Tokens
from unmask.encoders.encoder import Encoded
from unmask.layers.block import Activation, Block
from unmask.layers.embeddings import Embeddings

POOLING: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": gelu, "relu": torch.relu}

MOST_LAYERS = 1000
"""Of layers that are the same one weight is stored, so that nothing else tells a damaged number."""


class TransformerSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="transformer"
):
    """The recipe's [encoder] for `kind = "transformer"`.

    Attributes:
        layers, width, heads: L, H and A of the paper.
        feed_forward: inner width of the feed-forward layers (4 H in the paper).
        positions: the longest sequence in tokens.
        segments: how many segments there are; with 1 the second text of a pair is told by its separator alone.
        embedding: width of the embeddings, which are projected then; None: that of the layers, as is the layers' own
            width in ELECTRA's body, whose directories have a projection only where the widths differ.
        shared: which sublayers are the same in all layers: "none", "all", "attention" or "feed_forward".
        offset: rows before the first position in the table of positions.
        pooling: the activation of the pooled [CLS]: "tanh" (BERT), "gelu" (ELECTRA's heads) or "relu" (DistilBERT's);
            "none": a text's vector is read as it is (GPT).
        causal: tokens attend to themselves and those before, as in GPT.
        dropout: everywhere.
        head_dropout: before the last layer of a task's head; None: as everywhere.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        epsilon: of the LayerNorms.
        deviation: of the initial weights.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    activation: Activation = "gelu"
    epsilon: float = 1e-12
    deviation: float = 0.02
    embedding: int | None = None
    shared: Literal["none", "all", "attention", "feed_forward"] = "none"
    offset: int = 0
    pooling: Literal["tanh", "gelu", "relu", "none"] = "tanh"
    causal: bool = False
    head_dropout: float | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "positions", "embedding_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.removesuffix('_width')} must be at least 1")
        if self.layers > MOST_LAYERS:
            raise ValueError(f"layers must be at most {MOST_LAYERS}")
        for name in ("segments", "offset"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0")
        if self.pooling == "gelu" and self.embedding == self.width:
            msgspec.structs.force_setattr(self, "embedding", None)
        if self.causal != (self.pooling == "none"):
            raise ValueError('causal = true goes with pooling = "none": both are GPT\'s')
        if (self.pooling in ("relu", "none")) != (self.segments == 0):
            raise ValueError('segments = 0 goes with pooling = "relu" (DistilBERT) or "none" (GPT), and they with it')
        if self.causal and (self.embedding is not None or self.shared != "none" or self.offset):
            raise ValueError("causal is GPT's, which has neither embedding nor shared layers nor offset")
        if self.causal and (self.feed_forward != 4 * self.width or self.activation == "gelu"):
            raise ValueError('causal is GPT\'s: feed_forward is 4 times the width, activation "gelu_tanh" (or "relu")')
        if self.pooling == "relu" and (self.embedding is not None or self.shared != "none"):
            raise ValueError('pooling = "relu" goes with neither embedding nor shared: DistilBERT has them not')
        if self.pooling == "relu" and self.epsilon != 1e-12:
            raise ValueError('pooling = "relu" is DistilBERT\'s, whose directories know no epsilon but 1e-12')
        if self.pooling == "gelu" and self.shared == "all":
            raise ValueError('pooling = "gelu" is ELECTRA\'s, which shares no layers: set pooling = "tanh"')
        if self.offset and (self.pooling != "tanh" or self.embedding is not None or self.shared == "all"):
            raise ValueError(
                "offset is RoBERTa's, which has neither embedding nor shared layers nor other pooling: set offset = 0"
            )
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if not 0 <= self.dropout < 1 or not 0 <= self.before_last < 1:
            raise ValueError("dropout and head_dropout must lie in [0, 1)")
        for name in ("epsilon", "deviation"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1")

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, which is also that of the vocabulary's decoder."""
        return self.width if self.embedding is None else self.embedding

    def fits(self, pad: int) -> bool:
        """Whether positions begin where transformers has them with this id of padding: at 0, or right after it."""
        return self.offset in (0, pad + 1)

    @property
    def before_last(self) -> float:
        """Dropout before the last layer of a task's head."""
        return self.dropout if self.head_dropout is None else self.head_dropout

    @property
    def pooler_in_head(self) -> bool:
        """Whether the pooler is a part of the head of whole texts, with dropout before it: RoBERTa's and ELECTRA's."""
        return self.offset > 0 or self.pooling == "gelu"

    @property
    def head_activation(self) -> Activation:
        """Of the masked-LM head: the layers', but in RoBERTa and ELECTRA always GELU, as transformers has it."""
        return "gelu" if self.pooler_in_head else self.activation

    def build(self, vocabulary: int) -> Transformer:
        """Return an encoder with initial weights, drawn from torch's global generator."""
        return Transformer(self, vocabulary)


class Transformer(nn.Module):
    """See the module; satisfies `Encoder`.

    Args:
        settings: its shape.
        vocabulary: how many token ids it knows.
    """

    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.width = settings.width
        self.vocabulary = vocabulary
        self.longest = settings.positions
        self.recompute = False
        self.embeddings = Embeddings(
            vocabulary,
            settings.positions,
            settings.segments,
            settings.embedding_width,
            None if settings.embedding is None else settings.width,
            offset=settings.offset,
            dropout=settings.dropout,
            epsilon=None if settings.causal else settings.epsilon,
        )
        blocks: list[Block] = []
        for number in range(1 if settings.shared == "all" else settings.layers):
            first = blocks[0] if number else None
            blocks.append(
                Block(
                    settings.width,
                    settings.heads,
                    settings.feed_forward,
                    settings.dropout,
                    settings.activation,
                    settings.epsilon,
                    causal=settings.causal,
                    attention_of=first if settings.shared == "attention" else None,
                    feed_forward_of=first if settings.shared == "feed_forward" else None,
                )
            )
        self.blocks = nn.ModuleList(blocks)
        self.pooler = None if settings.pooling == "none" else nn.Linear(settings.width, settings.width)
        initialise(self, settings)
        if settings.pooling == "gelu" and self.embeddings.project is not None:
            nn.init.xavier_uniform_(self.embeddings.project.weight)

    @property
    def words(self) -> nn.Embedding:
        """See `Encoder`."""
        return self.embeddings.words

    @property
    def levels(self) -> Sequence[nn.Module]:
        """See `Encoder`."""
        return [self.embeddings, *self.blocks]

    def forward(self, tokens: Tokens, keep: frozenset[int] = frozenset()) -> Encoded:
        """Encode a batch; see `Encoder`."""
        x = self.embeddings(tokens)  # (tokens, width)
        layers = {0: x} if 0 in keep else {}
        for number in range(1, self.settings.layers + 1):
            block = self.blocks[min(number, len(self.blocks)) - 1]
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, tokens, use_reentrant=False)
            else:
                x = block(x, tokens)  # (tokens, width)
            if number in keep:
                layers[number] = x
        return Encoded(last=x, layers=layers)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings before their projection, (tokens, width of the embeddings)."""
        return self.embeddings.embed(tokens)

    def pool(self, rows: Tensor) -> Tensor:
        """See `Encoder`."""
        return rows if self.pooler is None else POOLING[self.settings.pooling](self.pooler(rows))

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Encoder`: the projection of narrow embeddings, and the layers."""
        projected = 2 * len(tokens.ids) * (self.settings.embedding or 0) * self.width
        layer = layer_flops(tokens, self.width, self.settings.feed_forward, causal=self.settings.causal)
        return projected + self.settings.layers * layer


def layer_flops(tokens: Tokens, width: int, inner: int, *, causal: bool = False) -> int:
    """Return a layer's operations: its matrices see each token, attention each pair of a sequence's tokens twice.

    Read from left to right, a token makes no pair with what comes later.
    """
    matrices = 4 * width * width + 2 * width * inner  # query, key, value, out; up, down
    lengths = tokens.offsets.diff().long()
    pairs = int((lengths * (lengths + 1) // 2 if causal else lengths.square()).sum())
    return 2 * (len(tokens.ids) * matrices + 2 * pairs * width)


def initialise(module: nn.Module, settings: TransformerSettings) -> None:
    """Draw matrices as BERT does: normal, cut off at two deviations; biases 0, LayerNorms 1 and 0.

    GPT's are not cut off, nor are they in the programs of RoBERTa and SpanBERT, whose papers say nothing of it.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            draw = nn.init.normal_ if settings.causal else _truncated_normal
            draw(part.weight, std=settings.deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)


@torch.no_grad()
def _truncated_normal(weight: Tensor, std: float) -> None:
    """Draw each element again until it is within two deviations.

    torch's trunc_normal_ draws the whole matrix again and again, which takes four times as long.
    """
    if weight.is_meta:
        return
    values = weight.view(-1).normal_(std=std)
    outside = (values.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        values[outside] = drawn = torch.empty_like(outside, dtype=values.dtype).normal_(std=std)
        outside = outside[drawn.abs() > 2 * std]
