"""Agreement of ranks beyond chance, weighted by the square of their distance (Cohen 1968, "Weighted kappa").

One minus the mean squared distance of gold and predicted ranks, divided by that of pairs at random, times 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unmask.data.labelled.labelled_file import Row
from unmask.support.errors import UserError
from unmask_structbert.ordinal import Ranked


def quadratic_kappa(
    examples: Sequence[Row], predictions: Sequence[Ranked], labels: Sequence[str]
) -> Callable[[np.ndarray], float]:
    """See `Metric`; not a number if all ranks, gold and predicted, are the same.

    Raises:
        UserError: the predictions are no ranks.
    """
    if not all(isinstance(prediction, Ranked) for prediction in predictions):
        raise UserError("quadratic_kappa is a metric of ranks", remedy="name it for models of the task ordinal only")
    gold = np.array([labels.index(row.values["label"]) for row in examples])
    predicted = np.array([labels.index(prediction.rank) for prediction in predictions])

    def kappa(chosen: np.ndarray) -> float:
        first, second = gold[chosen], predicted[chosen]
        by_chance = first.var() + second.var() + (first.mean() - second.mean()) ** 2
        return 100 * float(1 - ((first - second) ** 2).mean() / by_chance) if by_chance else float("nan")

    return kappa
