"""Labels that are probably wrong are those that cleanlab finds, for labels of texts, several labels, and words."""

import warnings

import numpy as np
import pytest

from unmask.metrics.label_quality import confident_joint, noise_rate, probably_wrong, self_confidence

COUNT = pytest.importorskip("cleanlab.count", reason="cleanlab is not installed")
FILTER = pytest.importorskip("cleanlab.filter")
SEVERAL = pytest.importorskip("cleanlab.multilabel_classification.filter")
WORDS = pytest.importorskip("cleanlab.token_classification.filter")
RANK = pytest.importorskip("cleanlab.rank")


def noisy(seed):
    """Return labels, of which some are wrong, and probabilities of a classifier that is right more or less often."""
    rng = np.random.default_rng(seed)
    classes, examples = int(rng.integers(2, 9)), int(rng.integers(20, 400))
    true = np.append(np.arange(classes), rng.choice(classes, examples, p=rng.dirichlet(np.full(classes, 2.0))))
    logits = rng.normal(size=(len(true), classes)) * rng.uniform(0.3, 2)
    logits[np.arange(len(true)), true] += rng.uniform(0, 4)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    moved = rng.random(len(true)) < rng.uniform(0, 0.4)
    return np.where(moved, rng.integers(0, classes, len(true)), true), probabilities


@pytest.fixture(autouse=True)
def _few_examples():
    """Ignore that cleanlab warns of classes with a single example."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "May not flag all label issues")
        yield


@pytest.mark.seeds(60)
def test_labels_of_texts(seed):
    labels, probabilities = noisy(seed)
    wrong, joint = probably_wrong(labels, probabilities), confident_joint(labels, probabilities)
    expected = FILTER.find_label_issues(labels, probabilities, confident_joint=joint, n_jobs=1)
    np.testing.assert_array_equal(wrong, expected)
    scores = RANK.get_label_quality_scores(labels, probabilities, method="self_confidence")
    np.testing.assert_array_equal(self_confidence(labels, probabilities), scores)
    assert 0 <= noise_rate(joint) < 1


@pytest.mark.seeds(60)
def test_the_confident_joint(seed):
    labels, probabilities = noisy(seed)
    joint, counted = confident_joint(labels, probabilities), np.bincount(labels, minlength=probabilities.shape[1])
    confident = COUNT.compute_confident_joint(labels, probabilities, calibrate=False)
    exact = confident / confident.sum(1, keepdims=True) * counted[:, None]
    np.testing.assert_array_equal(joint.sum(1), counted)
    assert (np.abs(joint - exact) < 1).all()  # cleanlab may be off by 2 where several remainders are equal


@pytest.mark.seeds(50)
def test_several_labels_of_a_text(seed):
    rng = np.random.default_rng(seed)
    examples, classes = int(rng.integers(30, 200)), int(rng.integers(2, 6))
    true = rng.random((examples, classes)) < rng.uniform(0.1, 0.6, classes)
    true[:2] = [[False], [True]]
    labels = true ^ (rng.random(true.shape) < 0.15)
    logits = np.where(true, 1.0, -1.0) * rng.uniform(0, 3) + rng.normal(size=true.shape)
    probabilities = 1 / (1 + np.exp(-logits))
    lists = [np.flatnonzero(row).tolist() for row in labels]
    expected = SEVERAL.find_multilabel_issues_per_class(lists, probabilities, n_jobs=1)
    for number in range(classes):
        both = np.stack([1 - probabilities[:, number], probabilities[:, number]], 1)
        np.testing.assert_array_equal(probably_wrong(labels[:, number].astype(int), both), expected[:, number])


@pytest.mark.seeds(50)
def test_words_of_sentences(seed):
    labels, probabilities = noisy(1000 + seed)
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.choice(np.arange(1, len(labels)), min(8, len(labels) // 3), replace=False))
    parts = np.split(labels, ends), np.split(probabilities, ends)
    joint = confident_joint(labels, probabilities)
    lists = [part.tolist() for part in parts[0]]
    ranked = WORDS.find_label_issues(lists, list(parts[1]), confident_joint=joint, n_jobs=1)
    starts = np.append(0, ends)
    wrong = np.flatnonzero(probably_wrong(labels, probabilities))
    order = wrong[np.argsort(self_confidence(labels, probabilities)[wrong], kind="stable")]
    assert order.tolist() == [starts[sentence] + word for sentence, word in ranked]
