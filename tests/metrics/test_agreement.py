"""Agreement of annotators beside scikit-learn, Krippendorff's published example and the definition over pairs."""

import random
from itertools import permutations

import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score

from unmask.metrics.label_quality import (
    agreement,
    agreement_by_label,
    cohen_kappa,
    describe_agreement,
    krippendorff_alpha,
    mean_agreement,
    percent_agreement,
)

OBSERVERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
"""Krippendorff 2011, section C: 4 observers, 12 units, missing data; alpha of nominal data is 0.743."""


def test_alpha_is_that_of_the_published_example():
    units = [[vote.replace(".", "") for vote in unit] for unit in zip(*map(str.split, OBSERVERS), strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)
    assert "cohen_kappa" not in agreement(units)


def test_two_annotators_are_measured_as_by_scikit_learn():
    rng = random.Random(0)
    for _ in range(50):
        units = [[rng.choice("abc"), rng.choice("abc")] for _ in range(rng.randrange(5, 40))]
        units += [["a", "b"], ["b", "a"]]
        first, second = zip(*units, strict=True)
        missing = [["a", ""], ["", "b"], ["", ""]]
        assert cohen_kappa(units + missing) == pytest.approx(cohen_kappa_score(first, second))
        assert percent_agreement(units + missing) == pytest.approx(100 * accuracy_score(first, second))
        assert agreement(units)["cohen_kappa"] == cohen_kappa(units)


def test_alpha_is_that_of_its_definition_over_pairs_of_votes():
    rng = random.Random(1)
    for _ in range(50):
        units = [rng.choices(["a", "b", "c", ""], k=5) for _ in range(12)] + [list("ab   ")]
        units = [[vote.strip() for vote in unit] for unit in units]
        coincidences = {}
        for unit in units:
            votes = [vote for vote in unit if vote]
            for pair in permutations(votes, 2):
                coincidences[pair] = coincidences.get(pair, 0) + 1 / (len(votes) - 1)
        totals = {label: sum(value for pair, value in coincidences.items() if pair[0] == label) for label in "abc"}
        number = sum(totals.values())
        agreed = sum(coincidences.get((label, label), 0) for label in "abc")
        chance = sum(total * (total - 1) for total in totals.values())
        expected = ((number - 1) * agreed - chance) / (number * (number - 1) - chance)
        assert krippendorff_alpha(units) == pytest.approx(expected)


def test_sets_of_labels_are_votes_on_each_label():
    rng = random.Random(2)
    for _ in range(50):
        votes = [[rng.sample("abc", rng.randrange(4)) for _ in range(2)] for _ in range(30)]
        missing = [[None, ["a"]], [[], None], [None, None]]
        by_label = agreement_by_label(votes + missing, "abc")
        for label in "abc":
            first, second = ([label in unit[annotator] for unit in votes] for annotator in (0, 1))
            assert by_label[label]["percent_agreement"] == pytest.approx(100 * accuracy_score(first, second))
            assert by_label[label]["cohen_kappa"] == pytest.approx(cohen_kappa_score(first, second))
            # Krippendorff 2011, section A: two annotators, binary data
            number, ones = 2 * len(votes), sum(first) + sum(second)
            disagreed = 2 * sum(one != two for one, two in zip(first, second, strict=True))
            alpha = 1 - (number - 1) * (disagreed / 2) / (ones * (number - ones))
            assert by_label[label]["krippendorff_alpha"] == pytest.approx(alpha)
        means = mean_agreement(by_label)
        assert means.keys() == {"percent_agreement", "krippendorff_alpha", "cohen_kappa"}
        for name, value in means.items():
            assert value == pytest.approx(sum(values[name] for values in by_label.values()) / 3)


def test_labels_for_which_a_value_is_undefined_do_not_count_in_its_mean():
    by_label = agreement_by_label([[["a"], ["a", "b"]], [["a"], ["a"]]], "ab")
    assert by_label["a"] == {"percent_agreement": 100}
    assert by_label["b"] == {"percent_agreement": 50, "krippendorff_alpha": 0, "cohen_kappa": 0}
    assert mean_agreement(by_label) == {"percent_agreement": 75, "krippendorff_alpha": 0, "cohen_kappa": 0}


def test_what_is_undefined_is_omitted():
    assert agreement([["a", ""], ["", "b"]]) == {}
    assert agreement([["a", "a"], ["a", "a"]]) == {"percent_agreement": 100}
    assert describe_agreement({}, 1) == "agreement of annotators on 1 example: undefined"
    assert agreement([["a", "a"], ["b", "b"]]) == {
        "percent_agreement": 100,
        "krippendorff_alpha": 1,
        "cohen_kappa": 1,
    }
