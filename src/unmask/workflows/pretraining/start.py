"""Construction of the learner for pretraining: an encoder, new or from a model, with the recipe's objectives.

Input: a recipe, a corpus, and possibly a model, whose tokenizer is that of the corpus or is extended by it, and a
number of layers to keep of it. Output: the learner, and what was changed.

Each row of a new token, in the token embeddings and in decoders, is the mean of the rows of the k tokens into which
the old tokenizer splits the text of the new one. Its bias is the mean of their biases minus log k: where the old model
had k tokens to predict, the new one has a single one. The logit of the new token is therefore the mean of their logits
minus log k, and its probability at most the mean of theirs divided by k, so that the predictions of old tokens change
little. Without log k they change more, and with random rows much more. Tokens of characters that the old tokenizer
lacks have nothing to take over: the unknown token says nothing of them, and would make all of them the same. Their rows
are drawn from the normal distribution with the mean and the standard deviation of each column of the old rows, as
those of tokens without a similar one in WECHSEL (Minixhofer et al. 2022), and their biases are the mean of the old.

A smaller body has layers of the larger one at equal distances, including the first and the last, as the initialization
of DistilBERT (Sanh et al. 2019, section 2; scripts/extract_distilbert.py takes the same 6 of 12 layers). Where global
and local layers alternate, whole periods of them are selected. Embeddings, pooler and heads are kept. If a head has its
own stack of as many layers (the generator of ELECTRA), it keeps those with the same numbers.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.rng import derive_seed
from unmask.data.corpus.corpus import Corpus, Documents
from unmask.data.tokenizers.extend import difference, old_ids
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families import BodySettings
from unmask.families.checkpoints.check import body_on_meta, on_meta
from unmask.model.model import Model, build_encoder, load_model
from unmask.nn.encoders.encoder import WithTokenEmbeddings
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, VocabularyObjective
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import Recipe
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, call
from unmask.workflows.pretraining.checks import check_layers, check_shape
from unmask.workflows.pretraining.token_vectors import begin_embeddings


def build_learner(
    recipe: Recipe, vocabulary: int, base: Model | None, teacher: Teacher | None = None
) -> tuple[Learner, list[str]]:
    """Return encoder and objectives, and the names of the parts newly initialized because `base` lacks them.

    Args:
        recipe: encoder, and objectives of all stages.
        vocabulary: number of token ids.
        base: model to continue from; None: all weights are initialized at random.
        teacher: what objectives learn from; without one, such objectives are left out (see `check_teacher`).

    Raises:
        UserError: a head of `base` is damaged, or its shapes differ from the recipe's.
    """
    encoder = build_encoder(recipe.encoder, vocabulary, seed=recipe.seed) if base is None else base.encoder
    torch.manual_seed(derive_seed(recipe.seed, "heads"))
    objectives: dict[str, Objective] = {}
    context = BuildContext(encoder, teacher, vocabulary, objectives)
    taught = {name for name, settings in recipe.all_objectives.items() if TEACHER in settings.requires}
    chosen = {name: it for name, it in recipe.all_objectives.items() if teacher is not None or name not in taught}
    for name, settings in chosen.items():
        objectives[name] = settings.build(context)
    learner = Learner(encoder, objectives, loss_weights(chosen))
    if base is None:
        return learner, []
    lacking = [part for name, head in objectives.items() if name not in taught for part in base.take(name, head)]
    return learner, [*base.created, *lacking]


def begin_decoders(heads: Iterable[Objective], counts: np.ndarray) -> None:
    """Begin the biases of decoders at the frequencies of tokens.

    Otherwise the body would learn the frequencies before anything else, as the bias of a decoder is slower: it needs
    thousands of steps of a learning rate that suits a trained body.

    Args:
        heads: objectives; modified in place.
        counts: how often each token occurs in the text, (vocabulary,).
    """
    for head in heads:
        if isinstance(head, VocabularyObjective) and (bias := head.token_bias) is not None:
            frequencies = torch.full(bias.shape, SMOOTHING)  # published models may have more rows than tokens
            frequencies[: len(counts)] += torch.from_numpy(counts)
            bias.data.copy_((frequencies / frequencies.sum()).log())


def begin_from_text(learner: Learner, documents: Documents) -> str:
    """Begin a learner with random weights at what the statistics of a text tell; return what was done, in words.

    Args:
        learner: encoder and objectives; modified in place.
        documents: the text.

    Raises:
        UserError: a document is damaged (the message names the file).
    """
    counts = documents.token_counts()
    begin_decoders(learner.parts.values(), counts)
    known = begin_embeddings(cast(WithTokenEmbeddings, learner.encoder).words, documents, counts)
    return f"token embeddings begin at the neighbors of {counted(known, 'token')} in the text"


@torch.no_grad()
def mix(learner: Learner, initial: Mapping[str, Tensor], trained: Mapping[str, Tensor], share: float) -> None:
    """Set weights of a learner to a mean of initial and trained ones.

    Args:
        learner: encoder and objectives; modified in place.
        initial, trained: the weights by name, in the host's memory; those that are not initial ones are kept.
        share: that of the initial ones; see `Recipe.initial_share`.
    """
    for name, weight in learner.state_dict().items():
        if name in initial and weight.is_floating_point():
            weight.copy_(trained[name].lerp(initial[name], share))


def least_share(loss_at: Callable[[float], float], most: float) -> float:
    """Return the least share of initial weights, in twentieths, with which a loss is at most so much; 1 if none is.

    The loss between two sets of weights is taken to be convex, and that of the initial weights not to exceed `most`: a
    bisection then finds the share.
    """
    shares = [twentieths / 20 for twentieths in range(21)]
    return shares[bisect_left(shares[:-1], True, key=lambda share: loss_at(share) <= most)]


def usual_share(epochs: float) -> float:
    """Return the share of initial weights where general text is not scored: the larger, the more often a text was read.

    Other text is forgotten the more, the more often the same text is read; so it is by less than 0.05 nats (the table
    `general_text` in docs/results.md).
    """
    share = USUAL_SHARE + PER_DOUBLING * math.log2(max(1.0, epochs / OFTEN))
    return min(round(share, 2), LARGEST_SHARE)


Tensors = Mapping[str, Tensor]

USUAL_SHARE, OFTEN = 0.7, 4
"""Share of the initial weights where general text is not scored, and how many times the text is read at most for it."""
PER_DOUBLING, LARGEST_SHARE = 0.05, 0.9
"""How much larger the share is for a text that is read twice as often, and the largest one."""
NEW_HEAD_RATE = 20.0
"""Ratio of the learning rate of new heads to that of a trained encoder: about that of pretraining from scratch."""
SMOOTHING = 0.1
"""Count that is added to each token's."""
_LAYER = re.compile(r"((?:^|\.)(?:blocks|forward_lm|backward_lm)\.)(\d+)\.")


