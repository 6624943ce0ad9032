"""Coverage of intervals; comparison of two models on the same examples: the difference, its interval, its p-value."""

import numpy as np
import pytest
from scipy import stats

from unmask.metrics import classification, question_answering, regression
from unmask.metrics import intervals as module
from unmask.metrics.intervals import (
    CORRELATIONS,
    RESAMPLES,
    SHARES,
    Z,
    adjusted_wald,
    differences,
    intervals,
    mean_share,
    measure_all,
    student_quantile,
    student_tail,
    wilson,
)

SIZE = 400


def models(first, second, *, seed=0, together=0.8):
    """Return measures of two models with these accuracies, correct mostly on the same examples, and where they are."""
    rng = np.random.default_rng(seed)
    gold, luck = rng.integers(0, 2, SIZE), rng.random(SIZE)
    correct = []
    for share in (first, second):
        own = np.where(rng.random(SIZE) < together, luck, rng.random(SIZE))
        correct.append(own < share)
    predicted = [np.where(it, gold, 1 - gold) for it in correct]
    return [classification.measure(gold, it, 2) for it in predicted], correct


def test_a_model_does_not_differ_from_itself():
    """Other examples may tell two models apart that agree on all of these."""
    (first, _), _ = models(0.8, 0.8)
    half = 100 * Z * np.sqrt(2) / (SIZE + 2)
    for name, compared in differences(first, first, SIZE).items():
        assert (compared["difference"], compared["p"]) == (0, 1)
        if name == "accuracy":
            assert compared["interval"] == pytest.approx([-half, half], rel=0.1)
        assert compared["interval"][1] == -compared["interval"][0] > half / 2


def accuracies(*models):
    """Return measures of the accuracy alone of models, given whether they are right on each example."""
    return [lambda chosen, right=right: {"accuracy": 100 * right[chosen].mean()} for right in models]


def outcome(only_first, only_second, number, both=None):
    """Return measures of two models of which each alone is right on some examples; both are right on half the others.

    Args:
        both: number of examples on which both are right.
    """
    others = number - only_first - only_second
    both = others // 2 if both is None else both
    first = np.repeat([1, 0, 1, 0], [only_first, only_second, both, others - both])
    second = np.repeat([0, 1, 1, 0], [only_first, only_second, both, others - both])
    return accuracies(first, second)


def bonett_price(only_first, only_second, number):
    """Return the interval of Bonett and Price 2012, from the counts, and the p-value of no difference."""
    first, second = (only_first + 1) / (number + 2), (only_second + 1) / (number + 2)
    error = np.sqrt((first + second - (first - second) ** 2) / (number + 2))
    ends = stats.norm.interval(0.95, first - second, error)
    return *np.clip(ends, -1, 1), 2 * stats.norm.sf(abs(first - second) / error)


