"""An estimate of the floating-point operations of a forward pass, for progress lines and forecasts.

A product of (n, k) and (k, m) counts as 2 n k m. Only the matrix products of real tokens are counted: no padding, no
look-ups, no norms, nothing of a teacher, and nothing that is recomputed to save memory. Each matrix of a body
multiplies every token, and each matrix of a head every vector at the head's positions (`Objective.at`); attention
multiplies each pair of tokens twice. What differs from this has a function of its own here, and a plug-in can add one
with `body_flops.register` or `head_flops.register`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, partial, singledispatch
from statistics import fmean
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Batch
from unmask.data.batches.frame import cut_windows
from unmask.data.batches.tokens import Tokens
from unmask.data.tokenizers.words import PADDING
from unmask.nn.encoders.downstream import Downstream
from unmask.nn.encoders.encoder import POOLER, TWO_LMS, Encoder, WithPooler
from unmask.nn.encoders.stored import Stored
from unmask.nn.encoders.two_lms import FIRST, TwoLms, plan_words
from unmask.nn.encoders.two_streams import TwoStreams
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.disentangled import DisentangledAttention
from unmask.nn.layers.relative import RelativeAttention
from unmask.objectives.bidirectional_lm import BidirectionalLM
from unmask.objectives.layer_matching import LayerMatching
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective, VocabularyObjective, decoder_of
from unmask.objectives.replaced_token import ReplacedToken
from unmask.objectives.soft_targets import SoftTargets

SUBLAYERS = ("attention", "feed_forward")
"""Names of the sublayers that a layer may share with the first one instead of having its own (ALBERT)."""

Costs = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""Maps the lengths of sequences to their costs, (sequences,) each."""
PER_WIDTH = 6
"""Length, in widths of the layers, at which the products of attention take as long as those with weights."""


def forward_flops(learner: Learner, batch: Batch) -> int:
    """Return the estimate for a forward pass of a learner.

    Args:
        learner: the body and the objectives; those run that the batch was prepared for.
        batch: a batch on the CPU.
    """
    rows = learner.keep(batch).rows
    total = body_flops(learner.encoder, batch.tokens, None if rows is None else len(rows))
    for head in learner.active(batch).values():
        total += head_flops(head, learner.encoder, batch)
        regularization = getattr(head, "regularization", None)
        if regularization is not None and regularization.r_drop and head.training:  # a second pass
            total += body_flops(learner.encoder, batch.tokens)
    return total


def cost_of_lengths(encoder: Encoder) -> Costs:
    """Return the function from the lengths of sequences to their costs, in tokens of a short one."""
    windows = [part.spec.window for part in encoder.modules() if isinstance(part, SelfAttention)]
    whole = fmean(window is None for window in windows) if windows else float(TWO_LMS not in encoder.provides)
    per_key = whole / (PER_WIDTH * encoder.width)
    return lambda lengths: lengths * (1 + per_key * lengths)


@singledispatch
def body_flops(encoder: Encoder, tokens: Tokens, rows: int | None = None) -> int:
    """Return the estimate for a forward pass of a body, without its pooler.

    Args:
        encoder: the body.
        tokens: its input, on the CPU.
        rows: number of tokens whose output is needed; None: all.
    """
    embeddings, *layers = encoder.layer_groups
    layers += layers[-1:] * (encoder.num_layers - len(layers))
    return 2 * len(tokens.ids) * matrices(embeddings) + layers_flops(layers, tokens, rows)


@body_flops.register
def _(encoder: TwoStreams, tokens: Tokens, rows: int | None = None) -> int:
    if encoder.in_windows(tokens):
        first, *others = (window.tokens for window in cut_windows(tokens, encoder.settings.window))
        memory = encoder.settings.memory
        return _streams(encoder, first, 0) + sum(_streams(encoder, other, memory) for other in others)
    return _streams(encoder, tokens, 0 if tokens.reading.remember is None else encoder.settings.memory, rows)


@body_flops.register
def _(encoder: TwoLms, tokens: Tokens, rows: int | None = None) -> int:
    characters = encoder.characters
    words = (tokens.plan or plan_words(tokens.ids)).tensors[FIRST]  # whose vectors are computed once
    windows = int((tokens.ids[words] != PADDING).sum()) + len(words)  # of each convolution: with one of padding alone
    above = matrices(characters.highways, characters.project)
    readings = len(tokens.ids) * (2 if tokens.reading.backward is None else 1)
    products = windows * matrices(characters.filters) + len(words) * above
    return 2 * (products + readings * matrices(*encoder.forward_lm))


@body_flops.register
def _(encoder: Downstream, tokens: Tokens, rows: int | None = None) -> int:
    weights = [] if encoder.lstm is None else [value for value in encoder.lstm.parameters() if value.ndim == 2]
    return body_flops(encoder.encoder, tokens) + 2 * len(tokens.ids) * sum(weight.numel() for weight in weights)


@body_flops.register
def _(encoder: Stored, tokens: Tokens, rows: int | None = None) -> int:
    return 0