@dataclass(frozen=True)
class InitialWeights:
    """The weights that a run starts from.

    Attributes:
        model: the model; None: all weights are initialized at random.
        source: the name of what it was made of, in messages.
        how: what the run does, for the report and the card of the model.
        changes: how it differs from its source, in words.
        inputs: fingerprints of what it was made of.
        tokens: number of tokens that it was pretrained on; None if unknown.
        warnings: what is wrong with the text for it, in words.
    """

    model: Model | None = None
    source: str = ""
    how: str = "Pretrained"
    changes: Sequence[str] = ()
    inputs: Mapping[str, str] = field(default_factory=lambda: {"init": "none"})
    tokens: int | None = 0
    warnings: Sequence[str] = ()


def fit_to_text(
    learner: Learner, recipe: Recipe, start: InitialWeights, corpus: Corpus
) -> tuple[Recipe, InitialWeights, dict[str, Tensor]]:
    """Prepare a learner for a text where its encoder comes from a model.

    Args:
        learner: encoder and objectives; new heads are modified in place.
        recipe: what to train.
        start: what the learner was built from.
        corpus: the text.

    Returns:
        The recipe with the learning rate of new heads, the start with warnings about the text, and the weights of which
        `Recipe.initial_share` is kept, by name: not those of new heads, and none if the encoder was changed.
    """
    if (base := start.model) is None:
        return recipe, start, {}
    counts = corpus.train.token_counts()  # (vocabulary,)
    remedy = f"extend it with {argument('extend', 'N')}, or choose a model for this language"
    start = replace(start, warnings=corpus.notes(remedy))
    if start.tokens == 0:
        return recipe, start, {}
    lacking = {name: head for name, head in learner.parts.items() if name not in base.heads}
    begin_decoders(lacking.values(), counts)
    new = [name for name, head in lacking.items() if head.state_dict()]
    if new and recipe.optimizer.head_rate is None:
        optimizer = msgspec.structs.replace(recipe.optimizer, head_rate=NEW_HEAD_RATE)
        recipe = msgspec.structs.replace(recipe, optimizer=optimizer)
    if not recipe.initial_share or start.changes:
        return recipe, start, {}
    weights, heads = learner.state_dict(), tuple(f"objectives.{name}." for name in new)
    return recipe, start, {name: value.clone() for name, value in weights.items() if not name.startswith(heads)}


