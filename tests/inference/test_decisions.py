"""Tests of the backend for decisions: the predictions of float32, computed mostly in bf16."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample
from unmask.families.bert import BertSettings
from unmask.inference import backend as decisions
from unmask.inference.backend import DecisionBackend, TorchBackend, error, margin
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.tasks.classification import Classification
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import Machine

CPU, BF16 = (Machine(torch.device("cpu"), precision) for precision in ("float32", "bf16"))
LABELS = ("O", "B-X", "I-X")


@pytest.fixture(params=["classification", "token_classification"])
def model(request, tokenizer):
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.3)
    task = {"classification": Classification, "token_classification": TokenClassification}[request.param](length=32)
    heads = {task.part: task.build(shape.head, LABELS).state_dict()}
    return Model(shape.build(tokenizer.size), tokenizer, heads, LABELS, task)


def test_margins_and_errors_are_those_of_the_largest_logits():
    logits = np.array([[1.0, 4.0, 3.5], [0.0, 9.0, -1.0]])
    assert margin(logits) == 0.5
    assert margin(logits[:0]) == np.inf
    assert error(logits, logits + 3.0) == 0, "a shift of all logits changes no decision"
    assert error(logits, logits + np.array([[0.1, -0.1, 0.0], [0.0, 0.0, 0.3]])) == pytest.approx(0.3)
    assert error(logits[:0], logits[:0]) == 0


def test_predictions_are_those_of_float32(model, documents, monkeypatch):
    counted, logits_of = [], TorchBackend.logits

    def logits(self, head, samples):
        counted.append((self.precision, len(samples)))
        return logits_of(self, head, samples)

    examples = model.task.from_texts(documents)
    exact = Predictor(model, CPU).run(examples)
    monkeypatch.setattr(TorchBackend, "logits", logits)
    monkeypatch.setattr(decisions, "MARGIN", 0.01)
    quick = Predictor(model, backend=DecisionBackend(model, BF16)).run(examples)

    def decided(predictions):
        return [getattr(one, "label", None) or [it.label for it in one.entities] for one in predictions]

    assert decided(quick) == decided(exact)
    (first, *rest) = counted
    assert first[0] == "bf16"
    assert {precision for precision, _ in rest} == {"float32"}
    again = sum(number for _, number in rest)
    assert 0 < again <= first[1]
    if isinstance(model.task, Classification):  # a text of untrained tags always has one in doubt
        assert again < first[1]


class Fake:
    def __init__(self, logits):
        self.values, self.asked = logits, []

    def logits(self, head, samples):
        self.asked.append(len(samples))
        return [self.values[int(sample.ids[0])] for sample in samples]


def test_more_is_computed_again_where_bf16_is_further_off(monkeypatch):
    """Of 100 samples every second one has a margin of 1; those looked at first show an error of 0.5."""
    monkeypatch.setattr(decisions, "CHECKED", 10)
    fast = [np.array([[1.0 if number % 2 else 9.0, 0.0]]) for number in range(100)]
    exact = [logits + np.array([[0.0, 0.5]]) for logits in fast]
    backend = object.__new__(DecisionBackend)
    backend.fast, backend.exact = Fake(fast), Fake(exact)
    found = backend.logits("any", [Sample(key=(0,), ids=np.array([number])) for number in range(100)])
    assert backend.exact.asked == [10, 50]
    assert all((found[number] == exact[number]).all() for number in range(1, 100, 2))
    assert (found[2] == fast[2]).all()
