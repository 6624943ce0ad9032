"""Replaced token detection: classify which tokens a small generator has replaced.

Input: samples with `positions["masked"]` and `labels["masked"]`. A generator, trained jointly as a masked language
model, fills the masked positions; the encoder reads the filled text and predicts for each token, including special
ones, whether it was replaced. Output: two parts of the loss, the objective's own with one term per token, and
`generator` with one term per masked token.

Clark et al. 2020, arXiv 2003.10555 (ELECTRA), sections 2 and 3.2. No gradient flows through the tokens drawn from the
generator, and a token that it predicts correctly counts as original. Generator and encoder share all embeddings,
including their LayerNorm. Differences from the paper, as in its code: 15 % of the masked positions keep their token,
and are filled and classified like the others (the recipes' [masking]); the head's last layer and the projection of the
generator's embeddings are initialized by Glorot's rule (run_pretraining.py, modeling.py). Differences from the
reference code: positions are masked without replacement (see data/batches/masking.py); and a token is drawn by
inverting the cumulative distribution at a random number derived from the sample, instead of by Gumbel noise over the
vocabulary: this is the same distribution, and the draw does not depend on how a step is split into micro-batches.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.masking import MASKED
from unmask.data.batches.rng import derive_rng
from unmask.data.batches.tokens import Tokens
from unmask.nn.encoders.encoder import BOTH_SIDES, NARROW_BLOCKS, TOKEN_EMBEDDINGS, Encoded, Encoder
from unmask.nn.encoders.transformer import Layer
from unmask.nn.layers.block import ACTIVATIONS
from unmask.nn.layers.embeddings import pass_on_
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.vocabulary import vocabulary_loss_and_draw
from unmask.objectives.objective import (
    BuildContext,
    Objective,
    ObjectiveSettings,
    Part,
    accuracy_of,
    decoder_of,
    most_frequent,
)

GENERATOR = "generator"
"""Name of the generator's part of the loss."""
HEAD_WIDTH = 64
"""Width of the generator's attention heads."""
CONTEXT_FREE = 0.9
"""Threshold on the ratio of the loss to that of a constant prediction, above which the discriminator does not use the
context. The ratio was 0.96 to 0.99 for discriminators that only knew which words a generator draws too often, and 0.89
or less for those that had started to use the context (docs/family.md)."""


class Narrowing(Protocol):
    """A body that gives `NARROW_BLOCKS`."""

    num_layers: int

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings before their projection, (tokens, width of the embeddings)."""
        ...

    def block(self, number: int, width: int, heads: int) -> Layer:
        """Return a newly initialized layer like its own with this number (from 0), but narrower."""
        ...


class ReplacedTokenSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.replaced_token].

    Attributes:
        weight: weight in the sum of losses (lambda in the paper).
        generator_weight: weight of the masked language modeling loss of the generator.
        generator_size: width of the generator as a fraction of the encoder's; it has as many layers.
    """

    weight: float = 50.0
    generator_weight: float = 1.0
    generator_size: float = 0.25

    requires = frozenset({MASKED, BOTH_SIDES, TOKEN_EMBEDDINGS, NARROW_BLOCKS})
    exclusive = frozenset({MASKED})

    def __post_init__(self) -> None:
        if not 0 < self.generator_size <= 1:
            raise ValueError("generator_size must lie in (0, 1]")

    def part_weights(self, name: str) -> Mapping[str, float]:
        """See `ObjectiveSettings`; includes the part of the generator."""
        return {name: self.weight, GENERATOR: self.generator_weight}

    def build(self, context: BuildContext) -> ReplacedToken:
        """See `ObjectiveSettings`."""
        return ReplacedToken(self, context)

    @classmethod
    def of_head(cls, tensors: Mapping[str, Tensor], width: int) -> ReplacedTokenSettings:
        """See `ObjectiveSettings`; the size follows from the width of the generator."""
        if "generator.dense.weight" not in tensors:
            return cls()
        return cls(generator_size=tensors["generator.dense.weight"].shape[-1] / width)


class Generator(nn.Module):
    """A masked language model that shares the embeddings of the encoder.

    Args:
        context: the encoder whose embeddings are shared.
        width: width of the layers.
    """

    def __init__(self, context: BuildContext, width: int) -> None:
        super().__init__()
        head, narrow, body = context.head, context.decoder_width, cast(Narrowing, context.body)
        self.project = None if narrow == width else Linear(narrow, width)
        self.blocks: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]  # used as a sequence
            body.block(number, width, num_heads(width)) for number in range(body.num_layers)
        )
        self.dense = Linear(width, narrow)
        self.activation = ACTIVATIONS[head.lm_activation]()
        self.norm = LayerNorm(narrow, head.epsilon)
        self.bias = nn.Parameter(torch.zeros(context.vocabulary))

    @property
    def reads_sinusoids(self) -> bool:
        """Whether its attention can start local by learned positions; see nn/layers/embeddings.py."""
        return self.blocks[0].attention.spec.rotation is None

    def forward(self, encoder: Narrowing, batch: Batch) -> Tensor:
        """Return the input of the decoder at the masked positions, (masked, width of the embeddings)."""
        x = encoder.embed(batch.tokens)  # (tokens, width of the embeddings)
        if self.project is not None:
            x = self.project(x)
        for block in self.blocks[:-1]:
            x = block(x, batch.tokens)  # (tokens, width)
        x = self.blocks[-1](x, batch.tokens, rows=batch.positions["masked"])  # (masked, width)
        return self.norm(self.activation(self.dense(x)))


