"""Pairs of texts, told apart or given a number: the same in transformers from the text on, whoever wrote the directory.

Predictions, losses and the gradient of every parameter. Where both texts of a pair are cut and an odd number of tokens
is left, transformers gives the odd one to the second text, BERT's own program and we to the first: the length here
leaves an even number.
"""

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

import unmask.tasks.rows
from unmask.batches.batch import collate
from unmask.batches.frame import Frame
from unmask.checkpoints import huggingface
from unmask.errors import InputWarning
from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.labelled.labelled_file import Row
from unmask.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Part
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.tasks.regression import Regression, RegressionHead
from unmask.training.machine import choose_machine

SETTINGS = BertSettings(layers=2, width=32, heads=4, feed_forward=64, positions=64, init_std=0.3)
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
    config = BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        problem_type="regression" if kind == "regression" else "single_label_classification",
    )
    model = BertForSequenceClassification(config)
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(directory)
    tokenizer.save(directory, length=LENGTH)
    AutoTokenizer.from_pretrained(directory).save_pretrained(directory)  # what lies there now is all theirs


def run_theirs(directory, kind):
    """Logits, the loss and its gradients under our names, with nothing but their own classes."""
    theirs, report = AutoModelForSequenceClassification.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values()), report
    words = AutoTokenizer.from_pretrained(directory)
    inputs = words(*texts(), padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
    known = theirs.config.label2id
    gold = torch.tensor([number if kind == "regression" else known[label] for *_, label, number in PAIRS])
    out = theirs.eval()(**inputs, labels=gold)
    out.loss.backward()
    folder = directory / "gradients"
    folder.mkdir()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    safetensors.torch.save_file(gradients, folder / "model.safetensors")
    theirs.config.save_pretrained(folder)
    read = huggingface.read(folder)
    found = {f"encoder.{name}": value for name, value in read.encoder.items()}
    found |= {f"objectives.{head}.{name}": value for head, part in read.heads.items() for name, value in part.items()}
    return out.logits.detach(), out.loss.detach(), found


def run_ours(directory, kind):
    """The same with our own: what `predict` says, and what training reckons."""
    model = load_model(directory)
    assert model.labels == LABELS[kind]
    assert type(model.task) is type(task_of(kind))
    assert model.task.length == LENGTH
    with pytest.warns(InputWarning, match="^3 of 5 pairs are longer than"):
        said = Predictor(model, choose_machine("cpu", "float32")).predict(*texts())
    assert [one.cut for one in said] == [False, False, True, True, True]
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
    return said, loss.detach(), {name: parameter.grad for name, parameter in learner.named_parameters()}


def assert_parity(directory, kind):
    logits, their_loss, theirs = run_theirs(directory, kind)
    said, loss, ours = run_ours(directory, kind)
    assert torch.pdist(logits).min() > 1e-3, "the pairs are told apart"
    if kind == "regression":
        found, expected = torch.tensor([[one.score] for one in said]), logits
    else:
        found, expected = torch.tensor([list(one.scores.values()) for one in said]), logits.softmax(1)
        assert [one.label for one in said] == [LABELS[kind][row.argmax()] for row in logits]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert [(one.text, one.text_b) for one in said] == [pair[:2] for pair in PAIRS]
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=1e-6)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert (ours[name] - value).norm() <= 1e-4 * value.norm(), f"gradient of {name}"


@pytest.mark.parametrize("write", [write_ours, write_theirs])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_the_same_in_transformers(tokenizer, tmp_path, kind, write):
    write(kind, tokenizer, tmp_path)
    assert_parity(tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("planted", ["segments", "the second is cut", "order", "pooler", "loss", "head"])
def test_the_comparison_notices_a_planted_fault(tokenizer, tmp_path, monkeypatch, kind, planted):
    write_theirs(kind, tokenizer, tmp_path)
    wrap = Frame.wrap
    match planted:
        case "segments":
            monkeypatch.setattr(Frame, "wrap", lambda *given: _without_segments(wrap(*given)))
        case "order":
            monkeypatch.setattr(Frame, "wrap", lambda frame, first, second: wrap(frame, second, first))
        case "the second is cut":
            monkeypatch.setattr(
                unmask.tasks.rows, "cut_longer", lambda one, two, room: (min(one, 50), room - min(one, 50))
            )
        case "pooler":
            monkeypatch.setattr(SETTINGS.build(5).__class__, "pool", lambda self, rows: rows)
        case "loss":
            head = RegressionHead if kind == "regression" else ClassificationHead
            score = head.score
            monkeypatch.setattr(head, "score", lambda *given: Part(score(*given).sum / 2, {}))
        case "head":
            monkeypatch.setattr(Model, "take", lambda self, name, head: [])  # the head stays untrained
    with pytest.raises(AssertionError):
        assert_parity(tmp_path, kind)


def _without_segments(sample):
    sample.segments[:] = np.int64(0)
    return sample
