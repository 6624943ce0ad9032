"""Metrics of rankings: nDCG@k, MRR@k, MAP and recall@k, as trec_eval defines them.

Input: for each query the grades of the documents that a system ranks, best first, and the grades of all documents that
were judged for it. Output: a value per query, 0 to 1.

Grades are whole numbers; a document is relevant if its grade is at least 1, and one that was not judged has the grade
0. The gain of nDCG is the grade itself (Järvelin and Kekäläinen 2002, with trec_eval's discount log2(rank + 1)).
trec_eval orders documents with equal scores by their ids, the largest first, whatever ranks a run file states, and
compares scores in single precision: see `in_order`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.metrics.intervals import Measure


def in_order(scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the order in which trec_eval reads documents: by descending score, equal ones by descending id.

    Args:
        scores: (documents,).
        ids: position of each document among all ids sorted by their bytes, (documents,).

    Returns:
        The indices of the documents, (documents,).
    """
    return np.lexsort((ids, scores.astype(np.float32)))[::-1]


def ndcg(ranked: np.ndarray, judged: np.ndarray, cutoff: int) -> float:
    """Return the normalized discounted cumulative gain.

    Args:
        ranked: grades of the ranked documents, best first, (documents,).
        judged: grades of all judged documents, in any order, (judged,).
        cutoff: number of documents that count.
    """
    ideal = _gain(np.sort(judged)[::-1], cutoff)
    return _gain(ranked, cutoff) / ideal if ideal else 0.0


def reciprocal_rank(ranked: np.ndarray, cutoff: int) -> float:
    """Return 1 divided by the rank of the first relevant document; 0 if none is among the first ones; see `ndcg`."""
    places = np.flatnonzero(ranked[:cutoff] >= 1)
    return 1 / (int(places[0]) + 1) if len(places) else 0.0


def average_precision(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return the sum of the precisions at the relevant documents, divided by the number of these; see `ndcg`."""
    places = np.flatnonzero(ranked >= 1)
    return float((np.arange(1, len(places) + 1) / (places + 1)).sum() / max(1, (judged >= 1).sum()))


def recall(ranked: np.ndarray, judged: np.ndarray, cutoff: int) -> float:
    """Return the share of the relevant documents that are among the first ones; see `ndcg`."""
    return float((ranked[:cutoff] >= 1).sum() / max(1, (judged >= 1).sum()))


def query_metrics(ranked: np.ndarray, judged: np.ndarray) -> dict[str, float]:
    """Return all metrics of a query; see `ndcg`."""
    return {
        "ndcg@10": ndcg(ranked, judged, 10),
        "mrr@10": reciprocal_rank(ranked, 10),
        "map": average_precision(ranked, judged),
        "recall@10": recall(ranked, judged, 10),
        "recall@100": recall(ranked, judged, 100),
    }


def measure_queries(values: Sequence[dict[str, float]]) -> Measure:
    """Return the means over queries, times 100, of what `query_metrics` returned for each."""
    table = {name: np.array([of_query[name] for of_query in values]) for name in values[0]}  # (queries,) each
    return lambda chosen: {name: 100 * float(column[chosen].mean()) for name, column in table.items()}


def _gain(grades: np.ndarray, cutoff: int) -> float:
    """Return the discounted cumulative gain of grades in their order."""
    gains = np.maximum(grades[:cutoff], 0)
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