def test_intervals_of_differences_of_accuracies_are_those_of_bonett_and_price(monkeypatch):
    """Of the counts of 20 outcomes, among them models that agree on all examples, and models that are always right."""
    monkeypatch.setattr(module, "RESAMPLES", 400)
    rng = np.random.default_rng(0)
    for trial in range(20):
        number = int(rng.integers(20, 1000))
        only_first, only_second = rng.binomial(number // 2, rng.choice([0, 0.02, 0.2, 0.5], 2))
        both = number - only_first - only_second if trial % 4 == 0 else None
        first, second = outcome(only_first, only_second, number, both)
        compared = differences(first, second, number, seed=trial)["accuracy"]
        low, high, p = bonett_price(only_first, only_second, number)
        rounding = 8 * (high - low)  # percent of the width, by the resamples
        assert compared["interval"] == pytest.approx([100 * low, 100 * high], abs=rounding)
        assert compared["p"] == pytest.approx(max(p, 1 / 400), abs=0.06)


def covered_share(only_first, only_second, number):
    """Return how probable it is that the interval of a difference contains it, exactly, over all outcomes.

    Args:
        only_first, only_second: how probable it is that only the first, or only the second model is right.
        number: number of examples.
    """
    firsts = np.arange(number + 1)
    covered = 0.0
    for count in firsts[stats.binom.pmf(firsts, number, only_first) > 1e-9]:
        left = np.arange(number - count + 1)
        likely = stats.binom.pmf(left, number - count, only_second / (1 - only_first))
        for other in left[likely > 1e-9]:
            difference = (count - other) / number
            variance = ((count + other) / number - difference**2) / number
            low, high, _ = adjusted_wald(difference, variance, number)
            if low <= only_first - only_second <= high:
                covered += stats.binom.pmf(count, number, only_first) * likely[other]
    return covered


@pytest.mark.parametrize("number", [50, 200, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (100, 500))])
def test_95_percent_of_intervals_contain_the_difference(number):
    """Exact over all outcomes; neither accuracy matters beyond how often one model alone is right.

    Where one of them alone is right on fewer than 10 examples, hardly any outcome is possible, and intervals are too
    wide rather than too narrow.
    """
    for disagreement in (0.01, 0.05, 0.1, 0.2, 0.3):
        shares = np.array([0.5, 0.6, 0.75, 0.9, 1.0])  # of the disagreements, those in which the first is right
        covered = [covered_share(disagreement * share, disagreement * (1 - share), number) for share in shares]
        assert min(covered) >= 0.93
        if number * disagreement >= 10:
            assert 0.93 <= np.mean(covered) <= 0.97
            assert max(covered) < 0.98


def test_intervals_of_differences_of_dependent_examples_contain_the_difference():
    """Of 300 simulated data sets of 40 dialogues with 10 questions each, which one of the models finds easier."""
    rng, covered = np.random.default_rng(0), 0
    groups = np.repeat(np.arange(40), 10).tolist()
    for _ in range(300):
        ease = np.repeat(rng.normal(size=40), 10)
        first, second = (rng.normal(size=400) + 1.0 + weight * ease > 0 for weight in (1, -1))
        before, module.RESAMPLES = module.RESAMPLES, 60
        try:
            low, high = differences(*accuracies(first, second), 400, groups=groups)["accuracy"]["interval"]
        finally:
            module.RESAMPLES = before
        covered += low <= 0 <= high  # both are right equally often
    assert 0.92 <= covered / 300 <= 0.98


def test_differences_are_first_minus_second_and_change_their_sign():
    (first, second), _ = models(0.85, 0.75)
    found, back = differences(first, second, SIZE), differences(second, first, SIZE)
    first_all, second_all = measure_all(first, SIZE), measure_all(second, SIZE)
    assert found.keys() == first_all.keys()
    for name, one in found.items():
        assert one["difference"] == first_all[name] - second_all[name] == -back[name]["difference"]
        assert one["interval"] == pytest.approx([-bound for bound in reversed(back[name]["interval"])])
        assert one["p"] == back[name]["p"]
        assert one["interval"][0] <= one["difference"] <= one["interval"][1]


def test_p_is_about_that_of_the_exact_test():
    """Compares with McNemar's test (mid-p, which is not conservative), for small and for large differences."""
    for seed, (first, second) in enumerate([(0.8, 0.8), (0.82, 0.78), (0.83, 0.77), (0.9, 0.7)]):
        measures, (one, other) = models(first, second, seed=seed)
        only = [int((one & ~other).sum()), int((other & ~one).sum())]
        expected = stats.binomtest(only[0], sum(only)).pvalue - stats.binom.pmf(only[0], sum(only), 0.5)
        p = differences(*measures, SIZE)["accuracy"]["p"]
        assert p == pytest.approx(expected, abs=0.06)
        assert 1 / RESAMPLES <= p <= 1


