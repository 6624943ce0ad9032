"""Each task together with others and alone: the runs, and what is said of the difference."""

import json

import numpy as np
import pytest

import unmask
from unmask.workflows.finetuning import job
from unmask.workflows.multitask.multitask import AloneComparison, compare

from .conftest import HERE


@pytest.fixture(scope="module", autouse=True)
def _few_epochs():
    """The rule has 5 epochs instead of 20."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "MAX_EPOCHS", 5)
        yield


@pytest.fixture(scope="module")
def compared(start, tables, tmp_path_factory):
    """A run on two tasks, and the runs of each."""
    out = tmp_path_factory.mktemp("compared") / "out"
    two = {name: tables[name] for name in ("mood", "size")}
    settings = {"budget.steps": 4, "seed": 3, "schedule.warmup": 0.2, "optimizer.learning_rate": 1e-3}
    unmask.multitask(two, start, out, settings=settings, alone=True, **HERE)
    return out


def test_each_is_also_trained_alone_by_the_rule(compared):
    report = (compared / "report.md").read_text()
    for name, steps in (("mood", 17), ("size", 10)):  # 5 epochs in batches of 16
        lines = (compared / "alone" / name / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == steps
        recipe = (compared / "alone" / name / "recipe.toml").read_text()
        assert "seed = 3" in recipe and "warmup = 0.2" in recipe and "length = 24" in recipe
        assert f"[{name}" not in recipe and f"](alone/{name}/report.md)" in report


def test_the_difference_is_that_of_the_scores(compared):
    records = json.loads((compared / "alone.json").read_bytes())
    for name, metric in (("mood", "accuracy"), ("size", "pearson")):
        record = records[name]
        both, own = (json.loads((compared / path).read_bytes()) for path in ("dev.json", f"alone/{name}/dev.json"))
        assert record["metric"] == metric
        assert record["together"] == pytest.approx(both[name]["metrics"][metric])
        assert record["alone"] == pytest.approx(own["metrics"][metric])
        low, high = record["interval"]
        assert low <= record["together"] - record["alone"] <= high
        assert record["verdict"] == ("helped" if low > 0 else "hurt" if high < 0 else "no difference shown")
        assert (record["verdict"] == "no difference shown") == (record["p"] >= 0.05)


def test_the_interval_is_that_of_evaluate_against_a_second_model(compared, tables):
    """`unmask.evaluate` compares the same two models on the same examples."""
    record = json.loads((compared / "alone.json").read_bytes())["size"]
    result = unmask.evaluate(
        compared / "model" / "size", tables["size"]["dev"], against=compared / "alone" / "size", **HERE
    )
    tested = result["against"]["differences"]["pearson"]
    assert record["interval"] == pytest.approx(tested["interval"]) and record["p"] == pytest.approx(tested["p"])


def test_an_interrupted_comparison_is_resumed(start, tables, tmp_path, compared, monkeypatch, stopped_at):
    two = {name: tables[name] for name in ("mood", "size")}
    settings = {"budget.steps": 4, "seed": 3, "schedule.warmup": 0.2, "optimizer.learning_rate": 1e-3}
    with stopped_at(8):  # only the runs of single tasks have so many steps
        unmask.multitask(two, start, tmp_path / "out", settings=settings, alone=True, **HERE)
    assert (tmp_path / "out/dev.json").exists() and not (tmp_path / "out/alone.json").exists()
    unmask.multitask(two, start, tmp_path / "out", settings=settings, alone=True, resume=True, **HERE)
    assert (tmp_path / "out/alone.json").read_bytes() == (compared / "alone.json").read_bytes()
    assert (tmp_path / "out/report.md").read_text().count("## Together and alone") == 1


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.1, 2.0), "helped"),
        ((-2.0, -0.1), "hurt"),
        ((-0.1, 2.0), "no difference shown"),
        ((0.0, 0.0), "no difference shown"),
    ],
)
def test_verdicts(interval, verdict):
    assert AloneComparison("accuracy", 1.0, 0.0, interval, 0.5).verdict == verdict


class Guesser:
    """Stands in for a predictor: it has the labels of a share of the examples, and others of the rest."""

    def __init__(self, real, share, seed):
        self.task, self.labels, self.real = real.task, real.labels, real
        self.share, self.rng = share, np.random.default_rng(seed)

    def run(self, examples):
        """Return predictions."""
        by_label = {prediction.label: prediction for prediction in self.real.run(examples)}
        wrong = {label: by_label[next(other for other in by_label if other != label)] for label in by_label}
        golds = [example.values["label"] for example in examples]
        return [by_label[gold] if self.rng.random() < self.share else wrong[gold] for gold in golds]


def test_verdicts_on_generated_predictions(run, tables, monkeypatch):
    """Over 60 pairs of guessers: those that differ little are rarely told apart, those that differ much always are."""
    monkeypatch.setattr("unmask.metrics.intervals.RESAMPLES", 100)
    real = unmask.load(run / "model" / "mood")
    examples = real.task.read([tables["mood"]["train"]], columns={}) * 2
    predictions = real.run(examples)
    monkeypatch.setattr(real, "run", lambda examples: predictions)
    equal = [compare(Guesser(real, 0.7, 2 * n), Guesser(real, 0.7, 2 * n + 1), examples).verdict for n in range(30)]
    apart = [compare(Guesser(real, 0.9, 2 * n), Guesser(real, 0.6, 2 * n + 1), examples) for n in range(30)]
    assert equal.count("no difference shown") >= 25
    assert all(one.verdict == "helped" and one.together > one.alone for one in apart)
