"""Metrics agree with scikit-learn, intervals with a naive bootstrap over examples, the error with a loop over bins."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from unmask.metrics.classification import by_label, calibration_error, confusion, measure
from unmask.metrics.intervals import RESAMPLES, intervals


def reference(gold, predicted, labels, positive=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about labels that do not occur
        macro = metrics.f1_score(gold, predicted, average="macro", zero_division=0)
        each = metrics.f1_score(gold, predicted, labels=range(labels), average=None, zero_division=0)
        balanced = metrics.balanced_accuracy_score(gold, predicted)
        correlation = metrics.matthews_corrcoef(gold, predicted)
    return {
        "accuracy": 100 * metrics.accuracy_score(gold, predicted),
        "f1": 100 * (each[positive] if labels == 2 else macro),
        "f1_macro": 100 * macro,
        "balanced_accuracy": 100 * balanced,
        "matthews_correlation": 100 * correlation,
    }


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_scores_of_random_predictions(labels):
    rng = np.random.default_rng(labels)
    for size in [*range(1, 12), 100, 1000]:
        gold = rng.integers(0, labels, size)
        predicted = np.where(rng.random(size) < 0.6, gold, rng.integers(0, labels, size))
        counts = confusion(gold, predicted, labels)
        assert np.array_equal(counts, metrics.confusion_matrix(gold, predicted, labels=range(labels)))
        for positive in (0, 1):
            expected = reference(gold, predicted, labels, positive)
            assert measure(gold, predicted, labels, positive)(np.arange(size)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.seeds(60)
def test_scores_of_each_label(seed):
    rng = np.random.default_rng(seed)
    labels, size = int(rng.integers(2, 6)), int(rng.integers(1, 200))
    names = [f"label {number}" for number in range(labels)]
    gold = rng.choice(labels, size, p=rng.dirichlet(np.full(labels, 0.3)))
    probabilities = rng.dirichlet(np.ones(labels), size).round(int(rng.integers(1, 4)))  # with ties
    predicted = probabilities.argmax(1)
    found = by_label(*(np.eye(labels, dtype=bool)[numbers] for numbers in (gold, predicted)), probabilities, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = metrics.precision_recall_fscore_support(gold, predicted, labels=range(labels), zero_division=0)
        ranked = [metrics.average_precision_score(gold == number, probabilities[:, number]) for number in range(labels)]
    for number, name in enumerate(names):
        assert found[name] == pytest.approx(
            {
                "precision": 100 * expected[0][number],
                "recall": 100 * expected[1][number],
                "f1": 100 * expected[2][number],
                "average_precision": 100 * ranked[number],
                "examples": expected[3][number],
            },
            abs=1e-9,
        )


@pytest.mark.parametrize(
    ("gold", "predicted", "labels"),
    [
        ([0, 0, 0], [0, 0, 0], 2),
        ([1, 1, 1], [1, 1, 1], 2),
        ([0, 0, 0], [1, 1, 1], 2),
        ([0, 1, 0, 1], [1, 0, 1, 0], 2),
        ([0, 1, 1], [0, 0, 0], 2),
        ([0, 1, 2], [0, 1, 2], 3),
        ([0, 0, 1], [0, 0, 1], 3),
        ([2], [0], 5),
    ],
)
def test_scores_of_degenerate_cases(gold, predicted, labels):
    gold, predicted = np.array(gold), np.array(predicted)
    found = measure(gold, predicted, labels)(np.arange(len(gold)))
    assert found == pytest.approx(reference(gold, predicted, labels), abs=1e-9)


@pytest.mark.seeds(200)
def test_any_selection_of_examples_is_scored_as_scikit_learn_does(seed):
    """Also where there are far more labels than examples, of which only those that occur are counted."""
    rng = np.random.default_rng(seed)
    labels, size = int(rng.choice([2, 3, 50, 100_000, 10**7])), int(rng.integers(1, 60))
    used = rng.integers(0, labels, int(rng.integers(1, 30)))
    gold = rng.choice(used, size)
    predicted = np.where(rng.random(size) < rng.random(), gold, rng.choice(used, size))
    chosen = rng.integers(0, size, int(rng.integers(1, 80)))
    found = measure(gold, predicted, labels)(chosen)
    gold, predicted = gold[chosen], predicted[chosen]
    expected = reference(gold, predicted, labels if labels == 2 else 3)
    assert found == pytest.approx(expected, abs=1e-9)


def test_intervals_of_a_hundred_thousand_labels():
    """The confusion matrix would have 10,000,000,000 cells."""
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 100_000, (2, 100))
    predicted[:50] = gold[:50]
    low, high = intervals(measure(gold, predicted, 100_000), 100)["accuracy"]
    assert 38 < low < 42 and 58 < high < 62


@pytest.mark.parametrize(("labels", "size"), [(2, 200), (4, 500)])
def test_intervals_are_those_of_a_naive_bootstrap(labels, size):
    rng = np.random.default_rng(0)
    gold = rng.integers(0, labels, size)
    predicted = np.where(rng.random(size) < 0.7, gold, rng.integers(0, labels, size))
    metrics = measure(gold, predicted, labels)
    found, point = intervals(metrics, size), metrics(np.arange(size))
    assert found == intervals(metrics, size)
    assert found != intervals(metrics, size, seed=1)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = rng.integers(0, size, size)
        drawn.append(metrics(chosen))
    for name, (low, high) in found.items():
        assert low <= point[name] <= high
        naive = np.percentile([one[name] for one in drawn], [2.5, 97.5])
        assert [low, high] == pytest.approx(naive, abs=0.08 * (high - low) + 0.3)
    # the interval of the accuracy is about as wide as that of the normal approximation
    share = point["accuracy"] / 100
    width = 2 * 1.96 * 100 * np.sqrt(share * (1 - share) / size)
    assert found["accuracy"][1] - found["accuracy"][0] == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize("size", [10, 30, 1000])
def test_perfect_predictions_are_not_certain(size):
    """Wilson's interval, whose lower end is n / (n + 3.84)."""
    gold = np.arange(size) % 2
    found = intervals(measure(gold, gold, 2), size)
    low = 100 * size / (size + 1.959964**2)
    assert found.pop("matthews_correlation") == pytest.approx([2 * low - 100, 100])
    assert all(ends == pytest.approx([low, 100]) for ends in found.values())
    worst = intervals(measure(gold, 1 - gold, 2), size)
    assert worst["accuracy"] == pytest.approx([0, 100 - low])
    assert worst["matthews_correlation"] == pytest.approx([-100, 100 - 2 * low])


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
