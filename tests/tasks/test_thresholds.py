"""Thresholds of rare labels: the best F1 of scikit-learn over all thresholds, the logit adjustment, what is decided."""

import re

import msgspec
import numpy as np
import pytest
import torch
from scipy.special import expit, logit, softmax
from sklearn.metrics import f1_score

from unmask.data.labelled.labelled_file import Row
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.tuning import (
    EVIDENCE,
    POWERS,
    best_threshold,
    by_shares,
    describe_effect,
    exclusive_thresholds,
    expected_labels,
    label_thresholds,
)


def rows(counts):
    return [
        Row({"text": f"{label} {n}", "label": label}, "x", n) for label, count in counts.items() for n in range(count)
    ]


def drawn(seed, *, share=0.05, size=400):
    """Return whether examples have a label, and calibrated probabilities of it, (examples, 1) each."""
    rng = np.random.default_rng(seed)
    probabilities = expit(rng.normal(size=(size, 1)) * 1.5 + logit(share))
    return rng.random((size, 1)) < probabilities, probabilities


def soft_f1(degrees, predicted):
    """Return the F1 where each example has a label to a degree."""
    return 2 * degrees[predicted].sum() / (predicted.sum() + degrees.sum())


@pytest.mark.parametrize("seed", range(10))
def test_the_expected_f1_is_that_of_two_weighted_examples_for_each(seed):
    rng = np.random.default_rng(seed)
    degrees, predicted = rng.random(20), rng.random(20) < 0.4
    gold, weights = np.repeat([1, 0], 20), np.concatenate([degrees, 1 - degrees])
    assert soft_f1(degrees, predicted) == pytest.approx(f1_score(gold, np.tile(predicted, 2), sample_weight=weights))


@pytest.mark.seeds(50)
def test_no_threshold_of_a_label_has_a_better_expected_f1(seed):
    gold, probabilities = drawn(seed, size=60)
    count = gold.sum()
    expected = (count * gold + 30 * probabilities) / (count + 30)
    assert expected_labels(gold, probabilities) == pytest.approx(expected)
    (threshold,) = label_thresholds(gold, probabilities)
    tried = np.append(0, np.unique(probabilities))
    best = max(soft_f1(expected[:, 0], probabilities[:, 0] > value) for value in tried)
    assert soft_f1(expected[:, 0], probabilities[:, 0] > threshold) == pytest.approx(best)


@pytest.mark.seeds(50)
def test_the_power_of_many_labels_has_the_best_expected_macro_f1(seed):
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(3, 7))
    logits = rng.normal(size=(80, labels)) * 2 + np.linspace(0, -3, labels)
    probabilities = softmax(logits, 1)
    gold = np.eye(labels)[(probabilities.cumsum(1) < rng.random((80, 1))).sum(1).clip(max=labels - 1)]
    thresholds = exclusive_thresholds(gold, probabilities, None)
    expected, shares = expected_labels(gold, probabilities), probabilities.mean(0)

    def macro(predicted):
        return np.mean([soft_f1(expected[:, label], predicted == label) for label in range(labels)])

    adjusted = [(np.log(probabilities) - power * np.log(shares)).argmax(1) for power in POWERS]
    assert macro((probabilities / thresholds).argmax(1)) == pytest.approx(max(map(macro, adjusted)))
    assert thresholds.sum() == pytest.approx(1)


def test_few_examples_follow_the_probabilities_and_many_the_examples():
    gold, probabilities = drawn(0, size=20_000)
    (threshold,) = label_thresholds(np.zeros_like(gold), probabilities)
    predicted = probabilities > threshold
    f1 = 2 * (probabilities * predicted).sum() / (predicted.sum() + probabilities.sum())
    assert threshold == pytest.approx(f1 / 2, abs=0.01), "Lipton et al. 2014, theorem 1"
    sure = expit(2 * logit(probabilities))  # probabilities that are wrong: the examples correct them
    (learned,) = label_thresholds(gold, sure)
    assert gold.sum() > 20 * EVIDENCE
    assert learned == pytest.approx(best_threshold(gold, sure), abs=0.05)


