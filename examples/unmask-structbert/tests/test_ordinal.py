"""Ranks as labels: reading, validation, the loss of the paper, and predictions."""

import math

import numpy as np
import pytest
import torch
from unmask_structbert.ordinal import Ordinal, OrdinalHead, Ranked

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.testing import check_task

BODY = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)


def rows(*ranks):
    return [Row({"text": "dog", "label": rank}, "a.tsv", line) for line, rank in enumerate(ranks, 2)]


def test_the_loss_of_ranks_is_that_of_the_paper():
    """With one vector of weights w and a bias b for each rank k: - sum of y_k log s_k + (1 - y_k) log (1 - s_k)."""
    torch.manual_seed(0)
    encoder, head = BODY.build(1000), OrdinalHead(BODY.head, 4)
    torch.nn.init.normal_(head.biases)
    learner = Learner(encoder, {"ordinal": head}).eval()
    samples = [Frame(2, 3).wrap(np.arange(5, 12) + rank).named((rank,)) for rank in range(4)]
    samples = [one.add(labels={"ordinal": np.array([rank])}) for rank, one in enumerate(samples)]
    batch = collate([learner.prepare(sample) for sample in samples])
    pooled = encoder.pooler(encoder(batch.tokens).last[batch.positions["summary"]])
    expected = 0.0
    for rank, vector in enumerate(pooled.detach().numpy()):
        for k, bias in enumerate(head.biases.tolist()):
            above = 1 / (1 + math.exp(-(float(vector @ head.out.weight[0].detach().numpy()) + bias)))
            expected -= math.log(above if rank > k else 1 - above)
    assert learner(batch)["ordinal"].sum.item() == pytest.approx(expected, rel=1e-5)
    assert batch.counts == {"ordinal": 4}


class Letters:
    """The part of a tokenizer that framing needs."""

    cls, sep, mask, summary, ends_twice, segments = 2, 3, 4, "first", False, True

    def encode_many(self, texts):
        return [np.array([5 + ord(letter) for letter in text]) for text in texts]

    def spell(self, ids):
        return ids

    def notes(self, encoded, texts=()):
        return []


def test_the_predicted_rank_is_the_number_of_positive_units():
    task, labels = Ordinal(), ("1", "3", "10")
    framed = task.frame(Letters(), rows("10", "1", "3"), labels, gold=True)
    assert [int(sample.labels["ordinal"][0]) for sample in framed.samples] == [2, 0, 1]
    logits = [np.array([values], np.float32) for values in ([2, 1], [-1, -2], [1, 0.5])]
    found = framed.read(logits)
    assert [one.rank for one in found] == ["10", "1", "10"]
    assert found[0].above == pytest.approx({"1": 1 / (1 + math.exp(-2)), "3": 1 / (1 + math.exp(-1))})
    measured = task.measure(rows("10", "1", "3"), found, labels)
    assert measured(np.arange(3)) == pytest.approx({"accuracy": 200 / 3, "mean_absolute_error": 1 / 3})
    (mistake,) = task.mistakes(rows("10", "1", "3"), found, labels)
    assert (mistake.caption, mistake.gold, mistake.predicted, mistake.score) == ("a.tsv:4", "3", "10", 1)
    assert task.line(Ranked("dog", "3", {})) == "3\tdog"


def test_ranks_are_whole_numbers_in_order(tmp_path):
    assert Ordinal().label_names(rows("10", "9", "-1", "9")) == ("-1", "9", "10")
    with pytest.raises(UserError, match=r"a\.tsv: all examples have the same rank"):
        Ordinal().label_names(rows("1", "1"))
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\ndog\t1\ncat\tgood\n")
    with pytest.raises(UserError, match=r"a\.tsv:3: the label 'good' is not an integer"):
        Ordinal().read([path], columns={})
    with pytest.raises(UserError, match=r"a\.tsv:3: unknown rank '4'; the model knows 1, 3"):
        Ordinal().frame(Letters(), rows("1", "4"), ("1", "3"), gold=True)


def test_the_task_can_do_what_tasks_can(tmp_path):
    stars = tmp_path / "stars.tsv"
    lines = [f"a {word} day\t{rank}" for rank, word in enumerate(("bad", "fair", "good"), 1) for _ in range(20)]
    stars.write_text("\n".join(["text\tlabel", *lines]), encoding="utf8")
    reasons = check_task("ordinal", stars, tmp_path)
    assert {name: why.partition(";")[0] for name, why in reasons.items() if why} == {
        "playground": "its route declares no view of the page",
        "estimator": "no estimator of scikit-learn predicts this",
        "distil": "objective.soft_targets needs a head that imitates the teacher's: ordinal cannot learn from its "
        "predictions",
    }
