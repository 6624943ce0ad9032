"""Filling of masks: find the masks of a text, and rank the candidate tokens for each.

Input: a text with masks, and the logits of a masked-LM head, or of XLNet's, at the masks. Output: the most probable
tokens at each mask. Every mask is filled given the rest of the text, without the others. Each mask has as many logits
as the vocabulary has tokens, so that they are computed, and dropped, in blocks of texts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch

from unmask.data.batches.batch import TARGETS, Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED
from unmask.data.batches.tokens import Reading
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT
from unmask.objectives import OBJECTIVES
from unmask.support.errors import UserError, check_count
from unmask.support.messages import argument, call

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Tokenizer
    from unmask.inference.backend import Backend
    from unmask.model.model import Model

HEADS = {"masked_lm": MASKED, "permutation_lm": TARGETS}
"""Heads that fill masks, and the names of the positions where they do."""
MASK = "[MASK]"
"""What stands for a mask in a text, beside the mask token of the vocabulary."""
MAX_LOGITS = 1 << 24
"""Number of logits in memory at once, unless those of a single text are more: masks times tokens of the vocabulary."""


class Candidate(msgspec.Struct, frozen=True):
    """A candidate token for a mask.

    Attributes:
        token: the decoded token; a WordPiece continuation keeps its `##`.
        probability: its softmax probability over the whole vocabulary.
        piece: the token as spelled in the vocabulary.
    """

    token: str
    probability: float
    piece: str


class Mask(msgspec.Struct, frozen=True):
    """A mask in a text, and its candidates.

    Attributes:
        position: index of its first character in the text.
        candidates: the most probable tokens, in descending order.
    """

    position: int
    candidates: list[Candidate]


class Filling(msgspec.Struct, frozen=True):
    """A text as given, and its masks with their candidates."""

    text: str
    masks: list[Mask]


def mask_head(model: Model) -> str | None:
    """Return the head of a model that fills masks; None if it has none."""
    return next((name for name in HEADS if name in model.heads), None)


def fill_masks(
    model: Model, backend: Backend, texts: Sequence[str], top: int, targets: Sequence[str] | None
) -> list[Filling]:
    """Return the `top` most probable tokens for each mask of each text; see `Predictor.fill`."""
    check_count("top", top)
    head = mask_head(model)
    if head is None:
        raise no_masked_lm(model)
    framed = [find_masks(model.tokenizer, text, model.encoder.longest, HEADS[head]) for text in texts]
    among = find_targets(model.tokenizer, targets)
    rows = MaskFiller(model.tokenizer, backend, head, top, among)([sample for _, sample in framed])
    return [
        Filling(text, list(map(Mask, starts, read_candidates(model.tokenizer, ranked))))
        for text, (starts, _), ranked in zip(texts, framed, rows, strict=True)
    ]


@dataclass(frozen=True)
class MaskFiller:
    """Computes the most probable tokens at the masks of samples; equal ones compute the same.

    Attributes:
        tokenizer: the tokenizer.
        backend: computes the logits.
        head: name of the head; see `HEADS`.
        top: number of candidates for each mask.
        among: ids of the tokens that are candidates; empty: all but special ones are.
    """

    tokenizer: Tokenizer
    backend: Backend
    head: str
    top: int
    among: tuple[int, ...] = ()

    def __call__(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the candidates at the masks of each sample, (masks, 2, top); see `top_tokens`."""
        rows: list[np.ndarray] = []
        for block in blocks_of(samples, HEADS[self.head], self.tokenizer.size):
            logits = self.backend.logits(self.head, block)
            rows += [top_tokens(self.tokenizer, of_masks, self.top, self.among) for of_masks in logits]
        return rows


def blocks_of(samples: Sequence[Sample], at: str, vocabulary: int) -> Iterator[list[Sample]]:
    """Yield samples in blocks of at most `MAX_LOGITS` logits each.

    Args:
        samples: the samples.
        at: name of the positions that have logits.
        vocabulary: number of logits of each.
    """
    block: list[Sample] = []
    masks = 0
    for sample in samples:
        masks += (more := len(sample.positions[at]))
        if block and masks * vocabulary > MAX_LOGITS:
            yield block
            block, masks = [], more
        block.append(sample)
    if block:
        yield block


