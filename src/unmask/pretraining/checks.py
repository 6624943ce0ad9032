"""What does not go together is refused before there is a run: each raises a `UserError` with reason and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unmask.batches.batch import Sample
from unmask.encoders.encoder import LEFT_TO_RIGHT
from unmask.errors import UserError
from unmask.families import BodySettings
from unmask.recipe import Recipe
from unmask.tokenizers.tokenizer import Tokenizer


def check_vocabulary(shape: BodySettings, pad: int) -> None:
    """Refuse a body whose positions transformers would count otherwise: RoBERTa's begin after the id of padding."""
    if wanted := shape.mismatch(pad):
        raise UserError(
            f"[encoder] does not go with the id of padding in this vocabulary, {pad}",
            remedy=f"pass --set encoder.{wanted}",
        )


def check_words(recipe: Recipe, tokenizer: Tokenizer) -> list[str]:
    """Refuse to hide whole words where every piece is one; say it where several are hidden together.

    Returns:
        What the user should know.
    """
    words = recipe.masking.words
    if not words or not tokenizer.begins_word(np.arange(tokenizer.size)).all():
        return []
    if words == 1:
        raise UserError(
            "in this vocabulary every piece is a word, so that whole words are single tokens",
            remedy="pass --set masking.kind=token, or train a vocabulary whose pieces go on words",
        )
    return ["in this vocabulary every piece is a word: what is hidden together is counted in tokens"]


def check_masked(recipe: Recipe, samples: Sequence[Sample]) -> None:
    """Refuse text in most samples of which, prepared as at the end of the run, nothing is hidden."""
    empty = sum(not len(sample.positions.get("masked", [0])) for sample in samples)
    if 2 * empty <= len(samples):
        return
    if recipe.masking.whole_words:
        raise UserError(
            f"{empty} of the first {len(samples)} samples have no word that could be hidden whole: each is longer than "
            f"{recipe.masking.rate_at(1.0):.0%} of its text, as where words have no spaces between them",
            remedy="pass --set masking.kind=token (or span)",
        )
    raise UserError(
        f"{empty} of the first {len(samples)} samples have nothing to hide: the vocabulary does not know their text",
        remedy="train a tokenizer on it: unmask tokenizer train FILES --out DIR",
    )


def check_shape(shape: BodySettings, recipe: Recipe, init: str | Path) -> None:
    """Refuse a model that has not what the recipe's objectives ask for, or that reads no sequences of its length."""
    given = shape.gives | recipe.masking.gives | recipe.layout.gives
    missing = sorted(frozenset().union(*(one.asks for one in recipe.objectives.values())) - given)
    if missing:
        raise UserError(
            f"the recipe {recipe.name} needs {', '.join(missing)}, which {init} does not give",
            remedy=f"take a recipe such as {'gpt-mini' if LEFT_TO_RIGHT in shape.gives else 'bert-mini'}",
        )
    length = max(stage.length for stage in recipe.layout.all_stages)
    if length > shape.positions:
        raise UserError(
            f"the layout's length {length} exceeds the {shape.positions} positions of {init}",
            remedy=f"pass --set layout.length={shape.positions}",
        )
