"""Tests of learning and evaluating soft labels: the loss beside its formula, metrics beside scikit-learn."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torch.nn import functional

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import measure_all
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.pooled_head import Regularization
from unmask.training.machine import Machine
from unmask.workflows.finetuning.finetune import finetune

LABELS = ("a", "b", "c")
CPU = Machine(torch.device("cpu"), "float32")


def distributions(rng, number):
    return rng.dirichlet(np.ones(len(LABELS)), number)


def rows_of(values, hard=()):
    rows = []
    for line, p in enumerate(values):
        place = {"text": f"the cat {line}", "label": LABELS[int(np.argmax(p))]}, "soft.jsonl", line
        distribution = dict(zip(LABELS, map(float, p), strict=True))
        rows.append(Row(*place) if line in hard else Row(*place, probabilities=distribution))
    return rows


def learner_of(task):
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=64, dropout=0.0, init_std=0.5)
    return Learner(shape.build(200), {"classification": task.build(shape.head, LABELS)})


@pytest.mark.parametrize("windows", [1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 0.5)])
def test_the_loss_is_the_cross_entropy_with_the_distribution(tokenizer, windows, smoothing, weights):
    rng = np.random.default_rng(windows)
    task = Classification(
        weights=weights, regularization=Regularization(label_smoothing=smoothing), windows=windows, length=8
    )
    learner = learner_of(task)
    head = learner.parts["classification"]
    for hard in (set(), {1, 3}):
        values = distributions(rng, 6)
        rows = rows_of(values, hard)
        batch = collate([learner.prepare(it) for it in task.frame(tokenizer, rows, LABELS, gold=True).samples])
        logits = head.predict(learner.encoder, learner.encoder(batch.tokens), batch)
        one_hot = np.eye(3)[values.argmax(1)]
        soft = torch.from_numpy(np.where([[line in hard] for line in range(6)], one_hot, values)).float()
        targets = (1 - smoothing) * soft + smoothing / 3
        expected = -(torch.tensor(weights or [1.0] * 3) * targets * logits.log_softmax(1)).sum()
        part = learner(batch)["classification"]
        torch.testing.assert_close(part.sum, expected)
        assert part.metrics["accuracy"] == (logits.argmax(1).numpy() == values.argmax(1)).sum()


def test_distributions_with_a_single_one_have_the_loss_of_labels(tokenizer):
    task = Classification(regularization=Regularization(label_smoothing=0.1, r_drop=1.0), weights=(1.0, 2.0, 0.5))
    learner, losses = learner_of(task), []
    for hard in (set(), set(range(6))):
        rows = rows_of(np.eye(3)[[0, 1, 2, 2, 1, 0]], hard)
        batch = collate([learner.prepare(it) for it in task.frame(tokenizer, rows, LABELS, gold=True).samples])
        losses.append(learner(batch)["classification"].sum)
        assert ("soft_labels" in batch.labels) is (not hard)
    torch.testing.assert_close(*losses)
    assert functional.cross_entropy(torch.zeros(1, 3), torch.tensor([0])) < losses[0]


def test_labels_and_balanced_weights_are_those_of_the_distributions():
    rows = rows_of([[0.6, 0.3, 0.1], [0.9, 0.1, 0.0], [0.8, 0.2, 0.0]])
    assert Classification().label_names(rows) == LABELS
    weights = Classification(weights="balanced").settle(rows * 10, LABELS).weights
    mass = np.array([2.3, 0.6, 0.1]) * 10
    assert weights == pytest.approx(30 / (3 * mass))
    assert weights @ mass == pytest.approx(30)


def test_an_unknown_name_is_refused(tokenizer):
    row = Row({"text": "x", "label": "a"}, "soft.jsonl", 7, probabilities={"a": 0.9, "z": 0.1})
    with pytest.raises(UserError, match=r"soft\.jsonl:7: unknown label 'z'; the model knows a, b, c"):
        Classification().frame(tokenizer, [row], LABELS, gold=True)


def test_labels_predicted_by_a_model_replace_distributions():
    row = rows_of([[0.5, 0.3, 0.2]])[0]
    relabelled = Classification().labelled([row], [Prediction("x", "b", {})])[0]
    assert relabelled == Row({"text": "the cat 0", "label": "b"}, "soft.jsonl", 0)


def test_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(50):
        gold, predicted = distributions(rng, 12), distributions(rng, 12)
        if rng.random() < 0.5:  # scikit-learn's, which know only labels
            gold = np.eye(3)[rng.integers(3, size=12)]
            gold[:3] = np.eye(3)
        predictions = [
            Prediction("x", LABELS[p.argmax()], dict(zip(LABELS, p.tolist(), strict=True))) for p in predicted
        ]
        metrics = measure_all(Classification().measure(rows_of(gold), predictions, LABELS), 12)
        index = gold.argmax(1)
        assert metrics["accuracy"] == pytest.approx(100 * (predicted.argmax(1) == index).mean())
        target = torch.from_numpy(gold)
        expected = functional.cross_entropy(torch.from_numpy(predicted).log(), target).item()
        assert metrics["cross_entropy"] == pytest.approx(expected)
        assert metrics["brier"] == pytest.approx(((target.numpy() - predicted) ** 2).sum(1).mean())
        if (gold.max(1) == 1).all():
            assert metrics["cross_entropy"] == pytest.approx(log_loss(index, predicted))
            assert metrics["brier"] == pytest.approx(
                np.mean([3 * brier_score_loss(row, p) for row, p in zip(gold, predicted, strict=True)])
            )


def test_hard_labels_have_no_further_metrics():
    rows = rows_of(np.eye(3), hard={0, 1, 2})
    predictions = [Prediction("x", "a", {"a": 1.0, "b": 0.0, "c": 0.0})] * 3
    assert "cross_entropy" not in measure_all(Classification().measure(rows, predictions, LABELS), 3)


def train(recipe_file, tokenizer_directory, path, out, *settings, **options):
    settings = ("optimizer.learning_rate=5e-3", "dropout=0.0", "task.length=24", *settings)
    return finetune(
        "classification",
        f"random:{recipe_file}",
        [path],
        out,
        dev=[path],
        tokenizer=tokenizer_directory,
        settings=parse_overrides(settings),
        device="cpu",
        precision="float32",
        quiet=True,
        **options,
    )


def test_a_model_learns_the_distribution(recipe_file, tokenizer_directory, tmp_path):
    path = tmp_path / "soft.jsonl"
    labels = [{"a": 0.7, "b": 0.3}, {"a": 0.2, "b": 0.8}]
    records = [{"text": ("dog", "cat")[i % 2], "label": labels[i % 2]} for i in range(60)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    model = train(recipe_file, tokenizer_directory, path, tmp_path / "run", "budget.epochs=25")
    result = evaluate_task(Predictor(load_model(model), CPU), path)
    entropy = -np.mean([sum(p * np.log(p) for p in label.values()) for label in labels])
    assert result["metrics"]["cross_entropy"] == pytest.approx(entropy, abs=0.02)
    assert result["metrics"]["brier"] == pytest.approx(0, abs=0.02)
    assert result["metrics"]["accuracy"] == 100
    assert f"{path}: 60 examples have probabilities of labels, which are learned" in result["notes"]


def test_the_head_of_a_frozen_body_learns_the_distribution(recipe_file, tokenizer_directory, tmp_path):
    """All texts are equal, so that the head only learns the distribution, which a label alone would not give."""
    path = tmp_path / "soft.csv"
    path.write_text("text,p:a,p:b\n" + "dog,0.7,0.3\n" * 60)
    settings = ("budget.epochs=60", "optimizer.learning_rate=2e-2")
    model = train(recipe_file, tokenizer_directory, path, tmp_path / "run", *settings, frozen=True)
    result = evaluate_task(Predictor(load_model(model), CPU), path)
    assert result["metrics"]["brier"] == pytest.approx(0, abs=0.01)


def test_votes_are_learned_and_their_agreement_is_reported(recipe_file, tokenizer_directory, tmp_path):
    path = tmp_path / "votes.csv"
    lines = [f"{('dog', 'cat')[i % 2]},{'ab'[i % 2]},{'ab'[i % 4 == 1]},{('a', '')[i % 2]}" for i in range(40)]
    path.write_text("\n".join(["text,label:ann,label:bo,label:cy", *lines]))
    model = train(recipe_file, tokenizer_directory, path, tmp_path / "run", "budget.epochs=1")
    result = evaluate_task(Predictor(load_model(model), CPU), path)
    expected = 100 * (10 * 3 + 10 * 3 + 10) / (20 * 3 + 20)  # 10 texts of "cat" have the votes b, b; 10 have b, a
    assert result["agreement"]["percent_agreement"] == pytest.approx(expected)
    assert result["agreement"].keys() == {"percent_agreement", "krippendorff_alpha"}
    note = "agreement of annotators on 40 examples: percent_agreement 87.500, krippendorff_alpha"
    assert any(note in text for text in result["notes"])
    report = json.loads((tmp_path / "run" / "dev.json").read_text())
    assert report["agreement"] == result["agreement"]
    assert {"cross_entropy", "brier"} <= report["metrics"].keys()
