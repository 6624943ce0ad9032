"""The linear probe is the logistic regression of scikit-learn."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from unmask.workflows.finetuning.logistic_regression import fit_probes

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
    (probe,) = fit_probes(torch.from_numpy(features), torch.from_numpy(labels), classes, [l2], biased=biased)
    assert biased or not probe.bias.any()
    probabilities = probe.logits(torch.from_numpy(features)).softmax(1).numpy()
    # of two classes scikit-learn has one vector, whose norm is larger than that of two opposite ones by sqrt(2)
    strength = 1 / l2 if classes > 2 else 2 / l2
    oracle = LINEAR.LogisticRegression(C=strength, tol=1e-8, max_iter=5000, fit_intercept=biased).fit(features, labels)
    np.testing.assert_allclose(probabilities, oracle.predict_proba(features), atol=1e-4)


@pytest.mark.seeds(50)
def test_a_sigmoid_for_each_class(seed):
    features, labels, classes = vectors(seed)
    targets = np.random.default_rng(seed).random((len(labels), classes)) < 0.3
    targets[:2] = [[False], [True]]
    targets |= np.eye(classes, dtype=bool)[labels]
    targets[-1] = False
    (probe,) = fit_probes(torch.from_numpy(features), torch.from_numpy(targets), classes, [2.0])
    probabilities = probe.logits(torch.from_numpy(features)).sigmoid().numpy()
    for number in range(classes):
        oracle = LINEAR.LogisticRegression(C=0.5, tol=1e-8, max_iter=5000).fit(features, targets[:, number])
        np.testing.assert_allclose(probabilities[:, number], oracle.predict_proba(features)[:, 1], atol=1e-4)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("exclusive", [True, False])
def test_weights_of_examples(seed, exclusive):
    features, labels, _ = vectors(seed)
    targets, rng = np.eye(2)[labels % 2], np.random.default_rng(seed)
    weights = rng.random(len(labels)) * rng.integers(0, 2, len(labels)) + np.where(np.arange(len(labels)) < 2, 1, 0)
    tensors = [torch.from_numpy(values) for values in (features, targets, weights)]
    (probe,) = fit_probes(*tensors[:2], 2, [2.0], weights=tensors[2], exclusive=exclusive)
    oracle = LINEAR.LogisticRegression(C=1.0 if exclusive else 0.5, tol=1e-8, max_iter=5000)
    oracle.fit(features, labels % 2, weights)
    logits = probe.logits(tensors[0])
    probabilities = logits.softmax(1) if exclusive else logits.sigmoid()
    np.testing.assert_allclose(probabilities[:, 1], oracle.predict_proba(features)[:, 1], atol=1e-4)


def test_a_class_without_examples_is_improbable():
    features, labels, classes = vectors(0)
    (probe,) = fit_probes(torch.from_numpy(features), torch.from_numpy(labels), classes + 1, [1.0])
    assert probe.logits(torch.from_numpy(features)).softmax(1)[:, -1].max() < 1e-12
    (without,) = fit_probes(torch.from_numpy(features), torch.from_numpy(labels), classes, [1.0])
    torch.testing.assert_close(probe.weights[:-1], without.weights)


def test_a_label_that_no_or_every_example_has_is_as_frequent_as_one_of_two_more_examples():
    features, labels, _ = vectors(0)
    targets = np.stack([labels == 0, labels < 0, labels >= 0], 1)
    (probe,) = fit_probes(torch.from_numpy(features), torch.from_numpy(targets), 3, [1.0])
    probabilities = probe.logits(torch.from_numpy(features)).sigmoid()
    rare = torch.full((len(labels),), 1 / (len(labels) + 2), dtype=torch.float64)
    torch.testing.assert_close(probabilities[:, 1:], torch.stack([rare, 1 - rare], 1))


@pytest.mark.seeds(20)
@pytest.mark.parametrize("biased", [True, False])
def test_weights_for_classes_and_fewer_examples_than_features(seed, biased):
    """Against Newton's method on all weights at once, from the gradient and the Hessian that torch derives."""
    rng = np.random.default_rng(seed)
    examples, width, classes = int(rng.integers(2, 15)), int(rng.integers(2, 12)), int(rng.integers(2, 4))
    features = torch.from_numpy(rng.normal(3, 10.0 ** rng.uniform(-2, 1), (examples, width)))
    targets = torch.from_numpy(rng.random((examples, classes)) * rng.integers(0, 2, (examples, 1))) + 1e-3
    strengths = (0.3, 30.0, 3.0)
    ends = (classes * width, classes * (width + biased))

    def loss(flat, l2):
        bias = flat[ends[0] :] if biased else torch.zeros(classes, dtype=flat.dtype)
        logits = features @ flat[: ends[0]].reshape(classes, width).T + bias
        return -(targets * logits.log_softmax(1)).sum() + l2 / 2 * flat[: ends[0]].square().sum()

    probes = fit_probes(features, targets, classes, strengths, exclusive=True, biased=biased)
    for l2, probe in zip(strengths, probes, strict=True):
        flat = torch.zeros(ends[1], dtype=torch.float64)
        for _ in range(100):
            gradient = jacobian(partial(loss, l2=l2), flat)
            curvature = hessian(partial(loss, l2=l2), flat, vectorize=True)
            step = torch.linalg.pinv(curvature, hermitian=True) @ gradient
            size = next((size for size in 0.5 ** np.arange(30) if loss(flat - size * step, l2) < loss(flat, l2)), 0.0)
            flat = flat - size * step
            if size == 0 or gradient.norm() < 1e-9:
                break
        torch.testing.assert_close(probe.weights.reshape(-1), flat[: ends[0]], atol=1e-4, rtol=1e-3)
        own = torch.cat([probe.weights.reshape(-1), probe.bias if biased else probe.bias[:0]])
        assert loss(own, l2) <= loss(flat, l2) + 1e-6
