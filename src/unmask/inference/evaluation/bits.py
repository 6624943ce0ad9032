"""Bits per character: how well a language model predicts text, whatever its vocabulary.

Input: documents. Output: -log2 of the probabilities of all tokens, divided by the number of characters, which does not
depend on the vocabulary, while a loss per token does.

A document is cut into pieces of equal length, of at most `CONTEXT` tokens, special tokens included, or what the model
reads; each is predicted without the others. A token that stands for text outside the vocabulary ([UNK]) would be
predicted without predicting its text: 8 bits for each byte of it are added, so that ignorance never pays. What a
tokenizer removes (case, accents, spaces) is not predicted at all; `notes` says so of case.

Bits of masked language models are those of the pseudo-log-likelihood (likelihood.py), fewer than those of a probability
of the text: compare them among masked language models only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_idle_options, refuse_none
from unmask.inference.evaluation.likelihood import Likelihood, TokenizedText
from unmask.metrics.intervals import intervals, measure_all
from unmask.support.errors import UserError, counted
from unmask.training.runs.display import Display

CONTEXT = 128
"""Maximum number of tokens of a piece of a document, special tokens included."""
SPELLING = 8
"""Bits that are added for each byte of text outside the vocabulary."""


@dataclass(frozen=True)
class DocumentBits:
    """How well documents are predicted; all arrays are (documents,).

    Attributes:
        bits: total bits.
        characters: number of characters.
        tokens: number of tokens.
        unknown: how many of them are outside the vocabulary.
    """

    bits: np.ndarray
    characters: np.ndarray
    tokens: np.ndarray
    unknown: np.ndarray


def evaluate_bits(likelihood: Likelihood, documents: Sequence[str], display: Display) -> dict[str, Any]:
    """Return bits per character and per token, with 95 % intervals by a bootstrap over documents.

    Returns:
        `{task, metrics, intervals, examples, characters, tokens, unknown, notes}`.

    Raises:
        UserError: the documents have no tokens.
    """
    scored = document_bits(likelihood, documents, display)
    tokens, unknown = int(scored.tokens.sum()), int(scored.unknown.sum())
    if not tokens:
        raise UserError("the documents have no tokens")

    def measure(chosen: np.ndarray) -> dict[str, float]:
        bits = scored.bits[chosen].sum()
        return {
            "bits_per_character": float(bits / scored.characters[chosen].sum()),
            "bits_per_token": float(bits / max(1, scored.tokens[chosen].sum())),
        }

    notes = []
    if unknown:
        notes.append(
            f"{unknown:,} of {tokens:,} tokens are outside the vocabulary; {SPELLING} bits are added for each byte"
        )
    if likelihood.tokenizer.lowercase:
        notes.append("the tokenizer is uncased: the case of letters is not predicted")
    if likelihood.head == "masked_lm":
        notes.append("pseudo-log-likelihood: compare the bits only with those of other masked language models")
    return {
        "task": "bits",
        "metrics": measure_all(measure, len(documents)),
        "intervals": intervals(measure, len(documents)) if len(documents) > 1 else {},
        "examples": len(documents),
        "characters": int(scored.characters.sum()),
        "tokens": tokens,
        "unknown": unknown,
        "notes": notes,
    }


def read_texts(
    paths: Sequence[str | Path], options: TextOptions, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """Return the documents of files, and notes on those that were skipped or look damaged.

    Args:
        paths: the files.
        options: how they are read.
        limit: number of documents, the first ones; None: all.

    Raises:
        UserError: a file cannot be read, there is no text, or an option has no effect.
    """
    refuse_idle_options(paths, options)
    skipped = Skipped()
    documents = list(islice(refuse_none(read_documents(paths, options, skipped), skipped, paths), limit))
    notes = skipped.damaged.notes("document")
    if skipped.count:
        notes = [f"skipped: {counted(skipped.count, 'document')}: " + "; ".join(skipped.places), *notes]
    return documents, notes


def document_bits(likelihood: Likelihood, documents: Sequence[str], display: Display) -> DocumentBits:
    """Return how well each document is predicted."""
    texts = likelihood.encode(documents)
    pieces = [cut(text, min(likelihood.capacity, CONTEXT - 2)) for text in texts]
    rows = likelihood.in_blocks([piece for parts in pieces for piece in parts], display)
    bits = np.array([-sum(float(next(rows).sum()) for _ in parts) / math.log(2) for parts in pieces])
    unknown = [likelihood.is_unknown(text.ids) for text in texts]
    spelled = np.array(
        [
            _bytes(likelihood, document, flags) if flags.any() else 0
            for document, flags in zip(documents, unknown, strict=True)
        ]
    )
    return DocumentBits(
        bits + SPELLING * spelled,
        np.array([len(document) for document in documents]),
        np.array([len(text.ids) for text in texts]),
        np.array([int(flags.sum()) for flags in unknown]),
    )


def cut(text: TokenizedText, longest: int) -> list[TokenizedText]:
    """Return a text in the smallest number of pieces of at most `longest` tokens, all nearly equal; [] without any."""
    pieces = max(1, math.ceil(len(text.ids) / longest))
    parts = zip(np.array_split(text.ids, pieces), np.array_split(text.words, pieces), strict=True)
    return [TokenizedText(ids, words) for ids, words in parts if len(ids)]


def _bytes(likelihood: Likelihood, document: str, unknown: np.ndarray) -> int:
    """Return how many bytes of UTF-8 the tokens of a document stand for that are outside the vocabulary."""
    _, offsets = likelihood.tokenizer.encode_offsets(document)
    return sum(
        len(document[start:end].encode())
        for (start, end), is_unknown in zip(offsets, unknown, strict=True)
        if is_unknown
    )
