"""Out-of-fold probabilities are those of scikit-learn; vectors are those that the model gives elsewhere."""

import numpy as np
import pytest
import torch

from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words
from unmask.inference.predictor import Predictor
from unmask.tasks.rows import as_rows
from unmask.workflows.auditing import out_of_fold
from unmask.workflows.auditing.out_of_fold import (
    judge_classes,
    judge_sets,
    neighbor_shares,
    text_vectors,
    with_neighbors,
    word_vectors,
)

SKLEARN = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")


def data(seed):
    """Return vectors, labels and folds."""
    rng = np.random.default_rng(seed)
    classes, number = int(rng.integers(3, 5)), int(rng.integers(60, 120))
    labels = np.arange(number) % classes
    features = rng.normal(size=(number, 6)) * rng.uniform(0.1, 9, 6) + rng.normal(size=(classes, 6))[labels]
    return torch.from_numpy(features), labels, rng.permutation(number) % 4


@pytest.mark.seeds(50)
def test_probabilities(seed, monkeypatch):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    monkeypatch.setattr(out_of_fold, "STRENGTHS", (4.0,))
    features, labels, folds = data(seed)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.25, tol=1e-8, max_iter=2000))
    split = SKLEARN.PredefinedSplit(folds)
    expected = SKLEARN.cross_val_predict(probe, features.numpy(), labels, cv=split, method="predict_proba")
    probabilities = out_of_fold.out_of_fold(features, torch.from_numpy(labels), folds, labels.max() + 1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-2)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("block", [7, 1000])
def test_neighbors_are_those_of_scikit_learn(seed, block, monkeypatch):
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import normalize

    monkeypatch.setattr(out_of_fold, "BLOCK", block)
    features, labels, folds = data(seed)
    targets, classes = torch.from_numpy(labels), labels.max() + 1
    expected = np.empty((len(labels), classes))
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        center = features[inside].numpy().mean(0)
        vote = KNeighborsClassifier(out_of_fold.NEIGHBORS, weights=lambda apart: np.exp((1 - apart**2 / 2) / 0.2))
        vote.fit(normalize(features[inside].numpy() - center), labels[inside])
        expected[outside] = vote.predict_proba(normalize(features[outside].numpy() - center))
    np.testing.assert_allclose(neighbor_shares(features, targets, folds, classes), expected, atol=1e-5)


def test_neighbors_count_where_they_agree_with_clearly_more_labels():
    rng, folds = np.random.default_rng(0), np.arange(200) % 4
    signs = rng.choice([-1, 1], (200, 2))
    places = torch.from_numpy(signs * 3 + rng.normal(size=(200, 2)))
    across, beside = (torch.from_numpy(which.astype(int)) for which in (signs.prod(1) > 0, signs[:, 0] > 0))
    for targets, more in ((across, True), (beside, False)):  # which no plane tells apart, and which one does
        alone, chosen = (function(places, targets, folds, 2) for function in (out_of_fold.out_of_fold, with_neighbors))
        assert ((chosen.argmax(1) == targets.numpy()).mean() > 0.9) and (chosen != alone).any() == more
        np.testing.assert_allclose(chosen.sum(1), 1)


def test_fewer_examples_than_neighbors():
    features, folds = torch.eye(4)[[0, 1, 0, 1]], np.array([0, 0, 1, 1])
    shares = neighbor_shares(features, torch.tensor([0, 1, 0, 1]), folds, 2)
    assert shares.argmax(1).tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(shares.sum(1), 1)


def test_the_strength_with_the_smallest_loss_is_chosen(monkeypatch):
    features, labels, folds = data(0)
    targets = torch.from_numpy(labels)
    chosen = out_of_fold.out_of_fold(features, targets, folds, labels.max() + 1)
    first = folds == 0

    def loss(probabilities):
        return -np.log(probabilities[first, labels[first]]).mean()

    losses = []
    for strength in out_of_fold.STRENGTHS:
        monkeypatch.setattr(out_of_fold, "STRENGTHS", (strength,))
        losses.append(loss(out_of_fold.out_of_fold(features, targets, folds, labels.max() + 1)))
    assert loss(chosen) == pytest.approx(min(losses), abs=1e-5)


def test_the_only_example_of_a_class_is_not_judged():
    features, labels, folds = data(1)
    labels[7] = 9
    verdicts = judge_classes(features, labels, folds, with_neighbors)
    assert np.flatnonzero(np.isnan(verdicts.probability)).tolist() == [7]
    assert verdicts.suggested[7] == 9
    assert not verdicts.wrong[7]
    assert (verdicts.suggested != 9).sum() == len(labels) - 1


def test_of_a_single_class_nothing_is_judged():
    features, _, folds = data(2)
    assert np.isnan(judge_classes(features, np.zeros(len(folds), int), folds, with_neighbors).probability).all()


def test_a_label_of_one_text_or_of_all_but_one_is_not_judged():
    features, labels, folds = data(3)
    targets = np.stack([labels == 0, np.arange(len(labels)) == 5, np.arange(len(labels)) != 5], 1)
    first, *others = judge_sets(features, targets, folds)
    assert not np.isnan(first.probability).any()
    assert all(np.isnan(verdicts.probability).all() and not verdicts.wrong.any() for verdicts in others)


def test_vectors_of_texts_and_of_words(backend):
    texts = ["the dog sees the cat", "near the sea"]
    predictor = Predictor(backend.model)
    expected = predictor.embed(texts, pooling="mean", normalize=False)
    np.testing.assert_allclose(text_vectors(backend, as_rows(texts), []), expected, atol=1e-5)
    sentences = [TaggedSentence(*join_words(text.split()), ("O",) * len(text.split())) for text in texts]
    vectors, at = word_vectors(backend, sentences, ("O", "B-X"), [backend.model.encoder.num_layers]), 0
    for text in texts:
        features = predictor.features(text)
        for word in range(len(text.split())):
            first = features.word_ids.tolist().index(word)
            np.testing.assert_allclose(vectors[at], features.values[first, 0], atol=1e-5)
            at += 1
    assert at == len(vectors)
