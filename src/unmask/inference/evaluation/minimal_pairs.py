"""Minimal pairs: how often a language model finds the acceptable sentence of two the more probable one.

Input: BLiMP's pairs (Warstadt et al. 2020). Output: accuracies of each paradigm and each field, and over all; those of
fields and over all are means over paradigms.

A sentence's score is the sum of the log-probabilities of its tokens (likelihood.py), not divided by their number, as in
BLiMP and in Salazar et al. 2020. A pair with equal scores counts as half right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.data.labelled.minimal_pairs import MinimalPair
from unmask.inference.evaluation.likelihood import Likelihood, TokenizedText
from unmask.metrics.intervals import mean_share
from unmask.support.errors import UserError
from unmask.training.runs.display import Display


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
    notes = [f"{ties:,} of {len(pairs):,} pairs have equal scores, and count as half right"] if ties else []
    if beyond:
        notes.append(f"{beyond:,} of {len(pairs):,} pairs have words that are not in the vocabulary")
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
