"""Parity of classification and regression of pairs with transformers, from the text to the gradients.

Directories are written by us and by transformers. Predictions, losses and the gradient of every parameter are compared.
Where both texts of a pair are truncated and an odd number of tokens is left, transformers keeps the odd one in the
second text, BERT's original program and we in the first: the length used here leaves an even number.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification

import unmask.tasks.rows
from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.labelled.labelled_file import Row
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Part
from unmask.support.errors import InputWarning
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.tasks.regression import Regression, RegressionHead
from unmask.training.machine import choose_machine

from .conftest import (
    SETTINGS,
    assert_same_gradients,
    gradients_by_our_names,
    load_theirs,
    our_gradients,
    their_config,
)

LENGTH = 63
LABELS = {"classification": ("entailment", "neutral", "contradiction"), "regression": ()}
LONG = "The garden opens the letter under a tree. " * 9
PAIRS = [
    ("The dog sees the cat near the sea.", "The cat", "neutral", 2.5),
    ("The poem", "The teacher follows the doctor before noon.", "contradiction", 0.0),
    ("The poem", LONG, "entailment", -1.25),
    (LONG, "The market", "neutral", 5.0),
    (LONG, LONG + "The poem.", "entailment", 4.0),
]
KINDS = ["classification", "regression"]


def texts():
    return [one for one, *_ in PAIRS], [other for _, other, *_ in PAIRS]


def task_of(kind):
    return Classification(length=LENGTH) if kind == "classification" else Regression(length=LENGTH)


def write_ours(kind, tokenizer, directory):
    head = task_of(kind).build(SETTINGS.head, LABELS[kind])
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    heads = {kind: head.state_dict()}
    save_model(directory, Model(SETTINGS.build(tokenizer.size), tokenizer, heads, LABELS[kind], task_of(kind)), "card")


def write_theirs(kind, tokenizer, directory):
    labels = LABELS[kind] or ("LABEL_0",)
    problem = "regression" if kind == "regression" else "single_label_classification"
    model = BertForSequenceClassification(their_config(tokenizer, labels, problem_type=problem))
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(directory)
    tokenizer.save(directory, length=LENGTH)
    AutoTokenizer.from_pretrained(directory).save_pretrained(directory)  # now all files are written by transformers


def run_theirs(directory, kind):
    """Return logits, the loss and its gradients by our names, computed with the classes of transformers only."""
    theirs = load_theirs(AutoModelForSequenceClassification, directory)
    reader = AutoTokenizer.from_pretrained(directory)
    inputs = reader(*texts(), padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    known = theirs.config.label2id
    gold = torch.tensor([number if kind == "regression" else known[label] for *_, label, number in PAIRS])
    out = theirs(**inputs, labels=gold)
    out.loss.backward()
    return out.logits.detach(), out.loss.detach(), gradients_by_our_names(theirs, directory / "gradients")


def run_ours(directory, kind):
    """Return our predictions, the loss of training and its gradients."""
    model = load_model(directory)
    assert model.labels == LABELS[kind]
    assert type(model.task) is type(task_of(kind))
    assert model.task.length == LENGTH
    with pytest.warns(InputWarning, match="^3 of 5 pairs are longer than"):
        predictions = Predictor(model, choose_machine("cpu", "float32")).predict(*texts())
    assert [one.cut for one in predictions] == [False, False, True, True, True]
    head = model.task.build(model.encoder.head, model.labels)
    model.take(kind, head)
    learner = Learner(model.encoder, {kind: head}).eval()
    rows = [
        Row({"text": one, "text_b": other, "label": str(number) if kind == "regression" else label}, "a.tsv", 2)
        for one, other, label, number in PAIRS
    ]
    samples = model.task.frame(model.tokenizer, rows, model.labels, gold=True).samples
    batch = collate([learner.prepare(sample) for sample in samples])
    loss = learner(batch)[kind].sum / batch.counts[kind]
    loss.backward()
    return predictions, loss.detach(), our_gradients(learner)


def assert_parity(directory, kind):
    logits, their_loss, theirs = run_theirs(directory, kind)
    predictions, loss, ours = run_ours(directory, kind)
    assert torch.pdist(logits).min() > 1e-3, "logits differ between the pairs"
    if kind == "regression":
        found, expected = torch.tensor([[one.score] for one in predictions]), logits
    else:
        found, expected = torch.tensor([list(one.scores.values()) for one in predictions]), logits.softmax(1)
        assert [one.label for one in predictions] == [LABELS[kind][row.argmax()] for row in logits]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert [(one.text, one.text_b) for one in predictions] == [pair[:2] for pair in PAIRS]
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=1e-6)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("write", [write_ours, write_theirs])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_the_same_in_transformers(tokenizer, tmp_path, kind, write):
    write(kind, tokenizer, tmp_path)
    assert_parity(tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("planted", ["segments", "the second is cut", "order", "pooler", "loss", "head"])
def test_the_comparison_notices_a_planted_fault(tokenizer, tmp_path, monkeypatch, kind, planted):
    write_theirs(kind, tokenizer, tmp_path)
    wrap = Frame.wrap_all
    match planted:
        case "segments":
            monkeypatch.setattr(
                Frame, "wrap_all", lambda *given, labels: _without_segments(wrap(*given, labels=labels))
            )
        case "order":
            monkeypatch.setattr(Frame, "wrap_all", lambda it, one, two, labels: wrap(it, two, one, labels=labels))
        case "the second is cut":
            monkeypatch.setattr(
                unmask.tasks.rows,
                "cut_longer",
                lambda one, two, total: (np.minimum(one, 50), total - np.minimum(one, 50)),
            )
        case "pooler":
            monkeypatch.setattr(type(SETTINGS.build(5).pooler), "forward", lambda self, rows: rows)
        case "loss":
            head = RegressionHead if kind == "regression" else ClassificationHead
            score = head.score
            monkeypatch.setattr(head, "score", lambda *given: Part(score(*given).sum / 2, {}))
        case "head":
            monkeypatch.setattr(Model, "take", lambda self, name, head: [])  # the head keeps its random weights
    with pytest.raises(AssertionError):
        assert_parity(tmp_path, kind)


def _without_segments(samples):
    for sample in samples:
        sample.segments[:] = 0
    return samples
