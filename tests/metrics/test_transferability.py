"""Transferability scores beside naive computations: dense matrices, scipy's density, scikit-learn's shrinkage."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf

from unmask.metrics import transferability
from unmask.metrics.transferability import h_score, log_evidence, shrunk_covariance

CASES = range(60)


def generate(case):
    """Return features of 6 to 60 examples, fewer or more than their width, some dependent, with 2 to 4 classes."""
    rng = np.random.default_rng(case)
    number, width, classes = int(rng.integers(6, 60)), int(rng.integers(2, 30)), int(rng.integers(2, 5))
    labels = np.append(np.arange(classes), rng.integers(0, classes, number - classes))
    x = rng.normal(size=(classes, width))[labels] * rng.random() * 3 + rng.normal(size=(number, width))
    x *= 10.0 ** rng.uniform(-2, 2)
    if case % 4 == 0:
        x[:, -1] = x[:, 0]  # not of full rank
    if case % 5 == 0:
        x += 3
    return x, labels


def dense(x, y):
    """Return the log evidence of y with dense matrices: the fixed point of MacKay, and the density of y."""
    number, width = x.shape
    alpha = beta = 1.0
    for _ in range(transferability.STEPS):
        posterior = np.linalg.inv(alpha * np.eye(width) + beta * x.T @ x)
        mean = beta * posterior @ x.T @ y
        gamma = width - alpha * np.trace(posterior)
        before = alpha / beta
        alpha = gamma / (mean @ mean + transferability.TINY)
        beta = (number - gamma) / (((y - x @ mean) ** 2).sum() + transferability.TINY)
        if abs(alpha / beta - before) <= transferability.TOLERANCE * before:
            break
    covariance = np.eye(number) / beta + x @ x.T / alpha
    return multivariate_normal.logpdf(y, np.zeros(number), covariance) / number, alpha, beta


@pytest.mark.parametrize("case", CASES)
def test_log_evidence_is_that_of_dense_matrices(case):
    x, labels = generate(case)
    targets = np.eye(labels.max() + 1)[labels]
    expected = np.mean([dense(x, column)[0] for column in targets.T])
    assert log_evidence(x, targets) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    numbers = np.random.default_rng(case).normal(size=(len(x), 1)) + x[:, :1]
    assert log_evidence(x, numbers) == pytest.approx(dense(x, numbers[:, 0])[0], rel=1e-6, abs=1e-6)


def published(x, y):
    """Return what the formula in the authors' code gives with its eigenvalues, of features of full rank."""
    number, width = x.shape
    _, alpha, beta = dense(x, y)
    mean = beta * np.linalg.solve(alpha * np.eye(width) + beta * x.T @ x, x.T @ y)
    evidence = width / 2 * np.log(alpha) + number / 2 * np.log(beta)
    evidence -= 0.5 * np.linalg.slogdet(alpha * np.eye(width) + beta * x.T @ x)[1]
    evidence -= beta / 2 * ((y - x @ mean) ** 2).sum() + alpha / 2 * mean @ mean
    return (evidence - number / 2 * np.log(2 * np.pi)) / number


@pytest.mark.parametrize("case", CASES)
def test_log_evidence_is_the_formula_of_the_paper(case):
    x, labels = generate(case)
    targets = np.eye(labels.max() + 1)[labels]
    assert log_evidence(x, targets) == pytest.approx(np.mean([published(x, y) for y in targets.T]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_shrinkage_is_that_of_scikit_learn(case):
    x, labels = generate(case)
    theirs = LedoitWolf().fit(x)
    covariance, shrinkage = shrunk_covariance(x - x.mean(0))
    assert shrinkage == pytest.approx(theirs.shrinkage_, abs=1e-9)
    np.testing.assert_allclose(covariance, theirs.covariance_, rtol=1e-7, atol=1e-9 * np.abs(covariance).max())
    means = np.stack([x[labels == label].mean(0) for label in labels])
    expected = np.trace(np.linalg.pinv(theirs.covariance_) @ np.cov(means, rowvar=False)) * (1 - theirs.shrinkage_)
    assert h_score(x, labels) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_better_features_have_higher_scores():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    centers, noise = rng.normal(size=(3, 16)), rng.normal(size=(300, 16))
    features = [share * centers[labels] + noise for share in (0, 0.3, 0.6, 1, 2)]
    for score in (h_score, lambda x, y: log_evidence(x, np.eye(3)[y])):
        scores = [score(x, labels) for x in features]
        assert scores == sorted(scores)
        assert scores[0] == pytest.approx(score(5 * features[0], labels), rel=5e-3), "the scale does not matter"


def test_bad_input_is_refused():
    x, labels = generate(1)
    with pytest.raises(ValueError, match="of 1 classes"):
        h_score(x, np.zeros(len(x)))
    with pytest.raises(ValueError, match="there must be two classes, and more examples"):
        h_score(x, np.arange(len(x)))
    with pytest.raises(ValueError, match="all features are equal"):
        h_score(np.ones_like(x), labels)
    for value in (np.nan, np.inf):
        damaged = np.where(np.arange(x.shape[1]) == 1, value, x)
        for score in (h_score, lambda x, y: log_evidence(x, np.eye(5)[y])):
            with pytest.raises(ValueError, match="finite"):
                score(damaged, labels)
    with pytest.raises(ValueError, match="one example or more"):
        log_evidence(x[:0], labels[:0, None])
