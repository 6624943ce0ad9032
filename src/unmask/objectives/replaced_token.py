"""Tell which tokens were replaced by a small generator: replaced token detection.

In: samples with `positions["hidden"]` and `labels["hidden"]`. A generator, trained along as a masked language model,
fills the hidden places; the encoder reads the filled text and says of each token, special ones included, whether it is
the one that stood there. Out: two parts, this objective's own over all tokens, and `generator` over the hidden ones.

Clark et al. 2020 (ELECTRA), sections 2 and 3.2. What the generator draws is taken as it is: no gradient flows through
it, and a token that it guesses right counts as original. Generator and encoder share all embeddings, their LayerNorm
included. Different from the paper, as its code: of the hidden places 15 % keep their token, and are filled and asked
about as the others are (the recipes' [masking]); the head's last layer and the projection of the generator's embeddings
are drawn by Glorot's rule (run_pretraining.py, modeling.py). Different from the reference code: positions are hidden
without replacement (see batches/masking.py); and a token is drawn by the inverse of the cumulative distribution at one
number of the sample's own, instead of by Gumbel noise over the vocabulary: the same distribution, and the same draw
however a batch is cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from unmask.batches.batch import Batch, Sample
from unmask.batches.chance import generator
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.transformer import Transformer, TransformerSettings, initialise, layer_flops
from unmask.layers.block import ACTIVATIONS, Block
from unmask.layers.linear import Linear
from unmask.layers.norm import LayerNorm
from unmask.layers.vocabulary import vocabulary_loss_and_draw
from unmask.objectives.objective import Objective, Part

GENERATOR = "generator"
"""Name of the generator's part of the loss."""
HEAD_WIDTH = 64
"""Of the generator's attention."""


class ReplacedTokenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [objective.replaced_token].

    Attributes:
        weight: in the sum of losses (the paper's lambda).
        generator_weight: of the generator's masked language modelling.
        generator_size: its width, as a share of the encoder's; it has as many layers.
    """

    weight: float = 50.0
    generator_weight: float = 1.0
    generator_size: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.generator_size <= 1:
            raise ValueError("generator_size must lie in (0, 1]")

    def build(self, encoder: TransformerSettings, vocabulary: int) -> ReplacedToken:
        """Return the objective with an untrained generator and head."""
        return ReplacedToken(self, encoder, vocabulary)


class Generator(nn.Module):
    """A masked language model over the encoder's own embeddings.

    Args:
        encoder: settings of the encoder whose embeddings it shares.
        width: of its layers.
        vocabulary: its size.
    """

    def __init__(self, encoder: TransformerSettings, width: int, vocabulary: int) -> None:
        super().__init__()
        narrow, self.inner = encoder.embedding_width, max(1, round(width * encoder.feed_forward / encoder.width))
        self.project = None if narrow == width else Linear(narrow, width)
        self.blocks = nn.ModuleList(
            Block(width, heads_of(width), self.inner, encoder.dropout, encoder.activation, encoder.epsilon)
            for _ in range(encoder.layers)
        )
        self.dense = nn.Linear(width, narrow)
        self.activation = ACTIVATIONS[encoder.head_activation]()
        self.norm = LayerNorm(narrow, encoder.epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, encoder: Transformer, batch: Batch) -> Tensor:
        """Return what the decoder reads at the hidden positions, (hidden, width of the embeddings)."""
        x = encoder.embed(batch.tokens)  # (tokens, width of the embeddings)
        if self.project is not None:
            x = self.project(x)
        for block in self.blocks:
            x = block(x, batch.tokens)  # (tokens, width)
        return self.norm(self.activation(self.dense(x.index_select(0, batch.positions["hidden"]))))

    def forward_flops(self, batch: Batch) -> int:
        """Return the operations of its products; see `Encoder.forward_flops`."""
        width, narrow = self.dense.in_features, self.dense.out_features
        projected = 0 if self.project is None else 2 * len(batch.tokens.ids) * narrow * width
        head = 2 * len(batch.positions["hidden"]) * narrow * (width + len(self.bias))
        return projected + len(self.blocks) * layer_flops(batch.tokens, width, self.inner) + head


class ReplacedToken(Objective):
    """See the module.

    Args:
        settings: the recipe's.
        encoder: settings of the body that the head sits on.
        vocabulary: its size.
    """

    at = "every"
    needs = frozenset({"hidden"})

    def __init__(self, settings: ReplacedTokenSettings, encoder: TransformerSettings, vocabulary: int) -> None:
        super().__init__()
        self.weight = settings.weight
        self.generator_weight = settings.generator_weight
        width = max(1, round(encoder.width * settings.generator_size))
        self.generator = Generator(encoder, width, vocabulary)
        self.dense = nn.Linear(encoder.width, encoder.width)
        self.activation = ACTIVATIONS[encoder.activation]()
        self.out = nn.Linear(encoder.width, 1)
        initialise(self, encoder)
        for layer in (self.out, self.generator.project):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)

    def part_weights(self, name: str) -> Mapping[str, float]:
        """See `Objective`: the generator's part too."""
        return {name: self.weight, GENERATOR: self.generator_weight}

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; the chance of each hidden token comes from what the masking has made of the sample."""
        rng = generator(zlib.crc32(sample.ids.tobytes()), "replaced_token", *sample.key)
        hidden = len(sample.labels["hidden"])
        return sample.add(
            positions={"every": np.arange(len(sample))},
            labels={"chance": rng.random(hidden).astype(np.float32)},
            counts={name: len(sample), GENERATOR: hidden},
        )

    def before(self, encoder: Encoder, batch: Batch) -> tuple[Batch, Mapping[str, Part]]:
        """See `Objective`: let the generator fill the hidden places."""
        assert isinstance(encoder, Transformer), "only the Transformer's embeddings can be shared"
        gold, hidden = batch.labels["hidden"], batch.positions["hidden"]
        rows = self.generator(encoder, batch)
        loss, correct, drawn = vocabulary_loss_and_draw(
            rows, encoder.words.weight, self.generator.bias, gold, batch.labels["chance"]
        )
        replaced = torch.zeros(len(batch.tokens.ids), device=drawn.device)
        filled = replace(
            batch,
            tokens=replace(batch.tokens, ids=batch.tokens.ids.index_copy(0, hidden, drawn)),
            labels={**batch.labels, "replaced": replaced.index_copy(0, hidden, (drawn != gold).float())},
        )
        return filled, {GENERATOR: Part(loss, {"accuracy": correct})}

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return a logit for each token, above 0 where it was replaced, (tokens, 1)."""
        rows = encoded.last.index_select(0, batch.positions["every"])
        return self.out(self.activation(self.dense(rows)))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits = self.predict(encoder, encoded, batch).squeeze(1).float()
        gold = batch.labels["replaced"].index_select(0, batch.positions["every"])
        loss = binary_cross_entropy_with_logits(logits, gold, reduction="sum")
        right = ((logits.detach() > 0) == (gold > 0)).sum()
        return Part(loss, {"accuracy": right, "guess": (gold == 0).sum()})

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the generator, and the head at every token."""
        if not len(batch.positions["every"]):
            return 0
        head = 2 * len(batch.positions["every"]) * encoder.width * (encoder.width + 1)
        return head + self.generator.forward_flops(batch)


def heads_of(width: int) -> int:
    """Return how many heads a generator has: of width 64, or one."""
    return width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 1
