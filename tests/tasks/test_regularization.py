"""Tests of label smoothing and R-Drop: the published formulas, in training only."""

from functools import partial

import pytest
import torch
from torch.nn import functional

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.objectives.flops import body_flops, forward_flops
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.pooled_head import Regularization, divergence
from unmask.tasks.token_classification import TokenClassification

from .conftest import read_task

LABELS = ("a", "b", "c")
NAMES = ("a", "c", "b", "c", "a")


def rows():
    return [Row({"text": f"the cat {index}", "label": name}, "rows.tsv", index) for index, name in enumerate(NAMES)]


def learner_of(dropout=0.0, **settings):
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=32, dropout=dropout, init_std=0.5)
    task = Classification(regularization=Regularization(**settings))
    return Learner(shape.build(200), {"classification": task.build(shape.head, LABELS)})


def batch_of(learner, tokenizer):
    samples = Classification().frame(tokenizer, rows(), LABELS, gold=True).samples
    return collate([learner.prepare(it) for it in samples])


def loss(learner, batch):
    torch.manual_seed(1)
    return learner(batch)["classification"].sum


def test_label_smoothing_spreads_a_share_of_each_target(tokenizer):
    learner = learner_of(label_smoothing=0.3)
    batch = batch_of(learner, tokenizer)
    logits = learner.parts["classification"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
    targets = 0.7 * functional.one_hot(batch.labels["classification"], 3) + 0.3 / 3
    torch.testing.assert_close(loss(learner, batch), -(targets * logits.log_softmax(1)).sum())
    torch.testing.assert_close(loss(learner.eval(), batch), loss(learner_of().eval(), batch))


def test_r_drop_is_the_formula_of_its_authors(tokenizer, monkeypatch):
    monkeypatch.setattr("unmask.objectives.learner.MOST_ROWS", 0)  # so that both passes draw as many numbers
    learner = learner_of(dropout=0.3, r_drop=2.0)
    batch, head, gold = batch_of(learner, tokenizer), learner.parts["classification"], [0, 2, 1, 2, 0]
    torch.manual_seed(1)
    first = head.predict(learner.encoder, learner.encoder(batch.tokens), batch)
    second = head.predict(learner.encoder, learner.encoder(batch.tokens), batch)
    assert not torch.allclose(first, second)
    likelihood = sum(one.log_softmax(1)[range(5), gold].sum() for one in (first, second))
    p, q = first.softmax(1), second.softmax(1)
    apart = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    torch.testing.assert_close(loss(learner, batch), -likelihood / 2 + 2.0 * apart)
    plain = learner_of(dropout=0.3)
    torch.testing.assert_close(loss(learner.eval(), batch), loss(plain.eval(), batch))


def test_the_divergence_of_equal_distributions_is_zero():
    logits = torch.randn(4, 3)
    torch.testing.assert_close(divergence(logits, logits + 5.0), torch.zeros(4))


def test_the_second_pass_is_counted(tokenizer):
    learner, plain = learner_of(r_drop=1.0), learner_of()
    batch = batch_of(learner, tokenizer)
    apart = forward_flops(learner, batch) - forward_flops(plain, batch)
    assert apart == body_flops(learner.encoder, batch.tokens)
    learner.eval()
    assert forward_flops(learner, batch) == forward_flops(plain, batch)


@pytest.mark.parametrize("kind", ["classification", "token-classification"])
def test_they_are_settings_of_a_recipe(kind):
    read = partial(read_task, kind)
    chosen = read("task.regularization.r_drop=1", "task.regularization.label_smoothing=0.1").regularization
    assert chosen == Regularization(r_drop=1.0, label_smoothing=0.1)
    assert read().regularization == Regularization()
    for wrong in ("r_drop=-1", "label_smoothing=1", "r_drop=inf"):
        with pytest.raises(UserError, match="must"):
            read(f"task.regularization.{wrong}")


def test_a_tagger_is_regularized_too():
    spec = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32).head
    chosen = Regularization(r_drop=1.0)
    assert TokenClassification(regularization=chosen).build(spec, ("O", "B-X", "I-X")).regularization == chosen
