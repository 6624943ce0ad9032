"""Evaluation of language models: bits per character of text, and minimal pairs of sentences.

**Bits per character**: how well a language model predicts text, whatever its vocabulary. Input: documents. Output:
-log2 of the probabilities of all tokens, divided by the number of characters, which does not depend on the vocabulary,
while a loss per token does. A document is cut into pieces of equal length, of at most `CONTEXT` tokens, special tokens
included, or what the model reads; each is predicted without the others. A token that stands for text outside the
vocabulary ([UNK]) would be predicted without predicting its text: 8 bits for each byte of it are added, so that
ignorance never pays. What a tokenizer removes (case, accents, spaces) is not predicted at all; `notes` says so of case,
accents and joiners. Bits of masked language models are those of the pseudo-log-likelihood (likelihood.py), fewer than
those of a probability of the text: compare them among masked language models only. By default a token is predicted
without the rest of its word, so that the factors of a word are its probability given the other words, in however many
tokens a vocabulary divides it (Kauf and Ivanova 2023). With the rest in sight, the smaller a vocabulary is, the fewer
bits a text takes.

**Minimal pairs**: how often a language model finds the acceptable sentence of two the more probable one. Input: BLiMP's
pairs (Warstadt et al. 2020). Output: accuracies of each paradigm and each field, and over all; those of fields and over
all are means over paradigms. A sentence's score is the sum of the log-probabilities of its tokens (likelihood.py), not
divided by their number, as in BLiMP and in Salazar et al. 2020. A pair with equal scores counts as half right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.labelled.minimal_pairs import MinimalPair
from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_idle_options, refuse_none
from unmask.data.tokenizers.coverage import count_characters, lost_marks
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation.likelihood import Likelihood, TokenizedText, lm_head
from unmask.metrics.intervals import intervals, mean_share, measure_all
from unmask.support.choices import BITS_PLL, PllKind, as_url
from unmask.support.errors import ShareNote, UserError, counted
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

    def measure(self, chosen: np.ndarray) -> dict[str, float]:
        """Return bits per character and per token of some documents, by their indices."""
        bits = self.bits[chosen].sum()
        return {
            "bits_per_character": float(bits / self.characters[chosen].sum()),
            "bits_per_token": float(bits / max(1, self.tokens[chosen].sum())),
        }


def likelihood_of_bits(backend: TorchBackend, pll: PllKind | None = None) -> Likelihood:
    """Return what bits are computed by: for a masked language model, by default `BITS_PLL`; see the module.

    Raises:
        UserError: see `Likelihood`.
    """
    if pll is None and lm_head(backend.model) == "masked_lm":
        pll = BITS_PLL
    return Likelihood(backend, pll)


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

    notes: list[str] = []
    if unknown:
        what = f"tokens are outside the vocabulary, with {SPELLING} bits more for each byte"
        notes.append(ShareNote(unknown, tokens, what))
    notes += unpredicted(likelihood, documents)
    if likelihood.head == "masked_lm":
        notes.append("pseudo-log-likelihood: compare the bits only with those of other masked language models")
    return {
        "task": "bits",
        "metrics": measure_all(scored.measure, len(documents)),
        "intervals": intervals(scored.measure, len(documents)) if len(documents) > 1 else {},
        "examples": len(documents),
        "characters": int(scored.characters.sum()),
        "tokens": tokens,
        "unknown": unknown,
        "notes": notes,
    }


def unpredicted(likelihood: Likelihood, documents: Sequence[str]) -> list[str]:
    """Return notes on what the tokenizer removes from documents, which costs a model no bits."""
    notes = []
    if likelihood.tokenizer.lowercase:
        notes.append("the tokenizer is uncased: the case of letters is not predicted")
    if lost := sum(lost_marks(count_characters(documents), likelihood.tokenizer.normalize).values()):
        notes.append(f"accents, vowels or joiners of {counted(lost, 'letter')} are not predicted")
    return notes


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
    paths = list(map(as_url, paths))
    refuse_idle_options(paths, options)
    skipped = Skipped()
    documents = list(islice(refuse_none(read_documents(paths, options, skipped), skipped, paths), limit))
    notes = skipped.notes()
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


def evaluate_pairs(likelihood: Likelihood, pairs: Sequence[MinimalPair], display: Display) -> dict[str, Any]:
    """Return the accuracies on pairs, in percent, with 95 % intervals.

    Returns:
        `{task, metrics, intervals, examples, by_field, by_paradigm, notes}`.

    Raises:
        UserError: a sentence has no token, or more than the model reads.
    """
    scores, unknown = score_pairs(likelihood, pairs, display)  # (pairs, 2), (pairs,)
    right = (1 + np.sign(scores[:, 0] - scores[:, 1])) / 2  # (pairs,) 1, 1/2 or 0
    members: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        members.setdefault(pair.paradigm, []).append(index)
    shares = {paradigm: right[indices] for paradigm, indices in members.items()}
    fields: dict[str, list[str]] = {}
    for paradigm, indices in members.items():
        fields.setdefault(pairs[indices[0]].field, []).append(paradigm)
    total = accuracy(list(shares.values()))
    ties, beyond = int((right == 0.5).sum()), int(unknown.sum())
    notes = [ShareNote(ties, len(pairs), "pairs have equal scores, and are counted as half right")] if ties else []
    if beyond:
        notes.append(ShareNote(beyond, len(pairs), "pairs have words outside the vocabulary"))
    return {
        "task": "blimp",
        "metrics": {"accuracy": total["accuracy"]},
        "intervals": {"accuracy": [total["low"], total["high"]]},
        "examples": len(pairs),
        "by_field": {field: accuracy([shares[name] for name in names]) for field, names in sorted(fields.items())},
        "by_paradigm": {paradigm: accuracy([values]) for paradigm, values in sorted(shares.items())},
        "notes": notes,
    }


def accuracy(paradigms: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the mean accuracy over paradigms and its 95 % interval, in percent, and the number of pairs.

    Args:
        paradigms: for each, whether pairs are right, 1, 1/2 or 0, (pairs,).
    """
    mean, low, high = mean_share(paradigms)
    return {"accuracy": 100 * mean, "low": 100 * low, "high": 100 * high, "pairs": sum(map(len, paradigms))}


