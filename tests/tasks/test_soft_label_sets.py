"""Tests of learning and evaluating soft labels of texts with several labels, beside PyTorch and scikit-learn."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, f1_score, log_loss
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
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.training.machine import Machine
from unmask.workflows.finetuning.finetune import finetune

LABELS = ("a", "b", "c")
CPU = Machine(torch.device("cpu"), "float32")


def rows_of(values, hard=()):
    rows = []
    for line, p in enumerate(values):
        place = {"text": f"the cat {line}"}, "soft.jsonl", line
        labels = tuple(label for label, value in zip(LABELS, p, strict=True) if value > 0.5)
        probabilities = {label: float(value) for label, value in zip(LABELS, p, strict=True) if value}
        rows.append(Row(*place, labels) if line in hard else Row(*place, labels, probabilities))
    return rows


def predictions_of(values):
    return [Labels("x", tuple(np.array(LABELS)[p > 0.5]), dict(zip(LABELS, p.tolist(), strict=True))) for p in values]


@pytest.mark.parametrize("windows", [1, 2])
def test_the_loss_is_the_binary_cross_entropy_with_the_probabilities(tokenizer, windows):
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=64, dropout=0.0, init_std=0.5)
    task, rng = MultiLabel(windows=windows, length=8), np.random.default_rng(windows)
    learner = Learner(shape.build(200), {"multi_label": task.build(shape.head, LABELS)})
    head = learner.parts["multi_label"]
    for number in range(50):
        values, hard = rng.random((6, 3)), {1, 3} if number % 2 else set()
        batch = collate(
            [learner.prepare(it) for it in task.frame(tokenizer, rows_of(values, hard), LABELS, gold=True).samples]
        )
        logits = head.predict(learner.encoder, learner.encoder(batch.tokens), batch)
        soft = np.where([[line in hard] for line in range(6)], values > 0.5, values)
        expected = torch.nn.BCEWithLogitsLoss(reduction="sum")(logits, torch.from_numpy(soft).float())
        part = learner(batch)["multi_label"]
        torch.testing.assert_close(part.sum, expected)
        assert part.metrics["accuracy"] == ((logits.detach().numpy() > 0) == (values > 0.5)).sum()


def test_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for number in range(50):
        gold, predicted = rng.random((12, 3)), rng.random((12, 3))
        if number % 2:  # scikit-learn's, which know only labels
            gold = rng.integers(2, size=(12, 3)).astype(float)
            gold[:2] = [[0, 0, 0], [1, 1, 1]]
        rows, predictions = rows_of(gold), predictions_of(predicted)
        metrics = measure_all(MultiLabel().measure(rows, predictions, LABELS), 12)
        by_label = MultiLabel().details(rows, predictions, LABELS)["by_label"]
        assert metrics["f1_micro"] == pytest.approx(
            100 * f1_score(gold > 0.5, predicted > 0.5, average="micro", zero_division=0)
        )
        columns = [(torch.from_numpy(gold[:, it]), torch.from_numpy(predicted[:, it])) for it in range(3)]
        for label, (target, probability) in zip(LABELS, columns, strict=True):
            entropy = functional.binary_cross_entropy(probability, target).item()
            distance = functional.mse_loss(probability, target).item()
            assert (by_label[label]["cross_entropy"], by_label[label]["brier"]) == pytest.approx((entropy, distance))
            if number % 2:
                assert entropy == pytest.approx(log_loss(target, probability))
                assert distance == pytest.approx(brier_score_loss(target, probability))
        for name in ("cross_entropy", "brier"):
            assert metrics[name] == pytest.approx(np.mean([values[name] for values in by_label.values()]))


def test_probabilities_that_were_rounded_have_a_finite_cross_entropy():
    measured = MultiLabel().measure(rows_of(np.eye(3)), predictions_of(1 - np.eye(3)), LABELS)
    assert np.isfinite(measure_all(measured, 3)["cross_entropy"])


def test_labels_of_the_file_are_those_with_a_probability():
    rows = rows_of([[0.4, 0.2, 0.0]] * 3)
    assert MultiLabel().label_names(rows) == ("a", "b")
    with pytest.raises(UserError, match="all 3 examples have no label"):
        MultiLabel().label_names(rows_of([[0.0, 0.0, 0.0]] * 3))
    assert "cross_entropy" not in measure_all(
        MultiLabel().measure(rows_of(np.eye(3), hard={0, 1, 2}), predictions_of(np.eye(3)), LABELS), 3
    )
    hard = MultiLabel().details(rows_of(np.eye(3), hard={0, 1, 2}), predictions_of(np.eye(3)), LABELS)
    assert "brier" not in hard["by_label"]["a"] and "agreement" not in hard


def test_an_unknown_name_is_refused(tokenizer):
    row = Row({"text": "x"}, "soft.jsonl", 7, ("a",), {"a": 0.9, "z": 0.1})
    with pytest.raises(UserError, match=r"soft\.jsonl:7: unknown label 'z'; the model knows a, b, c"):
        MultiLabel().frame(tokenizer, [row], LABELS, gold=True)


def test_labels_predicted_by_a_model_replace_probabilities():
    relabelled = MultiLabel().labelled(rows_of([[0.9, 0.3, 0.2]]), predictions_of(np.array([[0.1, 0.8, 0.9]])))
    assert relabelled == [Row({"text": "the cat 0"}, "soft.jsonl", 0, ("b", "c"))]


def train(recipe_file, tokenizer_directory, path, out, *settings):
    settings = ("optimizer.learning_rate=5e-3", "dropout=0.0", "task.length=24", "task.threshold=0.5", *settings)
    start = {"tokenizer": tokenizer_directory, "settings": parse_overrides(settings), "dev": [path]}
    options = {"device": "cpu", "precision": "float32", "quiet": True}
    return finetune("multi-label", f"random:{recipe_file}", [path], out, **start, **options)


def test_a_model_learns_the_probabilities(recipe_file, tokenizer_directory, tmp_path):
    path = tmp_path / "soft.jsonl"
    labels = [{"a": 0.7, "b": 0.9}, {"a": 0.2, "b": 0.6}]
    records = [{"text": ("dog", "cat")[i % 2], "label": labels[i % 2]} for i in range(60)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    model = train(recipe_file, tokenizer_directory, path, tmp_path / "run", "budget.epochs=25")
    result = evaluate_task(Predictor(load_model(model), CPU), path)
    values = torch.tensor([[0.7, 0.9], [0.2, 0.6]])
    entropy = functional.binary_cross_entropy(values, values).item()
    assert result["metrics"]["cross_entropy"] == pytest.approx(entropy, abs=0.02)
    assert result["metrics"]["brier"] == pytest.approx(0, abs=0.01)
    assert result["metrics"]["f1_micro"] == 100
    assert f"{path}: 60 examples have probabilities of labels, which are learned" in result["notes"]
    assert "examples | cross_entropy | brier |" in (tmp_path / "run" / "report.md").read_text()


def test_votes_are_learned_and_their_agreement_is_reported(recipe_file, tokenizer_directory, tmp_path):
    path = tmp_path / "votes.jsonl"
    votes = [[["a"], ["a", "b"], None], [["b"], [], ["b"]]]
    records = [{"text": ("dog", "cat")[i % 2], "label": votes[i % 2]} for i in range(40)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    model = train(recipe_file, tokenizer_directory, path, tmp_path / "run", "budget.epochs=1")
    result = evaluate_task(Predictor(load_model(model), CPU), path)
    # of each text's pairs of votes: a has 1 of 1 and 3 of 3, b has 0 of 1 and 1 of 3
    assert result["agreement"]["by_label"]["a"]["percent_agreement"] == 100
    assert result["agreement"]["by_label"]["b"]["percent_agreement"] == 25
    assert result["agreement"]["percent_agreement"] == 62.5
    assert any("agreement of annotators on 40 examples: percent_agreement 62.500" in note for note in result["notes"])
    report = json.loads((tmp_path / "run" / "dev.json").read_text())
    assert report["agreement"] == result["agreement"]
    assert {"cross_entropy", "brier"} <= report["metrics"].keys()