@pytest.mark.seeds(50)
def test_fourth_roots_of_shares_are_a_logit_adjustment(seed):
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(2, 9))
    shares, probabilities = rng.dirichlet(np.ones(labels) / 2) + 1e-6, rng.dirichlet(np.ones(labels), 30)
    thresholds = by_shares(shares / shares.sum())
    adjusted = (np.log(probabilities) - 0.25 * np.log(shares)).argmax(1)
    assert (probabilities / thresholds).argmax(1).tolist() == adjusted.tolist()
    if labels == 2:
        assert thresholds[0] == pytest.approx(expit(0.25 * logit(shares[0] / shares.sum())))


@pytest.mark.parametrize(
    ("counts", "settings", "threshold"),
    [
        ({"ham": 990, "spam": 10}, {}, pytest.approx((0.7593, 0.2407), abs=1e-4)),
        ({"ham": 980, "spam": 20}, {}, None),
        ({"ham": 990, "spam": 10}, {"threshold": 0.5}, 0.5),
        ({"ham": 990, "spam": 10}, {"threshold": 0.2}, (0.8, 0.2)),
        ({"ham": 990, "spam": 10}, {"threshold": 0.2, "positive": "ham"}, (0.2, 0.8)),
        ({"ham": 990, "spam": 10}, {"weights": "balanced"}, None),
        ({"ham": 990, "spam": 10}, {"focal": 2.0}, None),
        ({"ham": 990, "spam": 10}, {"threshold": "tuned"}, "tuned"),
        ({"a": 900, "b": 90, "c": 10}, {}, pytest.approx((0.5300, 0.2980, 0.1721), abs=1e-4)),
        ({"a": 40, "b": 30, "c": 30}, {}, None),
    ],
)
def test_thresholds_are_settled_by_the_training_examples(counts, settings, threshold):
    examples, labels = rows(counts), tuple(counts)
    settled = Classification(**settings).settle(examples, labels)
    assert settled.threshold == threshold
    assert settled.settle(examples, labels) == settled
    assert msgspec.convert(msgspec.to_builtins(settled), Classification) == settled
    assert settled.tunes == (threshold == "tuned")
    assert settled.exclusive == (not isinstance(settled.threshold, tuple))
    assert bool(settled.remark(labels)) == isinstance(settled.threshold, tuple)


def test_unusable_thresholds_are_refused():
    for wrong in (0.0, 1.0, -0.5, float("nan"), (0.5, 0.0)):
        for kind in (Classification, MultiLabel):
            with pytest.raises(ValueError, match="a threshold must be above 0 and below 1"):
                kind(threshold=wrong)
    examples = rows({"a": 4, "b": 4, "c": 4})
    with pytest.raises(UserError, match=r"is for two labels, but there are 3; give one each for a, b, c"):
        Classification(threshold=0.2).settle(examples, ("a", "b", "c"))
    with pytest.raises(UserError, match="2 thresholds for 3 labels; give one each for a, b, c"):
        Classification(threshold=(0.2, 0.8)).settle(examples, ("a", "b", "c"))


def test_thresholds_change_decisions_and_no_probabilities(tokenizer):
    labels = ("ham", "spam")
    examples = [Row({"text": "the cat"}, "", 0) for _ in range(3)]
    logits = [np.array([[2.0, value]], np.float32) for value in (-2.0, 0.5, 3.0)]
    plain, lower = Classification(), Classification(threshold=(0.9, 0.1))
    without, predictions = (task.frame(tokenizer, examples, labels, gold=False).read(logits) for task in (plain, lower))
    assert [prediction.label for prediction in without] == ["ham", "ham", "spam"]
    assert [prediction.label for prediction in predictions] == ["ham", "spam", "spam"]
    assert [prediction.scores for prediction in predictions] == [prediction.scores for prediction in without]
    assert predictions[1].scores["spam"] == pytest.approx(expit(-1.5))
    for prediction, each in zip(predictions, logits, strict=True):
        (decision,) = lower.decisions(each, labels)
        assert decision.label == prediction.label
        odds = decision.value(torch.from_numpy(each)).item()
        assert expit(odds) == pytest.approx(prediction.scores[prediction.label])
    assert [scored.predicted for scored in lower.scored(predictions[1])] == [False, True]
    assert [scored.predicted for scored in plain.scored(without[1])] == [None, None]


