"""The best threshold, compared with trying many."""

import numpy as np
import pytest

from unmask.tasks.calibration import find_threshold


@pytest.mark.parametrize("seed", range(30))
def test_no_other_threshold_is_better(seed):
    rng = np.random.default_rng(seed)
    margins = np.round(rng.normal(size=int(rng.integers(1, 30))), 1)  # with ties
    below, above = rng.random((2, len(margins)))

    def total(threshold):
        return np.where(margins > threshold, above, below).sum()

    assert total(find_threshold(margins, below, above)) == pytest.approx(
        max(map(total, np.arange(-5, 5, 0.05) + 0.025))
    )


def test_the_one_nearest_to_0_is_chosen_among_equals():
    assert find_threshold(np.array([-3.0, 2.0]), np.array([1, 0]), np.array([0, 1])) == -0.5
