"""The best threshold, compared with trying many; the temperature is that of a generic minimizer, and calibrates."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from unmask.tasks.tuning import (
    HOTTEST,
    UNKNOWN,
    at_temperature,
    check_temperature,
    describe_calibration,
    divisor,
    find_temperature,
    find_threshold,
    smoothed,
)


@pytest.mark.seeds(30)
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


def drawn(classes, scale, size=3000):
    """Return the gold classes drawn from a model, and what the model predicts if it is too sure by a factor."""
    rng = np.random.default_rng(classes)
    logits = rng.normal(size=(size, classes)) * 2
    gold = (softmax(logits, 1).cumsum(1) < rng.random((size, 1))).sum(1)
    return gold, scale * logits


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0])
def test_the_temperature_has_the_smallest_loss(classes, scale):
    gold, logits = drawn(classes, scale)
    targets = smoothed(np.eye(classes)[gold])
    least = minimize_scalar(lambda t: -(targets * log_softmax(logits / t, 1)).sum(1).mean(), bounds=(0.05, 20))
    found = find_temperature(softmax(logits, 1), gold)
    assert found == pytest.approx(least.x, rel=1e-3)
    assert found == pytest.approx(scale, rel=0.15)


def test_probabilities_at_a_temperature():
    _, logits = drawn(3, 1.0, 50)
    assert at_temperature(softmax(logits, 1), 2.5) == pytest.approx(softmax(logits / 2.5, 1))


def test_the_error_falls_and_both_are_described():
    gold, logits = drawn(3, 3.0)
    before = describe_calibration(softmax(logits, 1), gold, 1.0)
    assert list(before) == ["expected_calibration_error"]
    temperature = find_temperature(softmax(logits, 1), gold)
    after = describe_calibration(softmax(logits / temperature, 1), gold, temperature)
    assert after["expected_calibration_error"] < 4 < 10 < before["expected_calibration_error"]
    assert after["without_temperature"] == pytest.approx(before["expected_calibration_error"])
    assert after["temperature"] == temperature


def test_few_predictions_that_are_right_do_not_make_others_certain():
    sure, right = np.array([[0.99, 0.01], [0.01, 0.99]] * 4), np.array([0, 1] * 4)
    calibrated = at_temperature(sure, find_temperature(sure, right))
    assert calibrated.max(1) == pytest.approx((8 + UNKNOWN / 2) / (8 + UNKNOWN), abs=1e-6)
    assert find_temperature(sure, 1 - right) == HOTTEST
    assert find_temperature(sure, np.eye(2)[right]) == find_temperature(sure, right)


def test_examples_count_by_their_weights():
    gold, logits = drawn(3, 2.0, 40)
    weights = np.random.default_rng(0).uniform(0.5, 2, 40)[:, None]
    targets = weights * smoothed(np.eye(3)[gold])
    least = minimize_scalar(lambda t: -(targets * log_softmax(logits / t, 1)).sum(), bounds=(0.05, 20))
    assert find_temperature(softmax(logits, 1), weights * np.eye(3)[gold]) == pytest.approx(least.x, rel=1e-3)


@pytest.mark.seeds(20)
def test_smoothed_targets_have_the_sums_of_others_that_might_have_any_label_with_an_example(seed):
    rng = np.random.default_rng(seed)
    classes, size = int(rng.integers(2, 6)), int(rng.integers(1, 40))
    known = rng.permutation(classes)[: int(rng.integers(2, classes + 1))]
    gold = np.concatenate([known, rng.choice(known, size)])
    targets = smoothed(np.eye(classes)[gold])
    others = np.isin(np.arange(classes), known) * UNKNOWN / len(known)
    examples = len(gold)
    assert targets.sum(1) == pytest.approx(1)
    assert targets.sum(0) == pytest.approx(
        (np.bincount(gold, minlength=classes) + others) * examples / (examples + UNKNOWN)
    )
    assert targets[np.arange(examples), gold] == pytest.approx((examples + UNKNOWN / len(known)) / (examples + UNKNOWN))


def test_examples_of_a_single_label_leave_any_other_possible():
    assert smoothed(np.eye(2)[[1, 1, 1]])[0] == pytest.approx([4 / 11, 7 / 11])


@pytest.mark.seeds(10)
def test_a_label_without_examples_changes_no_temperature(seed):
    """Regressions of few examples give it next to nothing, which a higher temperature would raise."""
    rng = np.random.default_rng(seed)
    gold, logits = drawn(3, 2.0, int(rng.integers(6, 30)))
    gold[:3] = range(3)
    never = logits.min() - 50 + np.zeros((len(logits), 1))
    found = find_temperature(softmax(np.hstack([logits, never]), 1), gold)
    assert found == pytest.approx(find_temperature(softmax(logits, 1), gold), rel=1e-2)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_bad_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match=r"temperature must be a number from 0\.001 to 1000"):
        check_temperature(temperature)
    assert divisor("tuned") == 1