def find_masks(tokenizer: Tokenizer, text: str, longest: int, at: str) -> tuple[list[int], Sample]:
    """Return the character offsets of a text's masks, and the text as a sample with these tokens masked.

    Args:
        tokenizer: the model's.
        text: the text.
        longest: the maximum length that the model reads.
        at: name of the positions of the masks; see `HEADS`.

    Raises:
        UserError: there is no mask, or the text has more than `longest` tokens.
    """
    replaced = text.replace(MASK, tokenizer.mask_token)
    ids, spans = tokenizer.encode_offsets(replaced)
    masked = np.flatnonzero(ids == tokenizer.mask)
    if not len(masked):
        raise UserError(f"no mask in '{text[:60]}'", remedy=f"write {tokenizer.mask_token} where a word is missing")
    if len(ids) + 2 > longest:
        raise UserError(
            f"'{text[:40]}…' has {len(ids) + 2} tokens, but the model reads at most {longest}", remedy="shorten it"
        )
    # tokens of masks may include spaces around them
    starts = [end - len(replaced[start:end].lstrip()) for start, end in (spans[number] for number in masked.tolist())]
    longer = len(tokenizer.mask_token) - len(MASK)
    others = [match.start() + longer * number for number, match in enumerate(re.finditer(re.escape(MASK), text))]
    starts = [start - longer * bisect_left(others, start) for start in starts]  # in the text as given
    frame = Frame.of(tokenizer)
    sample, masked = frame.wrap(ids), frame.start + masked
    sample = sample.add(positions={at: masked})
    if at == TARGETS:
        order = np.isin(np.arange(len(sample)), masked).astype(np.int64)
        sample = sample.changed(reading=Reading(order=order))
    return starts, sample


def find_targets(tokenizer: Tokenizer, targets: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ids of tokens, as the vocabulary spells them or as texts; none for None.

    Raises:
        UserError: there is none, or one is not a token of the vocabulary, or a special one.
    """
    if targets is None:
        return ()
    if not targets:
        raise UserError("there are no targets", remedy=f"give tokens, or leave out {argument('targets')}")
    found = [tokenizer.find(target) for target in targets]
    ids = [tokenizer.encode(target).tolist() if id is None else [id] for target, id in zip(targets, found, strict=True)]
    for target, of_target in zip(targets, ids, strict=True):
        if len(of_target) != 1:
            pieces = f" but {len(of_target)}: {' '.join(tokenizer.tokens(of_target[:9]))}" if of_target else ""
            remedy = "give single tokens: a mask stands for one"
            raise UserError(f"the target '{target[:60]}' is not one token{pieces}", remedy=remedy)
        if of_target[0] in tokenizer.special_ids:
            raise UserError(f"the vocabulary has no token for the target '{target[:60]}'", remedy="leave it out")
    return tuple(dict.fromkeys(id for (id,) in ids))


def top_tokens(tokenizer: Tokenizer, logits: np.ndarray, top: int, among: Sequence[int] = ()) -> np.ndarray:
    """Return the `top` most probable tokens for each mask in descending order, without special tokens.

    Args:
        tokenizer: the tokenizer.
        logits: the logits of the masks.
        top: number of tokens.
        among: ids of the tokens to choose from; empty: all.

    Returns:
        The probability and the id of each, (masks, 2, top) float64.

    Shape:
        logits: (masks, vocabulary).
    """
    logits = logits.copy()
    logits[:, tokenizer.size :] = -np.inf  # rows that pad the embedding table have no token
    probabilities = torch.from_numpy(logits).softmax(1)  # (masks, vocabulary)
    if among:  # after the softmax, so that the probabilities remain the model's
        values, order = probabilities[:, list(among)].topk(min(top, len(among)))  # (masks, top)
        ids = torch.tensor(among)[order]
    else:
        special = list(tokenizer.special_ids)
        probabilities[:, special] = -1
        values, ids = probabilities.topk(min(top, tokenizer.size - len(special)))  # (masks, top)
    return torch.stack([values.double(), ids.double()], 1).numpy()


def read_candidates(tokenizer: Tokenizer, ranked: np.ndarray) -> list[list[Candidate]]:
    """Return the candidates for each mask, given what `top_tokens` returns."""
    return [
        [
            Candidate(tokenizer.decode([id]).strip() or piece, probability, piece)  # a lone space decodes to nothing
            for id, piece, probability in zip(ids, tokenizer.tokens(ids), probabilities, strict=True)
        ]
        for probabilities, ids in zip(ranked[:, 0].tolist(), ranked[:, 1].astype(int).tolist(), strict=True)
    ]


def no_masked_lm(model: Model) -> UserError:
    """Return an error that explains why a model has no masked-LM head."""
    if LEFT_TO_RIGHT in model.encoder.provides:
        return UserError(
            "this model reads from left to right (GPT) and cannot fill masks", remedy="use a masked language model"
        )
    if others := sorted(name for name in model.heads if name in OBJECTIVES):
        return UserError(
            f"this model was pretrained only with {others[0]} and cannot fill masks",
            remedy="use a masked language model",
        )
    return UserError(
        "this model has no masked-LM head (fine-tuned models have none)",
        remedy=f"use a pretrained model, or adapt this one: {call('pretrain', 'RECIPE', init='MODEL')}",
    )
