"""Runs are found and read, whether finished, stopped, running or damaged, and nothing in them changes."""

import json

import pytest

from unmask.support.errors import UserError
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.summary import Reached, find_runs, metric_names, read_run


def test_a_finished_run(make_run):
    run = read_run(make_run())
    assert (run.name, run.kind, run.state) == ("bert-mini", "pretraining", "finished")
    assert run.reached == Reached(step=8, tokens=8000, seconds=480.0, total=8, skipped=1)
    assert [line["step"] for line in run.train] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [line["step"] for line in run.heldout] == [0, 2, 4, 6, 8]
    assert run.peak == 8e11


def test_a_fine_tuning_has_the_name_of_its_task(make_run):
    run = read_run(make_run(recipe='[task]\nkind = "classification"\n'))
    assert (run.name, run.kind) == ("classification", "fine-tuning")


def test_a_stopped_run_is_at_its_newest_checkpoint(make_run):
    run = read_run(make_run(logged=7, saved=4, total=1000, report=False))
    assert run.state == "stopped at step 4 of 1,000"
    assert run.reached == Reached(step=4, tokens=4000, seconds=240.0, total=1000, skipped=1)
    assert [line["step"] for line in run.train] == [1, 2, 3, 4]
    assert [line["step"] for line in run.heldout] == [0, 2, 4]


def test_a_running_run_is_at_the_end_of_its_log(make_run):
    path = make_run(logged=7, saved=4, report=False)
    with RunDirectory.resume(path, (path / "recipe.toml").read_text(), read_run(path).provenance.inputs, frozenset()):
        run = read_run(path)
        assert run.running
        assert run.state == "running, step 7 of 8"
        assert run.reached == Reached(step=7, tokens=7000, seconds=420.0, total=8, skipped=1)
    assert read_run(path).state == "stopped at step 4 of 8"


def test_reading_does_not_keep_the_lock(make_run):
    path = make_run()
    run = read_run(path)
    RunDirectory.resume(path, (path / "recipe.toml").read_text(), run.provenance.inputs, frozenset()).close()


def test_a_larger_budget_is_not_finished_by_the_old_report(make_run):
    assert read_run(make_run(total=12)).state == "stopped at step 8 of 12"


@pytest.mark.parametrize(("report", "state"), [(True, "finished"), (False, "stopped at step 8")])
def test_without_checkpoints_the_log_is_used(make_run, report, state):
    run = read_run(make_run(saved=None, report=report))
    assert run.state == state
    assert run.reached == Reached(step=8, tokens=8000, seconds=480.0)


def test_a_run_that_has_not_started(make_run):
    path = make_run(logged=0, saved=0, total=0, report=False)
    assert read_run(path).state == "stopped at step 0"
    (path / "metrics.jsonl").unlink()
    assert read_run(path).heldout == []


def test_a_damaged_checkpoint_is_skipped(make_run):
    path = make_run()
    (path / "checkpoints" / "step-00000008" / "progress.json").write_text("{")
    assert read_run(path).state == "stopped at step 6 of 8"


def test_T24_truncated_and_foreign_lines_are_skipped(make_run):
    path = make_run()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('3\n{"kind": "train"}\n{"kind": "train", "step": "4"}\n\n{"kind": "train", "st')
    assert [line["step"] for line in read_run(path).train] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recipe.toml", b"name =", r"recipe\.toml: the file is damaged \("),
        ("recipe.toml", b"\xff\xfe", r"recipe\.toml: the file is damaged \("),
        ("recipe.toml", None, r"run: this is not a run: there is no recipe\.toml; pass the out of a run"),
        ("provenance.json", b"{}", r"provenance\.json: the file is damaged \(.*unmask"),
        ("provenance.json", b"[3]", r"provenance\.json: the file is damaged \("),
        ("provenance.json", None, r"run: this is not a run: there is no provenance\.json"),
        ("metrics.jsonl", b'{"kind": "train", "step": 1}', r"metrics\.jsonl: the file is damaged \(.*tokens"),
    ],
)
def test_damaged_files_are_named(make_run, name, content, message):
    path = make_run()
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_run(path)


@pytest.mark.parametrize("name", ["missing", "file", "folder"])
def test_paths_that_are_not_runs(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"{name}: this is not a run"):
        read_run(tmp_path / name)


def test_runs_are_found_at_and_below_a_folder(make_run, tmp_path):
    for name in ("b/two", "a", "b/one", "a/seed-0", ".hidden/run", "a/model/inside"):
        make_run(name)
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    damaged = make_run("b/damaged")
    (damaged / "provenance.json").unlink()
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "recipe.toml").touch()
    names = ["a", "a/seed-0", "b/damaged", "b/one", "b/two"]
    assert [str(path.relative_to(tmp_path)) for path in find_runs(tmp_path)] == names
    assert list(find_runs(tmp_path / "b" / "one")) == [tmp_path / "b" / "one"]
    assert list(find_runs(tmp_path / "recipes")) == []
    with pytest.raises(UserError, match="missing: no such folder; pass the out of a run, or a folder of runs"):
        list(find_runs(tmp_path / "missing"))


def test_reading_changes_nothing(make_run):
    path = make_run()
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}
    read_run(path)
    assert before == {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in path.rglob("*") if f.is_file()}


def test_metrics_are_named_once_and_in_order():
    lines = [json.loads('{"kind": "train", "step": 1, "tokens": 2, "loss": 1}'), {"f1": 1, "loss": None}]
    assert metric_names(lines) == ["loss", "f1"]