class ReplacedToken(Objective):
    """See the module.

    Args:
        settings: settings from the recipe.
        context: the body below the head.
    """

    at = "every"
    optional = {"generator.": "the generator"}  # noqa: RUF012 (never changed); published discriminators lack it

    def __init__(self, settings: ReplacedTokenSettings, context: BuildContext) -> None:
        super().__init__()
        head = context.head
        self.generator = Generator(context, max(1, round(head.width * settings.generator_size)))
        self.dense = Linear(head.width, head.width)
        self.activation = ACTIVATIONS[head.activation]()
        self.out = Linear(head.width, 1)
        head.init(self)
        for layer in (self.out, self.generator.project):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
        if head.init.offsets and self.generator.reads_sinusoids and self.generator.project is not None:
            pass_on_(self.generator.project)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; the random numbers of the draws are derived from the masked sample."""
        rng = derive_rng(zlib.crc32(sample.ids.tobytes()), "replaced_token", *sample.key)
        num_masked = len(sample.labels["masked"])
        return sample.add(
            positions={"every": np.arange(len(sample))},
            labels={"uniform": rng.random(num_masked).astype(np.float32)},
            counts={name: len(sample), GENERATOR: num_masked},
        )

    def before(self, encoder: Encoder, batch: Batch) -> tuple[Batch, Mapping[str, Part]]:
        """See `Objective`: fill the masked positions with tokens drawn from the generator."""
        gold, masked = batch.labels["masked"], batch.positions["masked"]
        rows = self.generator(cast(Narrowing, encoder), batch)
        loss, correct, drawn = vocabulary_loss_and_draw(
            rows, decoder_of(encoder), self.generator.bias, gold, batch.labels["uniform"]
        )
        replaced = torch.zeros(len(batch.tokens.ids), device=drawn.device)
        filled = replace(
            batch,
            tokens=replace(batch.tokens, ids=batch.tokens.ids.index_copy(0, masked, drawn)),
            labels={**batch.labels, "replaced": replaced.index_copy(0, masked, (drawn != gold).float())},
        )
        return filled, {GENERATOR: Part(loss, {"accuracy": correct})}

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return a logit for each token, above 0 if it is predicted to be replaced, (tokens, 1)."""
        rows = encoded.last.index_select(0, batch.positions["every"])
        return self.out(self.activation(self.dense(rows)))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits = self.predict(encoder, encoded, batch).squeeze(1).float()
        gold = batch.labels["replaced"].index_select(0, batch.positions["every"])
        loss = binary_cross_entropy_with_logits(logits, gold, reduction="sum")
        correct = ((logits.detach() > 0) == (gold > 0)).sum()
        return Part(loss, {"accuracy": correct, "baseline": (gold == 0).sum()})

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """See `Objective`: that of the generator. That of always predicting "original" is a metric of every step."""
        return accuracy_of(token, GENERATOR, MASKED, batches)

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """See `Objective`."""
        unreplaced = 100 * metrics.get(f"{name}_baseline", 0.0)
        return [
            *most_frequent(GENERATOR, baseline.get(f"{GENERATOR}_accuracy")),
            f"Always predicting that a token was not replaced would be right for {unreplaced:.2f} % of all tokens.",
        ]

    def warnings(self, name: str, metrics: Mapping[str, float]) -> Sequence[str]:
        """See `Objective`: warn of a discriminator that classifies tokens without using their context.

        The hidden states of such an encoder lie on a line, one point per token, which is worse for tasks than random
        weights (docs/family.md).
        """
        loss, unreplaced = metrics.get(f"{name}_loss"), metrics.get(f"{name}_baseline")
        if loss is None or unreplaced is None:
            return ()
        constant = -sum(share * math.log(share) for share in (unreplaced, 1 - unreplaced) if share)
        if loss < CONTEXT_FREE * constant:
            return ()
        return (
            "Replaced tokens are detected hardly better than by a constant prediction, as is possible without reading "
            "their context: this encoder is not useful for a task yet. Start as a masked LM and continue from that "
            "model (docs/family.md).",
        )


def num_heads(width: int) -> int:
    """Return the number of attention heads of a generator: heads of width 64, or a single one."""
    return width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 1