def test_what_thresholds_cost_is_in_the_scores():
    examples = rows({"ham": 6, "spam": 2})
    probabilities = [0.05, 0.05, 0.05, 0.05, 0.05, 0.3, 0.3, 0.1]
    task = Classification(threshold=(0.8, 0.2), positive="spam")
    predictions = [
        Prediction(row.values["text"], "spam" if value > 0.2 else "ham", {"ham": 1 - value, "spam": value})
        for row, value in zip(examples, probabilities, strict=True)
    ]
    details = task.details(examples, predictions, ("ham", "spam"))
    assert details["without_thresholds"]["accuracy"] == 75 and details["without_thresholds"]["f1"] == 0
    assert details["thresholds"] == {
        "ham": {"threshold": 0.8, "f1_without": pytest.approx(600 / 7), "f1": pytest.approx(1000 / 12)},
        "spam": {"threshold": 0.2, "f1_without": 0, "f1": 50},
    }
    line = describe_effect(details["thresholds"])
    assert line == (
        "F1 without and with thresholds: spam 0.0 -> 50.0 (threshold 0.2), ham 85.7 -> 83.3 (threshold 0.8)"
    )
    many = {f"label {n}": {"threshold": 0.1, "f1_without": 1.0, "f1": 2.0} for n in range(13)}
    assert re.search(r"label 9 1\.0 -> 2\.0 \(threshold 0\.1\), and 3 other labels$", describe_effect(many))


def sets(gold, labels):
    return [
        Row({"text": "x"}, "x", 0, tuple(name for name, has in zip(labels, each, strict=True) if has)) for each in gold
    ]


def test_rare_ones_of_several_labels_have_their_own_threshold():
    rng = np.random.default_rng(0)
    labels = ("often", "rare", "sometimes")
    probabilities = expit(rng.normal(size=(3000, 3)) * 2 + [0, -7, -2])
    gold = rng.random((3000, 3)) < probabilities
    examples = sets(gold, labels)
    predictions = [Labels("x", (), dict(zip(labels, each, strict=True))) for each in probabilities.tolist()]
    common = best_threshold(gold, probabilities)
    tuned = MultiLabel().tune(examples, predictions)
    share = probabilities[:, 1].mean()
    assert share < 0.02
    assert tuned.threshold == pytest.approx((common, expit(0.25 * logit(share)), common))
    assert not tuned.tunes
    each = MultiLabel(threshold="tuned").tune(examples, predictions).threshold
    assert each == pytest.approx(tuple(label_thresholds(gold, probabilities)))
    frequent = [Labels("x", (), {"often": 0.6, "sometimes": 0.2}) for _ in examples]
    assert isinstance(MultiLabel().tune(sets(gold[:, [0, 2]], ("often", "sometimes")), frequent).threshold, float)


def test_each_of_several_labels_is_decided_by_its_threshold(tokenizer):
    labels = ("a", "b")
    examples = [Row({"text": "the cat"}, "", 0, ("b",))]
    task = MultiLabel(threshold=(0.5, 0.1))
    (prediction,) = task.frame(tokenizer, examples, labels, gold=True).read([np.array([[-0.5, -1.5]])])
    assert prediction.labels == ("b",)
    assert [decision.label for decision in task.decisions(np.array([[-0.5, -1.5]]), labels)] == ["b"]
    details = task.details(examples, [prediction], labels)
    assert details["without_thresholds"]["f1_micro"] == 0
    assert details["thresholds"]["b"] == {"threshold": 0.1, "f1_without": 0, "f1": 100}