def continued(
    init: str | Path, recipe: Recipe, corpus: Corpus, *, layers: int | None, allow_pickle: bool
) -> InitialWeights:
    """Return the start of a run that continues from a model; see `adapt`.

    Raises:
        UserError: recipe, corpus and model do not match.
    """
    base = load_base(init, recipe, corpus, allow_pickle=allow_pickle)
    check_shape(base.encoder.settings, recipe, init)
    model, changes = adapt(base, f"{init}", corpus.tokenizer, recipe.all_objectives, layers=layers)
    return InitialWeights(model, f"{init}", changes=changes, inputs=base.inputs("init"), tokens=base.tokens)


def load_base(init: str | Path, recipe: Recipe, corpus: Corpus, *, allow_pickle: bool) -> Model:
    """Return the model to continue from, unchanged.

    Raises:
        UserError: the model is damaged, or the corpus was built with another tokenizer.
    """
    base = load_model(
        init, allow_pickle=allow_pickle, dropout=recipe.encoder.dropout, keep_head_dropout=True, seed=recipe.seed
    )
    if base.tokenizer.sha256 != corpus.tokenizer.sha256 and (why := difference(base.tokenizer, corpus.tokenizer)):
        raise UserError(
            f"the corpus was not built with the tokenizer of {init} or with one that extends it: {why}",
            file=corpus.place,
            remedy=f"rebuild it: {call('corpus build', 'FILES', tokenizer=init, out='DIR')}",
        )
    return base


def adapt(
    base: Model,
    init: str | Path,
    tokenizer: Tokenizer,
    objectives: Mapping[str, ObjectiveSettings],
    *,
    layers: int | None = None,
) -> tuple[Model, list[str]]:
    """Return a model with the vocabulary and the number of layers that are asked for, and what was changed.

    Args:
        base: the model.
        init: its name in messages.
        tokenizer: the tokenizer of the model, or one that extends it.
        objectives: objectives of the run, by name.
        layers: number of layers to keep; None: all.

    Raises:
        UserError: the model does not have more layers than that, or has none that could be selected.
    """
    changes = []
    if layers is not None:
        check_layers(base.encoder.settings, layers, init)
        selected = spread(layers, base.encoder.num_layers, base.encoder.settings.period)
        names = ", ".join(str(number + 1) for number in selected)
        plural = "s" if len(selected) > 1 else ""
        changes.append(f"the new body has layer{plural} {names} of the {base.encoder.num_layers} layers of {init}")
        base = select_layers(base, selected)
    if added := tokenizer.size - base.tokenizer.size:
        rows = "its row is the mean" if added == 1 else "their rows are the means"
        tokens = "its old tokens' rows" if added == 1 else "their old tokens' rows"
        unknown = sum(base.tokenizer.unk in ids for ids in old_ids(base.tokenizer, tokenizer))
        drawn = f", but for {unknown:,} with unknown characters, drawn like the old ones" if unknown else ""
        changes.append(f"vocabulary extended by {counted(added, 'token')}; {rows} of {tokens}{drawn}")
        base = extend_vocabulary(base, tokenizer, objectives)
    return base, changes


