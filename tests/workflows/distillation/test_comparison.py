"""The comparison of teacher, student and the same student without a teacher: table, sentences, plot, whole runs."""

import json

import pytest
from msgspec.structs import replace

from unmask.model.model import load_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.workflows.distillation import comparison
from unmask.workflows.distillation.comparison import HEADING, ComparedModel, summary, table, write_comparison
from unmask.workflows.distillation.distill import distill

from .conftest import recipe_of

TEACHER = ComparedModel(name="teacher", parameters=22_700_000, bytes=90_000_000, milliseconds=6.0, per_second=800,
                        metric="accuracy", score=90.0, interval=(88.0, 92.0))  # fmt: skip
STUDENT = ComparedModel(name="student", parameters=11_350_000, bytes=45_000_000, milliseconds=3.0, per_second=1600,
                        metric="accuracy", score=88.2, interval=None)  # fmt: skip
ALONE = ComparedModel(name="without a teacher", parameters=11_350_000, bytes=45_000_000, milliseconds=3.0,
                      per_second=1600, metric="accuracy", score=86.2)  # fmt: skip


def test_the_table_and_what_it_amounts_to():
    lines = table([TEACHER, STUDENT, ALONE])
    assert lines[0] == "| | parameters | on disk | one text | texts per second | accuracy |"
    assert lines[2] == "| teacher | 22.7 M | 90 MB | 6.0 ms | 800 | 90.00 (88.00 to 92.00) |"
    assert lines[3] == "| student | 11.3 M | 45 MB | 3.0 ms | 1,600 | 88.20 |"
    assert summary([TEACHER, STUDENT, ALONE]) == [
        "The student is 2.0 times smaller and 2.0 times faster than its teacher.",
        "It keeps 98.0 % of its accuracy.",
        "The teacher is worth +2.00 to the same student.",
    ]
    for scores in ((-70.0, -40.0), (70.0, -40.0), (-70.0, 40.0), (0.0, 40.0)):  # no shares of correlations below 0
        pair = [replace(model, score=score) for model, score in zip((TEACHER, STUDENT), scores, strict=True)]
        assert len(summary(pair)) == 1
    unscored = [
        ComparedModel(name=name, parameters=4, bytes=4, milliseconds=1.0, per_second=1)
        for name in ("teacher", "student")
    ]
    assert table(unscored)[2] == "| teacher | 0.0 M | 0 MB | 1.0 ms | 1 |" and len(summary(unscored)) == 1


def test_the_report_has_the_comparison_once(tmp_path):
    (tmp_path / "report.md").write_text("# A run\n\nIts text.\n")
    said = []
    for _ in range(2):
        write_comparison(tmp_path, [TEACHER, STUDENT], said.append)
    report = (tmp_path / "report.md").read_text()
    assert report.count(HEADING) == 1 and report.startswith("# A run\n\nIts text.\n\n## Teacher and student\n\n| |")
    assert "![quality over latency](plots/comparison.svg)" in report
    assert "<text" in (tmp_path / "plots/comparison.svg").read_text()
    assert said[:2] == summary([TEACHER, STUDENT])
    assert [one["name"] for one in json.loads((tmp_path / "comparison.json").read_text())] == ["teacher", "student"]


def test_models_are_timed_in_turns_and_a_slow_round_does_not_count(teacher, teacher_model, monkeypatch, replace_time):
    clock, order = [0.0], []
    monkeypatch.setattr(comparison, "ROUNDS", 3)
    replace_time(comparison, perf_counter=lambda: clock[0])

    def run_of(name, seconds):
        def run(texts):
            order.append(name)
            clock[0] += len(texts) * seconds * (100 if len(order) < 6 else 1)  # another program, at first

        return comparison.Subject(name, teacher, teacher_model, run, {})

    found = comparison.measure([run_of("teacher", 0.004), run_of("student", 0.001)], ["a", "b", "c"])
    assert [round(one.milliseconds, 6) for one in found] == [4.0, 1.0]
    assert [round(one.per_second) for one in found] == [250, 1000]
    assert order[2:10] == [*["teacher", "student"] * 2, *["student", "teacher"] * 2], "another one is the first"


def compared(run):
    found = {one["name"]: one for one in json.loads((run.parent / "comparison.json").read_text())}
    assert all(one["milliseconds"] > 0 and one["per_second"] > 0 for one in found.values())
    for name, folder in (("student", run.parent), ("without a teacher", run.parent / "baseline")):
        if name in found:
            assert found[name]["bytes"] == (folder / "model/model.safetensors").stat().st_size
            weights = load_model(folder).encoder.parameters()
            assert found[name]["parameters"] >= sum(value.numel() for value in weights)
    return found


def test_a_task_with_its_baseline(tuned, examples, tmp_path):
    given = {
        "train": examples / "classification.tsv",
        "settings": {"budget.steps": 2},
        "layers": 2,
        "device": "cpu",
        "precision": "float32",
    }
    run = distill(
        read_recipe("tinybert-mini"), tuned("classification"), tmp_path / "run", baseline=True, quiet=True, **given
    )
    found = compared(run)
    assert found.keys() == {"teacher", "student", "without a teacher"}
    assert found["teacher"]["parameters"] > found["student"]["parameters"] == found["without a teacher"]["parameters"]
    scores = json.loads((run.parent / "dev.json").read_text())
    assert found["student"]["score"] == scores["metrics"]["accuracy"]
    assert found["student"]["interval"] == scores["intervals"]["accuracy"]
    recipe = (run.parent / "baseline/recipe.toml").read_text()
    assert "distillation" not in recipe and "soft_targets" not in recipe and "steps = 2" in recipe
    before = (run.parent / "baseline/metrics.jsonl").read_text()
    distill(read_recipe("tinybert-mini"), tuned("classification"), tmp_path / "run", resume=True, **given)
    assert (run.parent / "baseline/metrics.jsonl").read_text() == before


def test_text_with_its_baseline(teacher, corpus, tmp_path):
    recipe, given = (
        recipe_of("distilbert-mini", budget__steps=2),
        {"layers": 2, "device": "cpu", "precision": "float32", "quiet": True},
    )
    found = compared(distill(recipe, teacher, tmp_path / "run", corpus=corpus, baseline=True, **given))
    assert all(0 <= one["interval"][0] <= one["score"] <= one["interval"][1] <= 100 for one in found.values())
    assert found["without a teacher"]["metric"] == "accuracy at masked tokens"
    found = compared(distill(recipe_of("tinybert-mini"), teacher, tmp_path / "tiny", corpus=corpus, **given))
    assert found.keys() == {"teacher", "student"} and all(one["score"] is None for one in found.values())


def test_a_baseline_needs_something_to_learn_from(teacher, corpus, tuned, examples, tmp_path, monkeypatch):
    given = {"device": "cpu", "precision": "float32", "quiet": True, "layers": 2, "baseline": True}
    with pytest.raises(UserError, match="without a teacher the recipe tinybert-mini has no objective, so that base"):
        distill(recipe_of("tinybert-mini"), teacher, tmp_path / "run", corpus=corpus, **given)
    with pytest.raises(UserError, match="without train there are no labels for baseline to learn from; omit it"):
        distill(read_recipe("tinybert-mini"), tuned("classification"), tmp_path / "run",
                unlabelled=examples / "plain.txt", **given)  # fmt: skip
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="baseline works with a single process only"):
        distill(recipe_of("distilbert-mini"), teacher, tmp_path / "run", corpus=corpus, **given)
    assert not (tmp_path / "run").exists()
