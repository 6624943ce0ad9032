"""Several labels per text: the loss, the threshold, training, and the directories of transformers."""

import json

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.load import load
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.tuning import best_threshold

LABELS = ("animal", "place", "person")
WORDS = {"dog": ["animal", "person"], "cat": ["animal"], "house": [], "river": ["person", "place"]}


def make(*labels):
    return [Row({"text": "the dog"}, "a.tsv", line, names) for line, names in enumerate(labels, 2)]


def test_labels_are_those_of_the_examples():
    assert MultiLabel().label_names(make(("10", "9"), (), ("9",))) == ("9", "10")
    with pytest.raises(UserError, match=r"a\.tsv: all 2 examples have no label; is it the right column\?"):
        MultiLabel().label_names(make((), ()))
    with pytest.raises(UserError, match="all 2 examples have the same labels"):
        MultiLabel().label_names(make(("a",), ("a",)))


def test_the_loss_is_that_of_transformers(tokenizer):
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0)
    learner = Learner(shape.build(200), {"multi_label": MultiLabel().build(shape.head, LABELS)}).eval()
    rows = make(("animal", "person"), (), ("place",))
    framed = MultiLabel().frame(tokenizer, rows, LABELS, gold=True)
    batch = collate([learner.prepare(it) for it in framed.samples])
    logits = learner.parts["multi_label"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
    gold = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])
    part = learner(batch)["multi_label"]
    assert batch.counts == {"multi_label": 9}
    torch.testing.assert_close(part.sum / 9, torch.nn.BCEWithLogitsLoss()(logits, gold))
    assert part.metrics["accuracy"] == ((logits > 0) == (gold > 0)).sum()
    with pytest.raises(UserError, match=r"a\.tsv:2: unknown label 'food'; the model knows animal, place, person"):
        MultiLabel().frame(tokenizer, make(("food",)), LABELS, gold=True)


@given(st.integers(0, 1000), st.integers(1, 30))
def test_no_threshold_is_better(seed, size):
    rng = np.random.default_rng(seed)
    gold = rng.random((size, 3)) < 0.3
    probabilities = np.round(np.clip(rng.random((size, 3)) * 0.7 + 0.2 * gold, 0.01, 0.99), 2)
    found = best_threshold(gold, probabilities)
    assert 0 <= found < 1
    thresholds = np.array([found, *np.arange(0, 1, 0.005)])
    predicted = probabilities > thresholds[:, None, None]
    either = predicted.sum((1, 2)) + gold.sum()
    scores = np.divide(2 * (predicted & gold).sum((1, 2)), either, out=np.zeros(len(either)), where=either > 0)
    assert scores[0] >= max(scores) - 1e-9


def test_temperature_and_threshold_are_tuned():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2000, 2)) * 2 - 1
    gold = rng.random((2000, 2)) < 1 / (1 + np.exp(-logits))
    probabilities = 1 / (1 + np.exp(-3 * logits))  # three times too sure
    rows = make(*(tuple(name for name, has in zip("ab", one, strict=True) if has) for one in gold))
    predictions = [Labels("x", (), {"a": float(one), "b": float(two)}) for one, two in probabilities]
    task = MultiLabel(temperature="tuned")
    assert task.tunes
    tuned = task.tune(rows, predictions)
    assert tuned.temperature == pytest.approx(3, rel=0.1)
    assert 0.2 < tuned.threshold < 0.5, "the best F1 is below one half"
    assert not tuned.tunes
    fixed = MultiLabel(threshold=0.5, temperature="tuned").tune(rows, predictions)
    assert (fixed.threshold, fixed.temperature) == (0.5, tuned.temperature)


