"""Few labels: cross-validation on the training examples chooses between the regression and all parameters."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score

from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.workflows.finetuning import choice, job
from unmask.workflows.finetuning.choice import MARGIN, compare_ways
from unmask.workflows.finetuning.finetune import finetune


def losses_of(probabilities, gold):
    """Return the loss of each example at the temperature with the smallest sum, found by scipy."""
    logits = np.log(probabilities)

    def losses(inverse):
        return -log_softmax(inverse * logits, axis=1)[np.arange(len(gold)), gold]

    best = minimize_scalar(lambda inverse: losses(inverse).sum(), bounds=(1 / 20, 20), method="bounded").x
    return losses(best)


@pytest.mark.parametrize("seed", range(60))
def test_the_second_way_is_chosen_where_it_is_better_by_the_margin(seed):
    rng = np.random.default_rng(seed)
    classes, number = int(rng.integers(2, 6)), int(rng.integers(16, 80))
    gold = rng.integers(0, classes, number)
    ways = []
    for _ in range(2):
        logits = rng.normal(size=(number, classes)) + rng.uniform(0, 2) * np.eye(classes)[gold]
        ways.append(np.exp(log_softmax(rng.uniform(0.5, 4) * logits, axis=1)))
    outcome = compare_ways(*ways, gold)
    accuracies = [100 * accuracy_score(gold, way.argmax(1)) for way in ways]
    assert outcome.accuracies == pytest.approx(accuracies)
    gains = losses_of(ways[0], gold) - losses_of(ways[1], gold)
    distance = gains.mean() - MARGIN * gains.std(ddof=1) / np.sqrt(number)
    if abs(distance) > 1e-3:
        assert outcome.second == (distance > 0 and accuracies[1] >= accuracies[0])


def test_equal_ways_leave_the_rule():
    probabilities = np.full((10, 2), 0.5)
    assert not compare_ways(probabilities, probabilities, np.arange(10) % 2).second


@pytest.fixture(autouse=True)
def _compared(monkeypatch):
    monkeypatch.setattr(choice, "MOST_OPERATIONS", 1e15)


@pytest.fixture
def train(tmp_path):
    """Twelve texts whose label is a word, in one of two contexts."""
    words = {"good": "fine warm bright happy kind clear", "bad": "cold dark broken sad poor bleak"}
    rows = [(f"a {word} day", label) for label, own in words.items() for word in own.split()]
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return path


def probabilities_of(right):
    """Return a substitute for training: the probabilities of 12 examples, of which so many are right."""

    def of(job, data, outside, way, *_):
        assert not {row.values["text"] for row in data.train} & {row.values["text"] for row in outside}
        sure = 0.8 if way is None else right
        gold = [data.labels.index(row.values["label"]) for row in outside]
        return np.array([[sure if label == number else 1 - sure for label in range(2)] for number in gold])

    return of


@pytest.mark.parametrize(("regression", "trained"), [(0.3, True), (0.9, False)])
def test_what_was_compared_is_said_and_kept(train, minilm, tmp_path, capsys, monkeypatch, regression, trained):
    monkeypatch.setattr(choice, "_predict_fold", probabilities_of(regression))
    finetune("classification", minilm, train, tmp_path / "run", all_examples=True)
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("few labels, 6 examples of each: "))
    report = (tmp_path / "run/report.md").read_text()
    assert ("100 % of held-out training examples right" in line) and line.split(": ", 1)[1][:60] in report
    assert ("fine-tuning of all parameters: 100 %" in line) == trained
    assert (load_model(tmp_path / "run").downstream is None) == trained
    rows = json.loads((tmp_path / "run/search/choice.json").read_text())
    assert sorted(rows) == [f"{way}/{fold}" for way in ("few", "full") for fold in range(4)]


@pytest.mark.parametrize("pairs", [False, True])
def test_an_interrupted_choice_is_continued_and_repeated_exactly(minilm, tmp_path, monkeypatch, pairs):
    words = [("fine", "a"), ("cold", "b"), ("warm", "a"), ("dark", "b")]
    rows = [(f"a {word} day", *(("a night",) if pairs else ()), label) for word, label in words]
    path = tmp_path / "train.tsv"
    columns = ("text", *(("text_b",) if pairs else ()), "label")
    path.write_text("\n".join("\t".join(row) for row in [columns, *rows]) + "\n")
    monkeypatch.setattr(job, "MAX_EPOCHS", 2)
    predict, predicted = choice._predict_fold, []

    def interrupted(*arguments):
        if len(predicted) == 2:
            predicted.append(None)
            raise KeyboardInterrupt
        predicted.append(predict(*arguments))
        assert predicted[-1].sum(1) == pytest.approx(1) and not arguments[4].exists()
        return predicted[-1]

    monkeypatch.setattr(choice, "_predict_fold", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune("classification", minilm, path, tmp_path / "run", all_examples=True, quiet=True)
    finetune("classification", minilm, path, tmp_path / "run", all_examples=True, quiet=True)
    assert len(predicted) == 5  # two folds of two ways, and the interruption
    record = (tmp_path / "run/search/choice.json").read_bytes()
    finetune("classification", minilm, path, tmp_path / "again", all_examples=True, quiet=True)
    assert len(predicted) == 9 and (tmp_path / "again/search/choice.json").read_bytes() == record


def test_a_directory_that_is_not_empty_is_refused_before_the_choice(train, minilm, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "_predict_fold", None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        finetune("classification", minilm, train, tmp_path / "run", all_examples=True, quiet=True)


def test_a_choice_that_takes_too_long_is_not_made(train, minilm, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(choice, "MOST_OPERATIONS", 1e9)
    monkeypatch.setattr(choice, "_predict_fold", None)
    finetune("classification", minilm, train, tmp_path / "run", all_examples=True)
    said = capsys.readouterr().err
    assert "the encoder stays frozen under a logistic regression; to train it: frozen=False; not compared" in said


def test_seeds_share_a_choice(train, minilm, tmp_path, monkeypatch):
    calls = []
    predict = probabilities_of(0.9)

    def counting(*arguments):
        calls.append(arguments)
        return predict(*arguments)

    monkeypatch.setattr(choice, "_predict_fold", counting)
    finetune("classification", minilm, train, tmp_path / "runs", dev=train, seeds=2, quiet=True)
    assert len(calls) == 8
    assert "100 % of held-out training examples right" in (tmp_path / "runs/seed-1/report.md").read_text()
