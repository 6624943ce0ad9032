"""From a recipe to the curriculum of its run, and whether the parts of a run fit together.

Input: a recipe, the corpus's tokenizer, and the learner, whose objectives prepare samples. Output: the pipelines of the
stages, and what distinguishes each stage, in words. What does not fit is a `UserError` with the reason and a remedy,
before the run is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Curriculum, Feed
from unmask.data.batches.sources import Source, Stage
from unmask.data.batches.streams import StreamSource
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.word_level import WordTokenizer
from unmask.families import BodySettings
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT, SEPARATE_LAYERS, TWO_LMS, TWO_STREAMS
from unmask.objectives.learner import Learner
from unmask.objectives.teacher import TEACHER
from unmask.recipes.recipe import Recipe
from unmask.support.choices import as_url
from unmask.support.errors import UserError, check_count
from unmask.support.messages import argument, call, setting
from unmask.support.settings import Overrides, flatten
from unmask.support.urls import Url

SHOWN = {"layout.kind", "layout.length", "masking.kind", "masking.rate", "masking.final_rate"}
"""Settings that are described by words of their own."""

LIKE = {LEFT_TO_RIGHT: "gpt-mini", TWO_STREAMS: "xlnet-mini", TWO_LMS: "elmo-mini"}
"""A recipe by a capability of bodies that are no masked language models."""


def build_curriculum(recipe: Recipe, tokenizer: Tokenizer, learner: Learner) -> Curriculum:
    """Return the pipelines of all stages of a recipe; each counts the targets of its own objectives alone."""
    stages, whole = recipe.every_stage, recipe.all_objectives
    corpora = [stage.corpus for stage in recipe.stages] or [""]
    return Curriculum(
        stages=[
            Stage(
                share=share,
                length=stage.layout.length,
                name=f"{name}, corpus {corpus}" if corpus else name,
                weights={
                    key: objective.weight
                    for key, objective in stage.objectives.items()
                    if objective.weight != whole[key].weight
                },
            )
            for share, corpus, stage, name in zip(recipe.shares, corpora, stages, describe(stages), strict=True)
        ],
        feeds=[
            Feed(
                stage.layout,
                stage.masking,
                recipe.seed,
                tokenizer,
                partial(learner.prepare, objectives=tuple(stage.objectives)),
                recipe.encoder.pretraining,
            )
            for stage in stages
        ],
    )


def open_others(recipe: Recipe, corpus: Corpus) -> dict[int, Corpus]:
    """Return the corpora that stages read instead of that of the run, by stage.

    Raises:
        UserError: one is at a URL, cannot be opened, or has another vocabulary.
    """
    others = dict[int, Corpus]()
    for number, stage in enumerate(recipe.stages):
        if not stage.corpus:
            continue
        if isinstance(as_url(stage.corpus), Url):
            raise UserError(
                f"stages[{number}].corpus is a URL, but recipes name directories of this machine alone",
                remedy="copy the corpus to this machine",
            )
        others[number] = other = open_corpus(Path(stage.corpus))
        if other.manifest.tokenizer != corpus.manifest.tokenizer:
            raise UserError(
                f"stages[{number}].corpus: its vocabulary is not that of {corpus.place}",
                file=other.place,
                remedy=f"build it with that: {call('corpus build', 'FILES', tokenizer=corpus.place, out='DIR')}",
            )
    return others


def describe(stages: Sequence[Recipe]) -> list[str]:
    """Return what distinguishes each stage: "length 64, layout document_sentences, objectives masked_lm"."""
    summaries = [_settings(stage) for stage in stages]
    keys = dict.fromkeys(key for summary in summaries for key in summary)
    differing = [key for key in keys if len({summary[key] for summary in summaries if key in summary}) > 1]
    texts = [", ".join(f"{key} {summary[key]}" for key in differing if summary.get(key)) for summary in summaries]
    return [text or f"length {stage.layout.length}" for text, stage in zip(texts, stages, strict=True)]


def _settings(stage: Recipe) -> dict[str, str]:
    """Return the settings of a stage by their names in descriptions."""
    layout, objectives = stage.layout, stage.objectives
    masking: Any = stage.masking
    settings = {
        "length": str(layout.length),
        "layout": _kind(layout),
        "masking": _kind(masking),
        "objectives": " and ".join(objectives),
    }
    if rate := getattr(masking, "rate", None):
        settings["masking rate"] = f"{rate:g}" if masking.final_rate is None else f"{rate:g} to {masking.final_rate:g}"
    parts: dict[str, Any] = {"layout": layout, "masking": masking, "objective": objectives}
    more = flatten(msgspec.to_builtins(parts))
    return settings | {key: str(value) for key, value in more.items() if key not in SHOWN and value is not None}


def _kind(settings: msgspec.Struct) -> str:
    return str(settings.__struct_config__.tag)


def check_vocabulary(shape: BodySettings, pad: int, kind: str) -> None:
    """Raise an error if a body cannot read a vocabulary, or if transformers would number its positions differently.

    RoBERTa's positions start after the id of the padding token.

    Args:
        shape: settings of the body.
        pad: id of the padding token.
        kind: kind of the vocabulary.
    """
    if not shape.reads(kind):
        words = f"{setting('tokenizer.kind', 'words')} and {setting('tokenizer.lowercase', False)}"
        raise UserError(
            f"an encoder of the kind {shape.__struct_config__.tag} cannot read a vocabulary of the kind {kind}",
            remedy=f"pass {setting('tokenizer.kind', 'wordpiece') if kind == 'words' else words}, or another corpus",
        )
    if wanted := shape.mismatch(pad):
        key, _, value = wanted.partition("=")
        raise UserError(
            f"[encoder] does not match the vocabulary, in which the padding token has id {pad}",
            remedy=f"pass {setting(f'encoder.{key}', int(value) if value.isdecimal() else value)}",
        )


def check_words(recipe: Recipe, tokenizer: Tokenizer) -> list[str]:
    """Raise an error if whole words are to be masked but every token of the vocabulary is a word.

    Returns:
        Notes for the user, if n-grams or spans of several words are masked, or words are longer than what is read.
    """
    every = [np.arange(tokenizer.size, dtype=np.int32)] if isinstance(tokenizer, WordTokenizer) else []
    notes = [f"the vocabulary has {note}" for note in tokenizer.notes(every)]
    words = {words for stage in recipe.every_stage if (words := stage.masking.words)}
    if not words or not tokenizer.begins_word(np.arange(tokenizer.size)).all():
        return notes
    if 1 in words:
        raise UserError(
            "every token of this vocabulary is a word, so masking whole words would mask single tokens",
            remedy=f"pass {setting('masking.kind', 'token')}, or train a vocabulary with subwords",
        )
    note = "every token of this vocabulary is a word: the length of masked n-grams and spans is counted in tokens"
    return [*notes, note]


def check_masked(recipe: Recipe, samples: Sequence[Sample]) -> None:
    """Raise an error if most samples, prepared as at the end of the run, have no masked tokens."""
    empty = sum(not len(sample.positions.get("masked", [0])) for sample in samples)
    if 2 * empty <= len(samples):
        return
    if recipe.masking.whole_words:
        raise UserError(
            f"{empty} of the first {len(samples)} samples have no word that can be masked as a whole: each is longer "
            f"than {recipe.masking.rate_at(1.0):.0%} of its sample, as in text without spaces between words",
            remedy=f"pass {setting('masking.kind', 'token')} (or span)",
        )
    raise UserError(
        f"{empty} of the first {len(samples)} samples have no token to mask: the vocabulary does not cover their text",
        remedy=f"train a tokenizer on it: {call('tokenizer train', 'FILES', out='DIR')}",
    )


def check_memory(shape: BodySettings, source: Source) -> None:
    """Raise an error if the text of a stream is too short to fill the memory of a body, which XLNet has."""
    memory = getattr(shape, "memory", 0)
    if not memory or not isinstance(source, StreamSource) or not source.num_windows:
        return
    text = (source.num_windows - 1) * source.advance  # before the last window
    if text < memory:
        raise UserError(
            f"the memory of {memory} tokens exceeds the text: before its last window, each of the {source.streams} "
            f"streams has {text} tokens",
            remedy="add text, or pass a smaller encoder.memory, or layout.streams (and batch.sequences)",
        )


def check_shape(shape: BodySettings, recipe: Recipe, init: str | Path) -> None:
    """Raise an error if a model cannot be trained by a recipe."""
    check_needs(shape, recipe, init)
    try:
        msgspec.structs.replace(recipe, encoder=shape)
    except ValueError as error:
        raise UserError(f"the recipe {recipe.name} does not fit {init}: {error}") from error


def check_needs(shape: BodySettings, recipe: Recipe, init: str | Path) -> None:
    """Raise an error if a model lacks what objectives and layout need, or has too few positions for the layout."""
    stages = recipe.every_stage
    provided = shape.provides.union({TEACHER}, *(stage.masking.provides | stage.layout.provides for stage in stages))
    required = frozenset().union(
        *(objective.requires for objective in recipe.all_objectives.values()),
        *(stage.layout.requires for stage in stages),
    )
    missing = sorted(required - provided)
    if missing:
        raise UserError(
            f"the recipe {recipe.name} needs {', '.join(missing)}, which {init} does not provide",
            remedy=f"use a recipe such as {recipe_like(shape) or 'bert-mini'}",
        )
    length = max(stage.layout.length for stage in stages)
    if length > shape.positions:
        raise UserError(
            f"the layout's length {length} exceeds the {shape.positions} positions of {init}",
            remedy=f"pass {setting('layout.length', shape.positions)}",
        )


def recipe_like(shape: BodySettings) -> str:
    """Return a small recipe with the objective of bodies that are no masked language models; "" for one of these."""
    return next((recipe for capability, recipe in LIKE.items() if capability in shape.provides), "")


def check_teacher(recipe: Recipe, teacher: object) -> None:
    """Raise an error if objectives lack a teacher to learn from, or a teacher has no effect."""
    taught = [name for name, objective in recipe.all_objectives.items() if TEACHER in objective.requires]
    if taught and teacher is None:
        raise UserError(
            f"objective.{taught[0]} learns from a teacher",
            remedy=f"use it with {call('distill', 'RECIPE', teacher='MODEL')}",
        )
    if teacher is not None and not taught:
        raise UserError(
            f"no objective of the recipe {recipe.name} learns from a teacher",
            remedy=f"use a recipe such as distilbert-mini, or pass {setting('objective.soft_targets.weight', 1)}",
        )


def refuse_fixed(settings: Overrides, *, encoder: str, tokenizer: str, layers: str = "omit it") -> None:
    """Raise an error for settings of an encoder or a tokenizer that is not the recipe's.

    Args:
        settings: the settings that the user gave.
        encoder: what determines the encoder, except for its dropout; "": the recipe does.
        tokenizer: why the tokenizer is fixed; "": it is not.
        layers: what to do instead of setting the number of layers.
    """
    for key, value in settings.items():
        if encoder and key.startswith("encoder.") and key != "encoder.dropout":
            raise UserError(
                f"{setting(key, value)} has no effect: {encoder} determines the encoder",
                remedy=layers if key == "encoder.layers" else "omit it",
            )
        if tokenizer and key.startswith("tokenizer."):
            raise UserError(f"{setting(key, value)} has no effect: {tokenizer}", remedy="omit it")


def check_share(recipe: Recipe, init: object) -> None:
    """Raise an error if a recipe keeps a share of initial weights where there are none."""
    if recipe.initial_share and init is None:
        raise UserError(
            f"{setting('initial_share', recipe.initial_share)} has no effect without {argument('init')}",
            remedy=f"omit it, use another recipe than {recipe.name}, or pass {argument('init', 'MODEL')}",
        )


def check_layers(shape: BodySettings, layers: int, init: str | Path) -> None:
    """Raise an error if a body with fewer layers cannot be made from those of a model."""
    check_count("layers", layers)
    if SEPARATE_LAYERS not in shape.provides:
        raise UserError(
            f"{argument('layers')} cannot select layers of {init}, because they share their weights",
            remedy=f"omit {argument('layers')}",
        )
    if layers >= shape.layers:
        raise UserError(
            f"{argument('layers', layers)} is not smaller than the number of layers of {init}, {shape.layers}",
            remedy="omit it, or choose a smaller number",
        )
    if (shape.layers - 1) % shape.period or (layers - 1) % shape.period:
        possible = [str(number) for number in range(1, shape.layers, shape.period)]
        fits = not (shape.layers - 1) % shape.period
        raise UserError(
            f"{argument('layers', layers)}: the layers of {init} alternate between kinds with a period of "
            f"{shape.period}",
            remedy=f"choose {', '.join(possible)}" if fits else "omit it",
        )