@pytest.mark.seeds(20)
def test_scores_of_each_label_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    gold, scores = rng.random((30, 3)) < rng.random(3), rng.random((30, 3)).round(1)  # with ties
    thresholds = tuple(rng.uniform(0.2, 0.8, 3).tolist())
    predicted = scores > thresholds
    names = [tuple(name for name, has in zip(LABELS, row, strict=True) if has) for row in (*gold, *predicted)]
    predictions = [
        Labels("x", chosen, dict(zip(LABELS, row, strict=True)))
        for chosen, row in zip(names[30:], scores.tolist(), strict=True)
    ]
    details = MultiLabel(threshold=thresholds).details(make(*names[:30]), predictions, LABELS)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
    for number, label in enumerate(LABELS):
        of = gold[:, number]
        ranked = metrics.average_precision_score(of, scores[:, number]) if of.any() else 0
        values = precision[number], recall[number], f1[number], ranked
        expected = dict(zip(("precision", "recall", "f1", "average_precision"), 100 * np.array(values), strict=True))
        assert details["by_label"][label] == pytest.approx({**expected, "examples": support[number]})
        assert details["thresholds"][label]["f1"] == pytest.approx(expected["f1"])


@pytest.fixture(scope="module")
def run(fine_tuned, tmp_path_factory):
    """A model of words with no, one or two labels, beside words that do not matter."""
    rng, lines = np.random.default_rng(0), []
    for _ in range(120):
        word = str(rng.choice(list(WORDS)))
        beside = " the" * int(rng.integers(1, 6))
        lines.append(json.dumps({"text": f"{word}{beside}", "labels": WORDS[word]}))
    folder = tmp_path_factory.mktemp("labels")
    (folder / "train.jsonl").write_text("\n".join(lines))
    sets = ("budget.epochs=12", "batch.sequences=20", "task.temperature=tuned", "task.length=24")
    return fine_tuned("multi-label", folder / "train.jsonl", folder / "run", *sets), folder / "train.jsonl"


def test_a_model_learns(run):
    directory, data = run
    result = json.loads((directory / "dev.json").read_text())
    assert result["metrics"]["f1_micro"] > 97
    assert result["metrics"]["mean_average_precision"] > 97
    predictor = load(directory, device="cpu")
    found = predictor.predict(["dog the", "house the"])
    assert [one.labels for one in found] == [("animal", "person"), ()]
    assert list(found[0].scores) == ["animal", "person", "place"]
    assert predictor.task.line(found[1]) == "(none)\thouse the"
    evaluated = evaluate_task(predictor.model, data)
    assert evaluated["metrics"] == pytest.approx(result["metrics"])
    assert 0 <= evaluated["calibration"]["expected_calibration_error"] < 15
    task = predictor.task
    rows = task.read([data], columns={})[:4]
    predictions = [Labels("x", ("place",), {"animal": 0.1, "person": 0.1, "place": 0.8}) for _ in rows]
    assert [row.labels for row in task.labelled(rows, predictions)] == [("place",)] * 4
    assert all(one.gold != "place" for one in task.mistakes(rows, predictions, predictor.labels))


def test_transformers_reads_it_and_its_directories_are_read(run, tmp_path):
    model = load_model(run[0])
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run[0] / "model").eval()
    assert theirs.config.problem_type == "multi_label_classification"
    theirs.save_pretrained(tmp_path / "theirs")
    model.tokenizer.save(tmp_path / "theirs")
    texts = ["river the", "cat"]
    ids = [[model.tokenizer.cls, *model.tokenizer.encode(text), model.tokenizer.sep] for text in texts]
    with torch.no_grad():
        expected = torch.cat([theirs(input_ids=torch.tensor([one])).logits for one in ids])
    other = load(tmp_path / "theirs", device="cpu")
    assert isinstance(other.task, MultiLabel)
    assert other.labels == ("animal", "person", "place")
    found = other.predict(texts)
    scores = (expected / other.task.temperature).sigmoid()  # transformers keeps our settings in its config
    assert torch.tensor([list(one.scores.values()) for one in found]) == pytest.approx(scores, abs=1e-5)
    assert [one.labels for one in found] == [
        tuple(name for name, value in zip(other.labels, row, strict=True) if value > other.task.threshold)
        for row in scores
    ]


@pytest.mark.parametrize("chosen", [{"threshold": 1.0}, {"threshold": -0.1}, {"temperature": 0.0}])
def test_bad_settings_are_refused(chosen):
    with pytest.raises(ValueError, match="must be"):
        MultiLabel(**chosen)
