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
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.pooled_head import Regularization
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification

TEXTS, WEIGHTS = ["the dog", "the cat near the sea", "a garden", "poem"], [0.5, 0, 3, 2.5]
RELATIVE = [value / 1.5 for value in WEIGHTS]
COLUMNS = {"weight": "importance"}
GOLD = {
    "classification": ["b", "a", "c", "a"],
    "multi_label": [["b", "c"], [], ["a"], ["a", "c"]],
    "regression": [1.0, -2.0, 0.5, 4.0],
}
LABELS = {"classification": ("a", "b", "c"), "multi_label": ("a", "b", "c"), "regression": ()}
TASKS = {
    "plain": Classification(length=12),
    "smoothed": Classification(length=12, regularization=Regularization(label_smoothing=0.2)),
    "focal": Classification(length=12, focal=2.0, regularization=Regularization(label_smoothing=0.2)),
    "weights of labels": Classification(length=12, weights=(1.0, 2.0, 0.5)),
    "several": MultiLabel(length=12, weights=(1.0, 2.0, 0.5)),
    "several, focal": MultiLabel(length=12, focal=2.0),
    "windows": Classification(length=4, windows=3),
    "regression": Regression(length=12, mean=0.0, deviation=1.0),
    "probability": Regression(length=12, activation="sigmoid"),
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
    assert found == pytest.approx(np.dot(RELATIVE, [value for value, _ in alone]), rel=1e-5)
    expected = sum(weight * each for weight, (_, each) in zip(RELATIVE, alone, strict=True))
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
    sentences = {"words": [["a"]], "tags": [["O"]], "importance": [1]}
    with pytest.raises(UserError, match="weights in classification, multi-label and regression alone; omit it"):
        TokenClassification().read(as_sources(sentences), columns=COLUMNS)
    for task, gold, why in (
        (Ranking(length=12), True, "examples have weights in classification, multi-label and regression alone"),
        (TASKS["plain"], False, "no labels are read"),
    ):
        with pytest.raises(UserError, match=rf"weight.* has no effect: {why}"):
            task.read([tmp_path / "a.tsv"], columns=COLUMNS, gold=gold)
    assert TASKS["plain"].read([tmp_path / "a.tsv"], columns={})[0].values.keys() == {"text", "label"}


@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 0.5)])
@pytest.mark.parametrize("columns", [{}, COLUMNS])
def test_r_drop_of_the_weighted_examples(tokenizer, monkeypatch, weights, columns):
    """The divergence, which dropout makes, has the weight of the example and of its label, as the cross-entropy has."""
    monkeypatch.setattr("unmask.objectives.learner.MOST_ROWS", 0)  # so that both passes draw as many numbers
    task = Classification(length=12, weights=weights, regularization=Regularization(r_drop=2.0))
    table, labels = {"text": TEXTS, "label": GOLD[task.part], "importance": WEIGHTS}, LABELS[task.part]
    rows = task.read(as_sources(table), columns=columns)
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=16, dropout=0.3, init_std=0.5)
    torch.manual_seed(0)
    encoder = build_encoder(shape, tokenizer.size)
    head = task.build(encoder.head, labels)
    learner = Learner(encoder, {task.part: head}).train()
    batch = collate([learner.prepare(sample) for sample in task.frame(tokenizer, rows, labels, gold=True).samples])
    torch.manual_seed(1)
    found = learner(batch)[task.part].sum.item()
    torch.manual_seed(1)
    passes = [head.predict(encoder, encoder(batch.tokens), batch).detach().double() for _ in range(2)]
    gold = batch.labels[task.part]
    # the order of the examples in the batch, by their labels and weights
    order = [key[1] for key in batch.keys]
    of_each = np.array(RELATIVE if columns else [1.0] * 4)[order] * np.array(weights or [1.0] * 3)[gold]
    p, q = (logits.log_softmax(1).numpy() for logits in passes)
    entropy = -(p + q)[range(4), gold] / 2
    apart = ((np.exp(p) - np.exp(q)) * (p - q)).sum(1) / 2
    assert apart.max() > 0.01
    assert found == pytest.approx((of_each * (entropy + 2.0 * apart)).sum(), rel=1e-5)


def test_a_small_and_a_large_file_have_the_same_weights(tokenizer):
    """They are relative to their mean, whatever their unit, also where float32 could not hold them."""
    task, loss_of = TASKS["plain"], []
    for unit in (1e-40, 1.0, 1e300):
        table = {"text": TEXTS, "label": GOLD[task.part], "importance": [unit * weight for weight in WEIGHTS]}
        loss_of.append(loss(task, tokenizer, task.read(as_sources(table), columns=COLUMNS))[0])
    assert loss_of[0] == pytest.approx(loss_of[1], rel=1e-6) == pytest.approx(loss_of[2], rel=1e-6)


def test_balanced_weights_and_thresholds_count_the_weights_of_examples():
    table = {"text": list("abcdefghijk"), "label": ["no"] * 10 + ["yes"], "importance": [1] * 10 + [30]}
    rows = Classification().read(as_sources(table), columns=COLUMNS)
    balanced = Classification(weights="balanced").settle(rows, ("no", "yes")).weights
    assert balanced[0] * 10 == pytest.approx(balanced[1] * 30)
    labels = [["x"]] * 10 + [["x", "y"]]
    rows = MultiLabel().read(as_sources({**table, "label": labels}), columns=COLUMNS)
    assert MultiLabel(weights="balanced").settle(rows, ("x", "y")).weights == pytest.approx((1.0, 10 / 30))
    table = {"text": list(map(str, range(200))), "label": ["no"] * 199 + ["yes"], "importance": [1] * 199 + [199]}
    for columns, rare in (({}, True), (COLUMNS, False)):
        settled = Classification().settle(Classification().read(as_sources(table), columns=columns), ("no", "yes"))
        assert (settled.threshold is not None) == rare, "where the loss is balanced, thresholds would balance it again"
        assert settled.positive == "yes", "the positive label is the rarer one, whatever the weights"