@singledispatch
def head_flops(head: Objective, encoder: Encoder, batch: Batch) -> int:
    """Return the estimate for an objective: the head, the body's pooler if it reads that, and its decoder.

    Args:
        head: the objective.
        encoder: the body.
        batch: a batch that was prepared for it, on the CPU.
    """
    vectors = len(batch.positions[head.at] if head.at else batch.tokens.ids)
    weights = matrices(head)
    if isinstance(head, VocabularyObjective):
        weights += decoder_of(encoder).numel() if head.tied else 0  # counted already if it is a layer of the head
    elif weights and POOLER in encoder.provides and (head.at == "summary" or encoder.head.pools_tokens):
        weights += matrices(cast(WithPooler, encoder).pooler)
    return 2 * vectors * weights


@head_flops.register
def _(head: BidirectionalLM, encoder: Encoder, batch: Batch) -> int:
    words, width = head.decoder.shape
    drawn = min(head.samples, words) if head.samples and head.training else words
    return 2 * len(batch.positions[head.at]) * width * drawn


@head_flops.register
def _(head: LayerMatching, encoder: Encoder, batch: Batch) -> int:
    weights = [len(head.pairs) * matrices(part) for part in (head.project_hidden,) if part is not None]
    weights += [matrices(part) for part in (head.project_embeddings,) if part is not None]
    return 2 * len(batch.tokens.ids) * sum(weights)


@head_flops.register
def _(head: ReplacedToken, encoder: Encoder, batch: Batch) -> int:
    generator, masked = head.generator, len(batch.positions["masked"])
    if not len(batch.positions[head.at]):
        return 0
    body = layers_flops(generator.blocks, batch.tokens, masked)
    body += 2 * len(batch.tokens.ids) * (0 if generator.project is None else matrices(generator.project))
    decoder = 2 * masked * (matrices(generator.dense) + decoder_of(encoder).numel())
    return body + decoder + 2 * len(batch.positions[head.at]) * matrices(head.dense, head.out)


@head_flops.register
def _(head: SoftTargets, encoder: Encoder, batch: Batch) -> int:
    return head_flops(head.head, encoder, head.view(batch))


def layers_flops(layers: Sequence[nn.Module], tokens: Tokens, rows: int | None) -> int:
    """Return the estimate for layers of self-attention; of the last one, `rows` tokens follow the attention."""
    count, total, shared = len(tokens.ids), 0, dict(layers[0].named_children())
    pairs = cache(partial(_pairs, tokens.offsets.diff().long()))
    for number, layer in enumerate(layers, 1):
        parts = dict(layer.named_children())
        lacking = [shared[name] for name in SUBLAYERS if name in shared and name not in parts]
        attention = parts.get("attention", shared.get("attention"))
        before = weights = matrices(layer, *lacking)
        if isinstance(attention, SelfAttention):
            before = matrices(attention.qkv)
            total += 4 * pairs(attention.spec.window, attention.spec.causal) * attention.out.in_features
        if isinstance(attention, DisentangledAttention):  # the distances, projected, and multiplied with tokens
            width, near = attention.out.in_features, [attention.near(group.longest) for group in tokens.groups]
            numbers = [distances.stop - distances.start for distances in near]
            sizes = (group.stop - group.start for group in tokens.groups)
            total += 4 * width * (max(numbers) * width + sum(map(operator.mul, sizes, numbers)))
        after = count if rows is None or number < len(layers) else rows
        total += 2 * (count * before + after * (weights - before))
    return total


def matrices(*modules: nn.Module) -> int:
    """Return the number of weights of the linear layers in modules: half the operations for a vector."""
    parts = (part for module in modules for part in module.modules())
    return sum(part.weight.numel() for part in parts if isinstance(part, nn.Linear))


def _pairs(lengths: Tensor, window: int | None, causal: bool) -> int:
    """Return how many pairs tokens form: none with later tokens if it is causal, none with tokens beyond the window."""
    reach = lengths - 1 if window is None else (lengths - 1).clamp(max=window)
    earlier = lengths * reach - reach * (reach + 1) // 2  # pairs with a previous token in reach
    return int((lengths + (earlier if causal else 2 * earlier)).sum())


def _streams(encoder: TwoStreams, tokens: Tokens, memory: int, rows: int | None = None) -> int:
    """Return the estimate for the layers of XLNet; the last one is computed for queries alone if no row is needed."""
    lengths = tokens.offsets.diff().long()
    queries = lengths.new_empty(0) if tokens.reading.queries is None else tokens.reading.queries
    asked = _per_sequence(queries, tokens)
    keys, distances = len(tokens.ids) + memory * len(lengths), 2 * (memory + int(lengths.max())) - 1
    total = 0
    for number, block in enumerate(encoder.blocks, 1):
        attention: RelativeAttention = block.attention
        last = number == encoder.num_layers
        reading = asked if last and rows == 0 and len(queries) else asked + lengths  # rows of each sequence
        after = rows if last and rows and not len(queries) else int(reading.sum())
        total += 2 * int(reading.sum()) * matrices(attention.query)
        total += 2 * (keys * matrices(attention.key_value) + distances * matrices(attention.distance))
        total += 2 * after * matrices(attention.out, block.feed_forward)
        # a row multiplies its keys twice, and the distances of all keys of its sequence once
        each = 3 * (memory + lengths) + lengths - 1
        total += 2 * int((reading * each).sum()) * attention.out.in_features
    return total


def _per_sequence(indices: Tensor, tokens: Tokens) -> Tensor:
    """Return how many of some tokens each sequence has, (sequences,) int64."""
    sequence = torch.bucketize(indices, tokens.offsets[1:].long(), right=True)
    return torch.bincount(sequence, minlength=len(tokens.offsets) - 1)
