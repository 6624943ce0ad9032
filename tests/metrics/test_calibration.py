"""The expected calibration error agrees with a loop over bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.metrics.classification import calibration_error


def by_hand(confidence, correct):
    """Return the sum over bins of their share times the difference of accuracy and confidence (Guo et al. 2017)."""
    total = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return 100 * total


@given(st.integers(0, 1000), st.integers(1, 300))
def test_the_error_is_that_of_the_definition(seed, size):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.001, 1, size)
    correct = rng.random(size) < confidence**2
    assert calibration_error(confidence, correct) == pytest.approx(by_hand(confidence, correct), abs=1e-9)


def test_known_cases():
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0
    assert calibration_error(np.ones(4), np.array([True, True, True, False])) == pytest.approx(25)
    assert calibration_error(np.full(4, 0.75), np.array([True, True, True, False])) == pytest.approx(0)
    assert calibration_error(np.zeros(2), np.array([False, False])) == 0