def test_the_same_examples_are_drawn_for_both():
    """With independent resamples the interval would be wider: the models err on the same examples."""
    measures, _ = models(0.82, 0.78, together=1.0)
    low, high = differences(*measures, SIZE)["accuracy"]["interval"]
    separate = [intervals(measure, SIZE)["accuracy"] for measure in measures]
    independent = np.hypot(*(bound[1] - bound[0] for bound in separate))
    assert high - low < 0.6 * independent
    assert low > 0, "a difference of 4 points is significant"


def test_differences_are_reproducible_for_any_metric(monkeypatch):
    monkeypatch.setattr(module, "RESAMPLES", 200)
    rng = np.random.default_rng(0)
    gold = rng.normal(size=SIZE)
    first, second = (regression.measure(gold, gold + noise * rng.normal(size=SIZE)) for noise in (0.5, 1.0))
    found = differences(first, second, SIZE)
    assert found == differences(first, second, SIZE)
    assert found != differences(first, second, SIZE, seed=1)
    assert found.keys() == {"pearson", "spearman"}
    assert all(one["p"] == 1 / module.RESAMPLES and one["interval"][0] > 0 for one in found.values())


@pytest.mark.parametrize("number", [30, 50, 100, 300, 1000])
def test_wilson_is_that_of_scipy(number):
    for correct in range(0, number + 1, 5):
        expected = stats.binomtest(correct, number).proportion_ci(method="wilson")
        assert wilson(correct / number, number) == pytest.approx((expected.low, expected.high), abs=1e-6)


def coverage(accuracy, number, ends):
    """Return how probable it is that the interval of so many correct examples contains the true accuracy."""
    low, high = np.array([ends(correct) for correct in range(number + 1)]).T
    inside = (low <= 100 * accuracy) & (100 * accuracy <= high)
    return stats.binom.pmf(np.arange(number + 1), number, accuracy)[inside].sum()


@pytest.mark.parametrize("number", [30, pytest.param(100, marks=pytest.mark.exhaustive), 1000])
def test_95_percent_of_intervals_contain_the_accuracy(number, monkeypatch):
    """Exact over all outcomes, which are drawn with fewer resamples.

    The number of correct examples is discrete, so that the coverage of any interval oscillates with the accuracy: the
    mean over accuracies is 93 to 97 %, and no accuracy is far from it.
    """
    monkeypatch.setattr(module, "RESAMPLES", 300)
    computed = {}

    def ends(correct):
        if correct not in computed:
            gold = np.zeros(number, np.int64)
            predicted = (np.arange(number) >= correct).astype(np.int64)
            computed[correct] = intervals(classification.measure(gold, predicted, 2), number)["accuracy"]
        return computed[correct]

    if number == 1000:  # the resamples of a thousand outcomes take long, and vary as the binomial distribution does
        ends = lambda correct: [100 * end for end in wilson(correct / number, number)]  # noqa: E731
    accuracies = np.linspace(0.5, 0.99, 50)
    covered = np.array([coverage(accuracy, number, ends) for accuracy in accuracies])
    for near in np.split(covered, 5):
        assert 0.93 <= near.mean() <= 0.97
    assert covered.min() > 0.88


