"""A rare label from the file to its decision: every entry obeys the thresholds that its run chose."""

import json

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import f1_score

import unmask
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.workflows.finetuning.finetune import finetune

PROBE = {"probe": True, "budget.epochs": 0, "task.length": 24}
RARE = expit(0.25 * logit(0.01))
"""Threshold of a label with a share of 1 %."""
OPTIONS = {"frozen": True, "downstream": "average", "device": "cpu", "precision": "float32"}


def write_rows(path, size):
    """Write texts, 3 % of them with a dog, of which a third are of the rare label."""
    rng = np.random.default_rng(0)
    lines = ["text\tlabel"]
    for number in range(size):
        word = "dog" if number % 100 in (0, 33, 66) else "cat"
        words = rng.permutation([word, *rng.choice(["river", "house", "teacher", "market", "garden"], 4)])
        lines.append(f"{' '.join(words)} {number}\t{'alarm' if number % 100 == 0 else 'usual'}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def rare(tmp_path):
    """300 texts."""
    return write_rows(tmp_path / "rare.tsv", 300)


@pytest.fixture
def many(tmp_path):
    """700 texts, enough to choose thresholds by."""
    return write_rows(tmp_path / "many.tsv", 700)


def texts_and_labels(path):
    return zip(*(line.split("\t") for line in path.read_text().splitlines()[1:]), strict=True)


def test_a_rare_label_is_decided_by_the_fourth_roots_of_shares(start, rare, tmp_path, capsys):
    run = tmp_path / "run"
    finetune("classification", start, rare, run, dev=rare, settings=PROBE, **OPTIONS)
    printed = capsys.readouterr().err
    assert "thresholds of the labels: alarm 0.241, usual 0.759; for the most probable label:" in printed
    assert "dev: F1 without and with thresholds: alarm" in printed
    assert load_model(run).task.threshold == pytest.approx((RARE, 1 - RARE))
    texts, gold = texts_and_labels(rare)
    predictions = unmask.load(run).predict(texts)
    scores = np.array([prediction.scores["alarm"] for prediction in predictions])
    labels = [prediction.label for prediction in predictions]
    assert labels == ["alarm" if score > RARE else "usual" for score in scores]
    assert ((scores > RARE) & (scores < 0.5)).any(), "some decisions depend on the threshold"
    result = unmask.evaluate(run, rare)
    scored = json.loads((run / "dev.json").read_text())
    assert result["thresholds"] == scored["thresholds"] and result["metrics"] == scored["metrics"]
    likely = np.where(scores > 0.5, "alarm", "usual")
    f1 = [100 * f1_score(gold, decided, pos_label="alarm") for decided in (likely, labels)]
    of_alarm = result["thresholds"]["alarm"]
    assert (of_alarm["f1_without"], of_alarm["f1"]) == pytest.approx(f1)
    assert result["without_thresholds"]["accuracy"] == pytest.approx(100 * np.mean(likely == np.array(gold)))
    assert result["calibration"]["expected_calibration_error"] < 3, "probabilities are what they were"
    pytest.importorskip("onnxruntime")
    unmask.export(run, tmp_path / "exported", "onnx")
    assert [prediction.label for prediction in unmask.load(tmp_path / "exported").predict(texts)] == labels


def test_the_recipe_of_a_run_has_its_thresholds(start, rare, tmp_path):
    finetune("classification", start, rare, tmp_path / "first", settings=PROBE, **OPTIONS, quiet=True)
    recipe = tmp_path / "first" / "recipe.toml"
    again = {"device": "cpu", "precision": "float32", "quiet": True}
    finetune("classification", start, rare, tmp_path / "again", recipe=recipe, **again)
    first, second = (load_model(tmp_path / name).task for name in ("first", "again"))
    assert first.threshold is not None and first == second


def test_an_estimator_obeys_thresholds(start, rare):
    texts, labels = texts_and_labels(rare)
    options = {"frozen": True, "downstream": "average", "device": "cpu"}
    fitted = unmask.TextClassifier(start, settings=PROBE, **options).fit(list(texts), list(labels))
    alarm = fitted.predict_proba(list(texts))[:, 0]
    assert fitted.predict(list(texts)).tolist() == ["alarm" if p > RARE else "usual" for p in alarm]
    assert ((alarm > RARE) & (alarm < 0.5)).any()


@pytest.mark.parametrize("threshold", [pytest.param(0.5, marks=pytest.mark.exhaustive), 0.05])
def test_a_threshold_can_be_given(start, rare, tmp_path, threshold):
    settings = {**PROBE, "task.threshold": threshold}
    finetune("classification", start, rare, tmp_path / "run", settings=settings, **OPTIONS, quiet=True)
    texts, _ = texts_and_labels(rare)
    predictions = unmask.load(tmp_path / "run").predict(texts)
    assert [one.label == "alarm" for one in predictions] == [one.scores["alarm"] > threshold for one in predictions]


def test_thresholds_are_tuned_on_examples_set_aside(start, many, tmp_path, capsys):
    settings = {**PROBE, "task.threshold": "tuned"}
    finetune("classification", start, many, tmp_path / "run", dev=many, settings=settings, **OPTIONS)
    assert (
        "tuned on 140 training examples, predicted by models that were not trained on them: threshold 0."
        in capsys.readouterr().err
    )
    thresholds = load_model(tmp_path / "run").task.threshold
    assert sum(thresholds) == pytest.approx(1) and thresholds[0] < 0.3


def test_a_rare_label_of_several_has_its_own_threshold(start, many, tmp_path, capsys):
    path = tmp_path / "several.tsv"
    path.write_text(many.read_text().replace("\talarm", "\talarm,usual"))
    finetune("multi-label", start, path, tmp_path / "run", dev=path, settings=PROBE, **OPTIONS)
    alarm, usual = load_model(tmp_path / "run").task.threshold
    assert 0 < alarm <= usual and alarm < RARE + 0.05
    assert "dev: F1 without and with thresholds:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("classification", {"task.focal": 2.0}, "task.focal has no effect on a logistic regression"),
        ("multi-label", {"task.weights": "balanced"}, "task.weights has no effect on a logistic regression"),
        ("regression", {"task.weights": "balanced"}, "weights"),
    ],
)
def test_what_has_no_effect_is_refused(start, rare, tmp_path, kind, settings, message):
    path = tmp_path / "numbers.tsv"
    path.write_text(rare.read_text().replace("usual", "1").replace("alarm", "2"))
    settings = {**({} if kind == "regression" else PROBE), **settings}
    options = {} if kind == "regression" else OPTIONS
    with pytest.raises(UserError, match=message):
        finetune(kind, start, path, tmp_path / "run", settings=settings, quiet=True, **options)