def spread(count: int, total: int, period: int = 1) -> list[int]:
    """Return `count` of the numbers from 0 to total - 1 at equal distances, with the first and the last (one: 0).

    If layers alternate, whole periods are selected, and the last layer; see `check_layers`.
    """
    if period > 1:
        periods = spread((count - 1) // period, (total - 1) // period)
        return [*(number * period + layer for number in periods for layer in range(period)), total - 1]
    return [round(number * (total - 1) / max(1, count - 1)) for number in range(count)]


def select_layers(model: Model, selected: Sequence[int]) -> Model:
    """Return a model with some of the layers, whose numbers from 0 are given in ascending order."""
    encoder = model.encoder
    total = encoder.num_layers
    settings = msgspec.structs.replace(encoder.settings, layers=len(selected))
    heads = {head: select_tensors(tensors, selected, total) for head, tensors in model.heads.items()}
    return _rebuilt(model, settings, encoder.vocabulary, select_tensors(encoder.state_dict(), selected, total), heads)


def select_tensors(tensors: Tensors, selected: Sequence[int], total: int) -> Tensors:
    """Return the tensors of some layers, renumbered, and all others; if there are no such layers, all tensors."""
    numbers = {name: int(match[2]) for name in tensors if (match := _LAYER.search(name))}
    if {*numbers.values()} != {*range(total)}:
        return tensors
    new = {old: number for number, old in enumerate(selected)}
    return {
        _LAYER.sub(rf"\g<1>{new[numbers[name]]}.", name, count=1) if name in numbers else name: value
        for name, value in tensors.items()
        if name not in numbers or numbers[name] in new
    }


def extend_vocabulary(
    model: Model,
    tokenizer: Tokenizer,
    objectives: Mapping[str, ObjectiveSettings] | None = None,
) -> Model:
    """Return a model with the vocabulary of a tokenizer that extends its own; see the module.

    Published models may have more rows than tokens; new tokens then take the rows of these ids.

    Args:
        model: the model.
        tokenizer: the extended tokenizer.
        objectives: settings of the heads to extend, by name; other heads are kept as they are.
    """
    first, parts = model.tokenizer.size, old_ids(model.tokenizer, tokenizer)
    settings, vocabulary = model.encoder.settings, model.encoder.vocabulary

    def grown(tensors: Tensors, build: Callable[[int], Tensors]) -> Tensors:
        """Extend the tensors whose number of rows depends on the vocabulary; `build` makes them for one."""
        small, large = build(0), build(1)
        extended = {name for name in small if len(small[name].shape) and len(small[name]) != len(large[name])}
        return {
            name: with_means(value, first, parts, model.tokenizer.unk) if name in extended else value
            for name, value in tensors.items()
        }

    def build_head(head: ObjectiveSettings, more: int) -> Tensors:
        body = body_on_meta(settings, vocabulary + more)
        with on_meta():
            return head.build(BuildContext(body, tokenizer_size=first + more)).state_dict()

    heads = {
        name: grown(tensors, lambda more, head=objectives[name]: build_head(head, more))  # type: ignore[misc]
        if objectives and name in objectives
        else tensors
        for name, tensors in model.heads.items()
    }
    body = grown(model.encoder.state_dict(), lambda more: body_on_meta(settings, vocabulary + more).state_dict())
    new = _rebuilt(model, settings, max(vocabulary, tokenizer.size), body, heads)
    return replace(new, tokenizer=tokenizer.framed_as(model.tokenizer))


def with_means(value: Tensor, first: int, parts: Sequence[Sequence[int]], unknown: int) -> Tensor:
    """Return a tensor with further rows from `first` on, each the mean of the rows with some ids; see the module.

    Args:
        value: the tensor.
        first: number of old rows.
        parts: for each new row, the ids of old ones.
        unknown: the id of the unknown token.

    Shape:
        value: (vocabulary, width), or (vocabulary,) for biases. It may already have rows at `first` and after, which
            are replaced.
    """
    means = torch.stack([value[list(ids)].mean(0) for ids in parts])  # (new tokens, width) or (new tokens,)
    if value.dim() == 1:
        means -= torch.tensor([len(ids) for ids in parts]).log()
    new = torch.tensor([unknown in ids for ids in parts])
    if new.any():
        deviation, mean = torch.std_mean(value[:first].float(), dim=0)
        noise = torch.randn(means[new].shape, generator=torch.Generator().manual_seed(first))
        means[new] = (mean + noise * deviation * (value.dim() > 1)).to(value.dtype)
    return torch.cat([value[:first], means, value[first + len(parts) :]])


def _rebuilt(
    model: Model, settings: BodySettings, vocabulary: int, body: Tensors, heads: Mapping[str, Tensors]
) -> Model:
    encoder = build_encoder(settings, vocabulary)
    encoder.load_state_dict(body)
    return replace(model, encoder=encoder, heads=heads)