def test_intervals_contain_the_metric_and_stay_in_its_range():
    """Metrics of each kind, of 200 random data sets."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        number, labels = int(rng.integers(1, 12)), int(rng.integers(2, 5))
        gold = rng.integers(0, labels, number)
        predicted = np.where(rng.random(number) < rng.random(), gold, rng.integers(0, labels, number))
        measure = classification.measure(gold, predicted, labels)
        groups = rng.integers(0, 3, number).tolist() if rng.random() < 0.3 else None
        point = measure_all(measure, number)
        for name, (low, high) in fast_intervals(measure, number, groups).items():
            least = -100 if name in CORRELATIONS else 0
            assert least - 1e-9 <= low <= point[name] + 1e-9 and point[name] - 1e-9 <= high <= 100 + 1e-9
            assert high - low > 1, "so few examples are never certain"


def fast_intervals(measure, number, groups):
    """Return the intervals of fewer resamples."""
    before, module.RESAMPLES = module.RESAMPLES, 50
    try:
        return intervals(measure, number, groups=groups)
    finally:
        module.RESAMPLES = before


def test_dependent_examples_make_intervals_wider():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    right = np.repeat(rng.random(40) < 0.7, 10)
    measure = classification.measure(np.zeros(400, np.int64), (~right).astype(np.int64), 2)
    alone, together = (intervals(measure, 400, groups=given)["accuracy"] for given in (None, groups.tolist()))
    assert together == pytest.approx([100 * end for end in wilson(right.mean(), 40)], abs=1.5)
    assert together[1] - together[0] > 2.5 * (alone[1] - alone[0])


@pytest.mark.parametrize("number", [2, 3, 8, 200])
def test_metrics_without_a_range_have_students_intervals_and_test(number):
    """Those of means are known in closed form, for single models and, paired, for differences."""
    rng = np.random.default_rng(number)
    first, second = rng.exponential(2, number), rng.exponential(2.4, number)
    measures = [lambda chosen, errors=errors: {"error": float(errors[chosen].mean())} for errors in (first, second)]
    expected = stats.t.interval(0.95, number - 1, first.mean(), stats.sem(first))
    assert intervals(measures[0], number)["error"] == pytest.approx(expected, abs=0.05 * np.ptp(expected))
    compared = differences(*measures, number)["error"]
    test = stats.ttest_rel(first, second)
    expected = test.confidence_interval()
    assert compared["interval"] == pytest.approx(tuple(expected), abs=0.05 * np.ptp(expected))
    assert compared["p"] == pytest.approx(test.pvalue, rel=0.2, abs=0.01)


def test_a_metric_of_one_example_or_without_a_difference_is_not_significant():
    measure = lambda chosen: {"error": 3.0}  # noqa: E731
    assert intervals(measure, 1) == {"error": [3.0, 3.0]}
    assert differences(measure, measure, 5) == {"error": {"difference": 0.0, "interval": [0.0, 0.0], "p": 1.0}}


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 19, 99])
def test_students_quantile_and_tail_are_those_of_scipy(degrees):
    for level in np.geomspace(1e-6, 0.99, 60):
        assert student_quantile(level, degrees) == pytest.approx(stats.t.isf(level / 2, degrees), rel=1e-5)
        assert student_quantile(level, 10_000 * degrees) == pytest.approx(stats.norm.isf(level / 2), rel=1e-2)
        assert student_tail(stats.t.isf(level / 2, degrees), degrees) == pytest.approx(level, rel=1e-3)


def test_hotpotqa_has_shares():
    assert set(question_answering.NAMES) <= SHARES


def test_the_interval_of_a_mean_of_shares_has_its_coverage():
    """Groups are fixed, so that differences between them do not widen it."""
    rng = np.random.default_rng(0)
    shares, sizes = rng.random(12), rng.integers(10, 80, 12)
    inside = 0
    for _ in range(400):
        groups = [(rng.random(size) < share).astype(float) for share, size in zip(shares, sizes, strict=True)]
        mean, low, high = mean_share(groups)
        assert mean == pytest.approx(np.mean([group.mean() for group in groups]))
        inside += low <= shares.mean() <= high
    assert 0.92 <= inside / 400 <= 0.98


def test_the_interval_of_one_group_is_that_of_wilson_and_never_a_point():
    values = np.repeat([0.0, 1.0], [10, 31])
    assert mean_share([values]) == pytest.approx((31 / 41, *wilson(31 / 41, 40)))
    assert mean_share([np.ones(20)]) == (1, *wilson(1, 20))
    half, low, high = mean_share([np.full(20, 0.5)])
    assert low < half == 0.5 < high