def score_pairs(
    likelihood: Likelihood, pairs: Sequence[MinimalPair], display: Display
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of both sentences of each pair, (pairs, 2), and which pairs have unknown words, (pairs,) bool.

    Sentences with the same tokens are read once, so that their scores are equal.

    Raises:
        UserError: a sentence has no token, or more than the model reads.
    """
    texts = likelihood.encode([sentence for pair in pairs for sentence in (pair.good, pair.bad)])
    for index, text in enumerate(texts):
        _check_length(likelihood, text, pairs[index // 2])
    keys = [text.ids.tobytes() + text.words.tobytes() for text in texts]
    distinct = dict(zip(keys, texts, strict=True))
    rows = likelihood.in_blocks(list(distinct.values()), display)
    scores = {key: float(row.sum()) for key, row in zip(distinct, rows, strict=True)}
    unknown = np.array([likelihood.is_unknown(text.ids).any() for text in texts])
    return np.array([scores[key] for key in keys]).reshape(-1, 2), np.asarray(unknown.reshape(-1, 2).any(1))


def _bytes(likelihood: Likelihood, document: str, unknown: np.ndarray) -> int:
    """Return how many bytes of UTF-8 the tokens of a document stand for that are outside the vocabulary."""
    _, offsets = likelihood.tokenizer.encode_offsets(document)
    return sum(
        len(document[start:end].encode())
        for (start, end), is_unknown in zip(offsets, unknown, strict=True)
        if is_unknown
    )


def _check_length(likelihood: Likelihood, text: TokenizedText, pair: MinimalPair) -> None:
    """Raise an error if a sentence of a pair has no token, or more than the model reads."""
    if not len(text.ids):
        raise UserError("a sentence has no token", file=pair.file, line=pair.line, remedy="correct or remove it")
    if len(text.ids) > likelihood.capacity:
        raise UserError(
            f"a sentence has {len(text.ids)} tokens, but the model reads at most {likelihood.capacity}",
            file=pair.file,
            line=pair.line,
            remedy="remove the pair",
        )
