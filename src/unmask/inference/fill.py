"""Masks of a text, and what may stand there.

In: a text with masks, and the logits of a masked-LM head at them. Out: the most probable tokens at each mask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import torch

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.encoders.encoder import LEFT_TO_RIGHT
from unmask.errors import UserError
from unmask.model import Model
from unmask.objectives import OBJECTIVES
from unmask.tokenizers.tokenizer import Tokenizer


class Candidate(msgspec.Struct, frozen=True):
    """What may stand at a mask.

    Attributes:
        token: what is read; of WordPiece with the `##` that joins it to what stands before.
        probability: among all pieces.
        piece: the same as it stands in the vocabulary.
    """

    token: str
    probability: float
    piece: str


class Mask(msgspec.Struct, frozen=True):
    """A mask of a text.

    Attributes:
        position: the character where it starts.
        candidates: the most probable first.
    """

    position: int
    candidates: list[Candidate]


class Filling(msgspec.Struct, frozen=True):
    """A text with masks, as given, and what may stand there."""

    text: str
    masks: list[Mask]


def find_masks(tokenizer: Tokenizer, text: str, longest: int) -> tuple[list[int], Sample]:
    """Return the characters where a text's masks start, and the sample whose masked tokens they are.

    Raises:
        UserError: there is no mask, or the text has more than `longest` tokens.
    """
    ids = tokenizer.encode(text.replace("[MASK]", tokenizer.mask_token))
    masked = np.flatnonzero(ids == tokenizer.mask)
    if not len(masked):
        raise UserError(f"no mask in '{text[:60]}'", remedy=f"write {tokenizer.mask_token} where a word is missing")
    if len(ids) + 2 > longest:
        raise UserError(f"'{text[:40]}…' has {len(ids) + 2} tokens, the model reads {longest}", remedy="shorten it")
    frame = Frame.of(tokenizer)
    sample = frame.wrap(ids).add(positions={"masked": frame.start + masked})
    # the mask may be written in two ways: count occurrences in the text as given
    places = [match.start() for match in re.finditer(f"{re.escape(tokenizer.mask_token)}|\\[MASK\\]", text)]
    return places, sample


def most_probable(tokenizer: Tokenizer, logits: np.ndarray, top: int) -> list[list[Candidate]]:
    """Return so many candidates for each mask, the most probable first; special tokens are none.

    Shape:
        logits: (masks, vocabulary).
    """
    logits = logits.copy()
    logits[:, tokenizer.size :] = -np.inf  # rows that pad the table have no piece
    probabilities = torch.from_numpy(logits).softmax(1)  # (masks, vocabulary)
    special = list(tokenizer.special_ids)
    probabilities[:, special] = -1  # after the softmax: the others' probabilities stay the model's
    values, ids = probabilities.topk(min(top, tokenizer.size - len(special)))  # (masks, top)
    return [_candidates(tokenizer, *row) for row in zip(values.tolist(), ids.tolist(), strict=True)]


def _candidates(tokenizer: Tokenizer, probabilities: Sequence[float], ids: Sequence[int]) -> list[Candidate]:
    return [
        Candidate(tokenizer.decode([id]).strip() or piece, probability, piece)  # of a lone space nothing would be left
        for id, piece, probability in zip(ids, tokenizer.tokens(ids), probabilities, strict=True)
    ]


def no_masked_lm(model: Model) -> UserError:
    """Return the error that says why a model without a masked-LM head has none."""
    if LEFT_TO_RIGHT in model.encoder.gives:
        return UserError("this model reads from left to right (GPT), and fills no masks", remedy="take another one")
    if others := sorted(name for name in model.heads if name in OBJECTIVES):
        return UserError(
            f"this model was pretrained for {others[0]} alone, and fills no masks", remedy="take a masked LM"
        )
    return UserError(
        "this model has no masked-LM head (fine-tuned models have none)",
        remedy="take a pretrained one, or adapt it: unmask pretrain RECIPE --init MODEL",
    )
