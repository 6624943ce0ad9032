"""What does not go together is refused before there is a run: each raises a `UserError` with reason and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError
from unmask.recipe import Recipe
from unmask.tokenizers.tokenizer import Tokenizer


def check_offset(shape: TransformerSettings, pad: int) -> None:
    """Refuse positions that transformers would count otherwise: there they begin after the id of padding."""
    if not shape.fits(pad):
        raise UserError(
            f"encoder.offset is {shape.offset}, but padding has the id {pad} in this vocabulary",
            remedy=f"pass --set encoder.offset={pad + 1}",
        )


def check_words(recipe: Recipe, tokenizer: Tokenizer) -> list[str]:
    """Refuse to hide whole words where every piece is one; say it where several are hidden together.

    Returns:
        What the user should know.
    """
    masking = recipe.masking
    if not isinstance(masking, WholeWordMaskingSettings | NgramMaskingSettings | SpanMaskingSettings):
        return []
    if not tokenizer.begins_word(np.arange(tokenizer.size)).all():
        return []
    if isinstance(masking, WholeWordMaskingSettings) or masking.longest == 1:
        raise UserError(
            "in this vocabulary every piece is a word, so that whole words are single tokens",
            remedy="pass --set masking.kind=token, or train a vocabulary whose pieces go on words",
        )
    return ["in this vocabulary every piece is a word: what is hidden together is counted in tokens"]


def check_hidden(recipe: Recipe, samples: Sequence[Sample]) -> None:
    """Refuse text in most samples of which, prepared as at the end of the run, nothing is hidden."""
    empty = sum(not len(sample.positions.get("hidden", [0])) for sample in samples)
    if 2 * empty <= len(samples):
        return
    if isinstance(recipe.masking, WholeWordMaskingSettings | NgramMaskingSettings):
        raise UserError(
            f"{empty} of the first {len(samples)} samples have no word that could be hidden whole: each is longer than "
            f"{recipe.masking.rate_at(1.0):.0%} of its text, as where words have no spaces between them",
            remedy="pass --set masking.kind=token (or span)",
        )
    raise UserError(
        f"{empty} of the first {len(samples)} samples have nothing to hide: the vocabulary does not know their text",
        remedy="train a tokenizer on it: unmask tokenizer train FILES --out DIR",
    )


def check_shape(shape: TransformerSettings, recipe: Recipe, init: str | Path) -> None:
    """Refuse a model that reads in another direction than the recipe, or no sequences of its length."""
    if shape.causal != recipe.encoder.causal:
        reads = ("both sides", "from left to right")
        raise UserError(
            f"{init} reads {reads[shape.causal]}, the recipe {recipe.name} {reads[recipe.encoder.causal]}",
            remedy="take a recipe such as gpt-mini" if shape.causal else "take one such as bert-mini",
        )
    length = max(stage.length for stage in recipe.layout.all_stages)
    if length > shape.positions:
        raise UserError(
            f"the layout's length {length} exceeds the {shape.positions} positions of {init}",
            remedy=f"pass --set layout.length={shape.positions}",
        )
