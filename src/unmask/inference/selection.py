"""Selection of texts to label: uncertain, different from each other, and of all predicted classes.

Input: for each text its vector, how uncertain a model is about it, and the class that it predicts. Output: indices.

Zhdanov 2019 (Diverse mini-batch active learning): of the most uncertain texts, ten for each that is selected, those
nearest to the centers of a weighted k-means. Without a model all weights are equal, and the texts are typical ones of
different kinds, as in Hacohen et al. 2022, which takes the densest text of a cluster. Differs from Zhdanov 2019: every
predicted class has an equal share of the uncertain texts.
"""

from __future__ import annotations

import numpy as np

PREFILTER = 10
"""Number of uncertain texts, for each text that is selected, among which they are."""
ITERATIONS = 30
"""Maximum number of iterations of k-means; few texts change their cluster later."""
BLOCK = 1 << 22
"""Number of distances in memory at once."""


def balanced_order(uncertainty: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the indices of all texts, the most uncertain first, by turns of each class.

    A class with too few texts leaves its share to the others.

    Args:
        uncertainty: (texts,).
        classes: index of the predicted class of each text, (texts,).
    """
    order = np.argsort(-uncertainty, kind="stable")
    grouped = order[np.argsort(classes[order], kind="stable")]  # by class, each in order of uncertainty
    sizes = np.bincount(classes)
    ranks = np.empty(len(order), np.int64)  # within the class of each text
    ranks[grouped] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.lexsort((-uncertainty, ranks))


def select_diverse(vectors: np.ndarray, weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of the vectors nearest to the centers of a weighted k-means, (count,).

    The first centers are drawn as in k-means++ (Arthur and Vassilvitskii 2007). Of a cluster that became empty, the
    vector that is farthest from its own center is taken.

    Args:
        vectors: (texts, width).
        weights: (texts,), not negative.
        count: number of clusters, at most the number of texts.
        rng: draws the first centers.
    """
    if count >= len(vectors):
        return np.arange(len(vectors))
    centers = vectors[draw_centers(vectors, weights, count, rng)]
    nearest, distances = _assign(vectors, centers)
    for _ in range(ITERATIONS):
        masses = np.bincount(nearest, weights, count)
        sums = np.zeros_like(centers)
        np.add.at(sums, nearest, weights[:, None].astype(vectors.dtype) * vectors)
        moved = np.where((masses > 0)[:, None], sums / np.maximum(masses, 1e-12)[:, None], centers)
        centers, before = moved.astype(vectors.dtype), nearest
        nearest, distances = _assign(vectors, centers)
        if (nearest == before).all():
            break
    order = np.lexsort((distances, nearest))  # by cluster, the nearest to its center first
    _, first = np.unique(nearest[order], return_index=True)
    chosen = order[first]
    others = np.setdiff1d(np.arange(len(vectors)), chosen)
    farthest = others[np.argsort(-distances[others], kind="stable")]
    return np.concatenate([chosen, farthest[: count - len(chosen)]])


def draw_centers(vectors: np.ndarray, weights: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Return the indices of the first centers, each drawn by its weight and its squared distance from those before."""
    drawn: list[int] = []
    odds = weights.astype(np.float64)
    nearest = np.full(len(vectors), np.inf)
    for _ in range(count):
        odds[drawn] = 0
        if (total := odds.sum()) > 0:
            index = int(rng.choice(len(vectors), p=odds / total))
        else:  # all others equal a center
            index = int(rng.choice(np.setdiff1d(np.arange(len(vectors)), drawn)))
        drawn.append(index)
        nearest = np.minimum(nearest, ((vectors - vectors[index]) ** 2).sum(1))
        odds = weights * nearest
    return drawn


def _assign(vectors: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest center of each vector, and its squared distance, (texts,) each."""
    nearest, distances = np.empty(len(vectors), np.int64), np.empty(len(vectors))
    norms = (centers**2).sum(1)
    for start in range(0, len(vectors), rows := max(1, BLOCK // len(centers))):
        block = vectors[start : start + rows]
        squared = norms - 2 * block @ centers.T  # (rows, centers), without the norms of the vectors
        nearest[start : start + rows] = squared.argmin(1)
        distances[start : start + rows] = squared.min(1) + (block**2).sum(1)
    return nearest, np.maximum(distances, 0)
