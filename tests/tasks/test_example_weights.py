"""Weights of examples in the loss: those of numpy, and of an example that is repeated."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.labelled.table import as_sources
from unmask.families.bert import BertSettings
from unmask.model.model import build_encoder
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.pooled_head import Regularization
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression

TEXTS, WEIGHTS = ["the dog", "the cat near the sea", "a garden", "poem"], [0.5, 0, 3, 2.5]
COLUMNS = {"weight": "importance"}
GOLD = {"classification": ["b", "a", "c", "a"], "regression": [1.0, -2.0, 0.5, 4.0]}
LABELS = {"classification": ("a", "b", "c"), "regression": ()}
TASKS = {
    "plain": Classification(length=12),
    "smoothed": Classification(length=12, regularization=Regularization(label_smoothing=0.2)),
    "focal": Classification(length=12, focal=2.0, regularization=Regularization(label_smoothing=0.2)),
    "weights of labels": Classification(length=12, weights=(1.0, 2.0, 0.5)),
    "regression": Regression(length=12, mean=0.0, deviation=1.0),
}


def loss(task, tokenizer, rows):
    """Return the loss of rows in training, without dropout, and its gradient."""
    torch.manual_seed(0)
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=16, dropout=0.0, init_std=0.5)
    encoder, labels = build_encoder(shape, tokenizer.size), LABELS[task.part]
    learner = Learner(encoder, {task.part: task.build(encoder.head, labels)}).train()
    samples = [learner.prepare(sample) for sample in task.frame(tokenizer, rows, labels, gold=True).samples]
    total = learner(collate(samples))[task.part].sum
    total.backward()
    return total.item(), learner.parts[task.part].out.weight.grad


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_is_the_weighted_sum_of_those_of_the_examples(tokenizer, name):
    task = TASKS[name]
    table = {"text": TEXTS, "label": GOLD[task.part], "importance": WEIGHTS}
    plain = task.read(as_sources(table), columns={})
    alone = [loss(task, tokenizer, [row]) for row in plain]
    found, gradient = loss(task, tokenizer, task.read(as_sources(table), columns=COLUMNS))
    assert found == pytest.approx(np.dot(WEIGHTS, [value for value, _ in alone]), rel=1e-5)
    expected = sum(weight * each for weight, (_, each) in zip(WEIGHTS, alone, strict=True))
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", ["x", "-1", "nan", "inf"])
def test_what_is_no_weight_is_refused(tokenizer, weight, tmp_path):
    (tmp_path / "a.tsv").write_text(f"text\tlabel\timportance\nthe dog\ta\t1\nthe cat\tb\t{weight}\n")
    rows = TASKS["plain"].read([tmp_path / "a.tsv"], columns=COLUMNS)
    with pytest.raises(UserError, match=rf"a\.tsv:3: the weight '{weight}' is not a number of 0 or more; correct it"):
        TASKS["plain"].frame(tokenizer, rows, ("a", "b"), gold=True)


def test_weights_that_have_no_effect_are_refused(tokenizer, tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\timportance\nthe dog\t0\t0\nthe cat\t1\t0\n")
    rows = TASKS["plain"].read([tmp_path / "a.tsv"], columns=COLUMNS)
    with pytest.raises(UserError, match="all weights are 0"):
        TASKS["plain"].frame(tokenizer, rows, ("0", "1"), gold=True)
    for task, gold in ((Ranking(length=12), True), (TASKS["plain"], False)):
        with pytest.raises(UserError, match=r"weight.* has no effect: no weights are read here"):
            task.read([tmp_path / "a.tsv"], columns=COLUMNS, gold=gold)
    assert TASKS["plain"].read([tmp_path / "a.tsv"], columns={})[0].values.keys() == {"text", "label"}
