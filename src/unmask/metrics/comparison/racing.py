"""Racing: after each seed, arms that are clearly worse than the leader stop, so that their other seeds are not trained.

The error over all looks is at most 5 %: the probability that the best arm is ever stopped. Each look spends an equal
share of it, and within a look each rival of an arm an equal share of that (Bonferroni; the looks are planned, so no
sequential boundary is needed). The best arm is stopped only if it is clearly worse than one of its rivals at one of the
looks, and these probabilities sum to 5 % at most. The tests are those of `estimates`, one-sided, on the seeds that both
arms have. At the first seed nothing is stopped, since how far seeds differ is not known yet.

Budgets can be raced like seeds (rungs), but then the error is about the scores at that budget: an arm that learns more
slowly at first may be best in the end. See `outlook` before stopping such an arm.

Maron and Moore 1997, "The racing algorithm: model selection for lazy learners".
"""

from __future__ import annotations

from collections.abc import Mapping

from unmask.metrics.comparison.estimates import LEVEL, common_seeds, difference, pooled_seeds
from unmask.metrics.comparison.multibootstrap import Resampled


def arms_to_stop(arms: Mapping[str, Resampled], *, looks: int, starters: int) -> dict[str, str]:
    """Return the arms that stop at this look, each with the arm that is clearly better.

    Args:
        arms: the arms that are still running, resampled together, with the seeds so far.
        looks: number of looks that are planned in all: with one after each seed from the second, but not after the
            last, the number of seeds minus 2.
        starters: number of arms at the start.
    """
    if looks < 1 or starters < 2:
        return {}
    leader = max(arms, key=lambda name: arms[name].scores.mean())
    each = LEVEL / looks / (starters - 1)
    pooled, stopped = pooled_seeds(list(arms.values())), {}
    for name, arm in arms.items():
        if name != leader and len(common_seeds([arm, arms[leader]])) > 1:
            apart = difference(arm, arms[leader], pooled=pooled)
            if apart.center < 0 and apart.p / 2 <= each:
                stopped[name] = leader
    return stopped
