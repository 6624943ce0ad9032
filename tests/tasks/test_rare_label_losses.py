"""Weights of labels and the focal loss: scikit-learn's weights, the published formulas, in training only."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional
from transformers.loss.loss_for_object_detection import sigmoid_focal_loss

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.pooled_head import binary_focal_loss, focal_loss

from .conftest import read_task

LABELS = ("a", "b", "c")


def drawn(seed):
    """Return a generator, logits of (targets, labels), and an exponent."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(rng.integers(1, 20), rng.integers(2, 6))) * 4)
    return rng, logits, float(rng.choice([0.0, 0.5, 1.0, 2.0, 5.0]))


@pytest.mark.seeds(50)
def test_the_focal_loss_of_a_softmax_is_the_published_formula(seed):
    rng, logits, gamma = drawn(seed)
    gold = rng.integers(0, logits.shape[1], len(logits))
    weights = rng.random(logits.shape[1]) + 0.1
    log_p = log_softmax(logits.numpy(), 1)[range(len(gold)), gold]
    expected = -(weights[gold] * (1 - np.exp(log_p)) ** gamma * log_p).sum()
    loss = focal_loss(logits, torch.from_numpy(gold), gamma, torch.from_numpy(weights))
    assert loss.item() == pytest.approx(expected)
    one_hot = functional.one_hot(torch.from_numpy(gold), logits.shape[1]).double()
    torch.testing.assert_close(focal_loss(logits, one_hot, gamma, torch.from_numpy(weights)), loss)


@pytest.mark.seeds(50)
def test_an_exponent_of_zero_is_the_cross_entropy(seed):
    rng, logits, _ = drawn(seed)
    gold = torch.from_numpy(rng.integers(0, logits.shape[1], len(logits)))
    soft = torch.from_numpy(rng.dirichlet(np.ones(logits.shape[1]), len(logits)))
    weights, smoothing = torch.from_numpy(rng.random(logits.shape[1]) + 0.1), float(rng.choice([0, 0.2]))
    for targets in (gold, soft):
        expected = functional.cross_entropy(logits, targets, weights, reduction="sum", label_smoothing=smoothing)
        torch.testing.assert_close(focal_loss(logits, targets, 0.0, weights, smoothing), expected)
    several = torch.from_numpy(rng.random(logits.shape))
    expected = functional.binary_cross_entropy_with_logits(logits, several, pos_weight=weights, reduction="sum")
    torch.testing.assert_close(binary_focal_loss(logits, several, 0.0, weights).sum(), expected)


@pytest.mark.seeds(50)
def test_the_focal_loss_of_sigmoids_is_that_of_transformers(seed):
    rng, logits, gamma = drawn(seed)
    gold = torch.from_numpy((rng.random(logits.shape) < 0.3).astype(float))
    expected = sigmoid_focal_loss(logits, gold, num_boxes=1, alpha=-1, gamma=gamma) * logits.shape[1]
    torch.testing.assert_close(binary_focal_loss(logits, gold, gamma).sum(), expected)
    two = torch.stack([torch.zeros_like(logits[:, 0]), logits[:, 0]], 1)  # a softmax of two is a sigmoid
    torch.testing.assert_close(
        focal_loss(two, gold[:, 0].long(), gamma), binary_focal_loss(logits[:, :1], gold[:, :1], gamma).sum()
    )


@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_the_gradient_of_a_certain_prediction_is_finite(gamma):
    logits = torch.tensor([[300.0, -300.0], [-300.0, 300.0]], requires_grad=True)
    focal_loss(logits, torch.tensor([0, 0]), gamma).backward()
    assert logits.grad.isfinite().all() and logits.grad[1].abs().sum() > 1 > logits.grad[0].abs().sum()
    logits.grad = None
    binary_focal_loss(logits, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), gamma).sum().backward()
    assert logits.grad.isfinite().all() and logits.grad[1].abs().sum() > 1 > logits.grad[0].abs().sum()


def rows(names):
    return [Row({"text": f"the cat {index}", "label": name}, "rows.tsv", index) for index, name in enumerate(names)]


def sets(names):
    return [Row({"text": f"the cat {index}"}, "rows.tsv", index, tuple(of)) for index, of in enumerate(names)]


@pytest.mark.seeds(50)
def test_balanced_weights_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    names = [*LABELS, *rng.choice(LABELS, int(rng.integers(0, 40)), p=[0.9, 0.08, 0.02]).tolist()]
    weights = Classification(weights="balanced").settle(rows(names), LABELS).weights
    assert weights == pytest.approx(compute_class_weight("balanced", classes=np.array(LABELS), y=names))
    has = rng.random((40, 3)) < [0.5, 0.1, 0.05]
    has[0], has[1] = True, False
    examples = sets([[name for name, yes in zip(LABELS, of, strict=True) if yes] for of in has])
    weights = MultiLabel(weights="balanced").settle(examples, LABELS).weights
    of_each = [compute_class_weight("balanced", classes=np.array([False, True]), y=column) for column in has.T]
    assert weights == pytest.approx([positive / negative for negative, positive in of_each])


def test_a_label_without_positive_or_negative_examples_is_not_weighted():
    examples = sets(["ab", "a", "a", "ab"])
    assert MultiLabel(weights="balanced").settle(examples, LABELS).weights == (1.0, 1.0, 1.0)


def learner_of(task):
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=0.5)
    return Learner(shape.build(200), {task.part: task.build(shape.head, LABELS)})


@pytest.mark.parametrize(
    ("task", "examples"),
    [
        (Classification(focal=2.0, weights=(1.0, 2.0, 5.0)), rows("acbca")),
        (MultiLabel(focal=2.0, weights=(1.0, 2.0, 5.0)), sets(["a", "", "bc", "c"])),
    ],
)
def test_the_focal_loss_is_one_of_training_only(tokenizer, task, examples):
    learner = learner_of(task)
    samples = task.frame(tokenizer, examples, LABELS, gold=True).samples
    batch = collate([learner.prepare(it) for it in samples])
    logits = learner.parts[task.part].predict(learner.encoder, learner.encoder(batch.tokens), batch).float()
    weights, gold = torch.tensor(task.weights), batch.labels[task.part]
    if task.part == "multi_label":
        gold = gold.view_as(logits)
        expected = binary_focal_loss(logits, gold, 2.0, weights).sum()
        plain = functional.binary_cross_entropy_with_logits(logits, gold, pos_weight=weights, reduction="sum")
    else:
        expected = focal_loss(logits, gold, 2.0, weights)
        plain = functional.cross_entropy(logits, gold, weights, reduction="sum")
    torch.testing.assert_close(learner(batch)[task.part].sum, expected)
    torch.testing.assert_close(learner.eval()(batch)[task.part].sum, plain)


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
def test_they_are_settings_of_a_recipe(kind):
    read = partial(read_task, kind)
    chosen = read("task.focal=2", "task.weights=balanced")
    assert (chosen.focal, chosen.weights) == (2.0, "balanced")
    assert (read().focal, read("task.weights=[1, 2.5]").weights) == (0.0, (1.0, 2.5))
    for wrong in ("focal=-1", "focal=inf", "focal=nan", "weights=[1, 0]", f"weights=[1, {math.inf}]"):
        with pytest.raises(UserError, match="must"):
            read(f"task.{wrong}")


@pytest.mark.parametrize("task", [Classification(weights=(1.0, 2.0)), MultiLabel(weights=(1.0, 2.0))])
def test_as_many_weights_as_labels_are_needed(task):
    with pytest.raises(UserError, match="2 weights for 3 labels; give one each for a, b, c"):
        learner_of(task)
