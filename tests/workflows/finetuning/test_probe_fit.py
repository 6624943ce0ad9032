"""The linear probe is the logistic regression of scikit-learn."""

import numpy as np
import pytest
import torch

from unmask.workflows.finetuning.probe import fit_probe

LINEAR = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")


def vectors(seed):
    """Return vectors, their classes, and the number of classes."""
    rng = np.random.default_rng(seed)
    classes, examples, width = int(rng.integers(2, 6)), int(rng.integers(30, 150)), int(rng.integers(3, 30))
    labels = np.append(np.arange(classes), rng.integers(0, classes, examples))
    return rng.normal(size=(len(labels), width)) + rng.normal(size=(classes, width))[labels], labels, classes


@pytest.mark.seeds(50)
@pytest.mark.parametrize("biased", [True, False])
def test_softmax(seed, biased):
    features, labels, classes = vectors(seed)
    l2 = 10.0 ** np.random.default_rng(seed).integers(-1, 3)
    probe = fit_probe(torch.from_numpy(features), torch.from_numpy(labels), classes, l2, biased=biased)
    assert biased or not probe.bias.any()
    probabilities = probe.logits(torch.from_numpy(features)).softmax(1).numpy()
    # of two classes scikit-learn has one vector, whose norm is larger than that of two opposite ones by sqrt(2)
    strength = 1 / l2 if classes > 2 else 2 / l2
    oracle = LINEAR.LogisticRegression(C=strength, tol=1e-8, max_iter=5000, fit_intercept=biased).fit(features, labels)
    np.testing.assert_allclose(probabilities, oracle.predict_proba(features), atol=1e-2)


@pytest.mark.seeds(50)
def test_a_sigmoid_for_each_class(seed):
    features, labels, classes = vectors(seed)
    targets = np.random.default_rng(seed).random((len(labels), classes)) < 0.3
    targets[:2] = [[False], [True]]
    targets |= np.eye(classes, dtype=bool)[labels]
    targets[-1] = False
    probe = fit_probe(torch.from_numpy(features), torch.from_numpy(targets), classes, 2.0)
    probabilities = probe.logits(torch.from_numpy(features)).sigmoid().numpy()
    for number in range(classes):
        oracle = LINEAR.LogisticRegression(C=0.5, tol=1e-8, max_iter=5000).fit(features, targets[:, number])
        np.testing.assert_allclose(probabilities[:, number], oracle.predict_proba(features)[:, 1], atol=1e-2)


def test_a_class_without_examples_is_improbable():
    features, labels, classes = vectors(0)
    probe = fit_probe(torch.from_numpy(features), torch.from_numpy(labels), classes + 1, 1.0)
    assert probe.logits(torch.from_numpy(features)).softmax(1)[:, -1].max() < 0.05
