"""A comparison of two arms, end to end, and all that may happen to it on the way."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

import unmask
from unmask.model.model import load_model
from unmask.support.durable import acquire
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.comparing import compare as compare_module
from unmask.workflows.comparing import compute, work
from unmask.workflows.comparing.cells import RESAMPLED, failure_of, folder_of, result_of, write_result
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.recommendation import CLEARLY, KNOWN
from unmask.workflows.comparing.scores import race
from unmask.workflows.comparing.settings import Arm, read_comparison

from .conftest import SETTINGS

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
SAME = ("elapsed", "seconds", "memory", "digest")
"""Fields of results that are times and memory, which no two runs have in common."""


def planned(inputs, **changes):
    comparison = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **changes)
    return Planner(comparison, comparison.named_arms(), "float32").plan()


def _plan_of(path):
    comparison = read_comparison(path)
    return Planner(comparison, comparison.named_arms(), "float32").plan()


def results(out):
    """The results of a comparison by the name of the cell, without times."""
    found = {}
    for path in out.glob("cells/*/result.json"):
        name = json.loads((path.parent / "cell.json").read_bytes())["name"]
        result = json.loads(path.read_bytes())
        found[name] = {key: value for key, value in result.items() if key not in SAME}
        for line in found[name].get("curve", []):
            line.pop("seconds")
        if (path.parent / RESAMPLED).exists():
            found[name]["resampled"] = np.load(path.parent / RESAMPLED).tolist()
    return found


def test_what_comes_out(finished):
    out, outcome = finished
    assert {arm.name: arm.state for arm in outcome.arms} == {"bert": "complete", "random": "complete"}
    assert all(len(arm.scores["pets"].seeds) == 2 for arm in outcome.arms)
    assert outcome.tasks["pets"].examples == 30 and outcome.tasks["pets"].trained_on == 40
    assert outcome.arm("bert").trained_tokens == pytest.approx(2000, rel=0.2)
    assert outcome.arm("random").trained_tokens == 0
    assert outcome.best and set(outcome.best) <= {"bert", "random"}
    assert all(cell.state == "done" for cell in outcome.cells)
    for suffix in ("html", "md", "csv", "json"):
        assert (out / f"report.{suffix}").stat().st_size > 100
    assert json.loads((out / "report.json").read_bytes())["best"] == outcome.best


def test_scores_are_those_of_the_kept_model(finished, inputs):
    out, _ = finished
    for path in out.glob("cells/*/cell.json"):
        about = json.loads(path.read_bytes())
        if about["name"].startswith("score:") and about["name"].endswith("seed 0"):
            again = unmask.evaluate(path.parent / "run", inputs / "test.tsv", device="cpu", quiet=True)
            assert again["metrics"] == json.loads((path.parent / "result.json").read_bytes())["metrics"]


def test_test_examples_are_predicted_once(inputs, finished, tmp_path, monkeypatch):
    """In a cell of a score: neither during training nor in the report of its run."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    plan = planned(inputs)
    cell = next(cell for cell in plan.of("score") if cell.seed == 0)
    result, folder = result_of(out, cell), folder_of(out, cell)
    drawn = np.load(folder / RESAMPLED)
    shutil.rmtree(folder)
    predicted, run = [], compute.Predictor.run
    monkeypatch.setattr(
        compute.Predictor, "run", lambda self, examples, *rest: predicted.append(examples) or run(self, examples, *rest)
    )
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="again", quiet=True)
    assert [len(examples) for examples in predicted] == [30]
    assert RunDirectory(folder / "run").read_metrics("heldout") == []
    again = result_of(out, cell)
    assert again["metrics"] == result["metrics"] and np.array_equal(np.load(folder / RESAMPLED), drawn)


def test_random_weights_of_a_checkpoint(finished, inputs, tmp_path):
    """They have its shape and vocabulary, and no weight of it."""
    model = next(path for path in finished[0].glob("cells/*/run/model") if not (path.parent / "dev.json").exists())
    arms = [str(model), f"{model}+random"]
    words = {"train": inputs / "train.tsv", "test": inputs / "test.tsv", "seeds": 1}
    outcome = unmask.compare(arms=arms, out=tmp_path / "out", **words, **HERE)
    assert [arm.state for arm in outcome.arms] == ["complete", "complete"]
    assert {arm.parameters for arm in outcome.arms} == {outcome.arms[0].parameters}
    (start,) = tmp_path.glob("out/cells/*/random.toml")
    made = load_model(f"random:{start}", tokenizer=model)
    given = load_model(model)
    assert made.encoder.settings == given.encoder.settings and made.tokenizer.size == given.tokenizer.size
    weights = [loaded.encoder.state_dict()["embeddings.words.weight"] for loaded in (made, given)]
    assert weights[0].shape == weights[1].shape and not torch.equal(*weights)


def test_a_finished_comparison_computes_nothing(finished, inputs, monkeypatch):
    out, outcome = finished
    monkeypatch.setattr(compute, "COMPUTE", {})
    again = unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert again.arms == outcome.arms and again.recommendation == outcome.recommendation


def test_a_comparison_with_files_of_its_own_copy(finished, inputs, tmp_path, monkeypatch):
    out, _ = finished
    moved = shutil.copytree(inputs, tmp_path / "moved")
    monkeypatch.setattr(compute, "COMPUTE", {})
    assert all(cell.state == "done" for cell in unmask.compare(moved / "pets.toml", out=out, **HERE).cells)


def test_more_arms_and_seeds_add_cells(inputs):
    before = {cell.key for cell in planned(inputs).cells}
    seeds = {cell.key for cell in planned(inputs, seeds=3).cells}
    arms = dict(planned(inputs).comparison.arms)
    arms["frozen"] = msgspec.structs.replace(arms["bert"], use="frozen")
    frozen = planned(inputs, arms=arms).cells
    assert before < seeds and len(seeds) == len(before) + 3
    assert before < {cell.key for cell in frozen}
    assert sum(cell.kind == "pretraining" for cell in frozen) == 2  # the same models


@pytest.mark.parametrize("name", ["text.txt", "train.tsv", "test.tsv"])
def test_keys_depend_on_contents(inputs, tmp_path, name):
    other = shutil.copytree(inputs, tmp_path / "other")
    with (other / name).open("a") as file:
        file.write("one more\tdog\n" if name.endswith("tsv") else "\n\none more document.\n")
    before, after = planned(inputs), planned(other)
    scores = [{cell.key for cell in plan.of("score")} for plan in (before, after)]
    assert not scores[0] & scores[1]
    corpora = [{cell.key for cell in plan.of("corpus")} for plan in (before, after)]
    assert (corpora[0] == corpora[1]) == name.endswith("tsv")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": "10tok"}, "less than a step"),
        ({"budget": "1e3flop"}, "less than a step"),
        ({"budget": "1ktok", "outlook": True}, "0.125 of the budget, with which the outlook begins.*2048tok"),
    ],
)
def test_impossible_budgets_are_refused(inputs, changes, message):
    with pytest.raises(UserError, match=message):
        planned(inputs, **changes)


def test_speed_is_measured_last(inputs):
    kinds = [cell.kind for cell in planned(inputs, outlook=True, budget="20ktok").cells]
    assert kinds[-2:] == ["cost", "cost"] and kinds.count("cost") == 2


def test_speed_is_not_measured_while_another_cell_is_computed(inputs, finished, tmp_path, replace_time):
    """Two cells of costs and one of a score are left, and another process has the latter for a while."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    plan = planned(inputs)
    *_, score = plan.of("score")
    left = [*plan.of("cost"), score]
    for cell in left:
        (folder_of(out, cell) / "result.json").unlink()
    lock = acquire(folder_of(out, score) / ".lock")
    seen = []

    def pause(seconds):
        seen.append([cell.kind for cell in left if result_of(out, cell) is None])
        if len(seen) == 2:
            lock.release()

    replace_time(work, sleep=pause)
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="again", quiet=True)
    assert seen == [["cost", "cost", "score"]] * 2
    assert all(result_of(out, cell) for cell in left)


def test_results_are_read_once_while_others_compute(inputs, finished, tmp_path, monkeypatch, replace_time):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    plan = planned(inputs)
    *_, score = plan.of("score")
    (folder_of(out, score) / "result.json").unlink()
    lock, read, pauses = acquire(folder_of(out, score) / ".lock"), [], []
    monkeypatch.setattr(work, "result_of", lambda out, cell: read.append(cell.key) or result_of(out, cell))

    def pause(seconds):
        pauses.append(len(read))
        if len(pauses) == 5:
            lock.release()

    replace_time(work, sleep=pause)
    monkeypatch.setattr(work, "_seconds_left", lambda *given: 0.0)
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="again", quiet=True)
    assert len(pauses) == 5 and pauses[0] <= len(plan.cells)
    assert set(read[pauses[0] : pauses[-1]]) == {score.key}, "only what is not done is looked for"


def test_equal_arms_are_refused(inputs):
    arms = dict(planned(inputs).comparison.arms)
    with pytest.raises(UserError, match="'bert' and 'again' are the same"):
        planned(inputs, arms={**arms, "again": arms["bert"]})


def test_floating_point_budgets_are_tokens_by_arm(inputs):
    plan = planned(inputs, budget="1e11flop")
    (small,) = (cell.paths["recipe"].budget.tokens for cell in plan.of("pretraining") if cell.seed == 0)
    wide = planned(inputs, budget="1e11flop", settings={**plan.comparison.settings, "encoder.width": 64})
    (large,) = (cell.paths["recipe"].budget.tokens for cell in wide.of("pretraining") if cell.seed == 0)
    assert small > 1.5 * large


def test_memory_that_does_not_fit_is_refused(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(type(choose_machine("cpu")), "available_memory", lambda machine: 1000)
    with pytest.raises(UserError, match="more than the"):
        unmask.compare(inputs / "pets.toml", out=tmp_path / "out", **HERE)
    assert not (tmp_path / "out").exists()


def test_wrong_labels_are_refused_before_anything_is_trained(inputs, tmp_path):
    words = {"text": inputs / "text.txt", "budget": "2ktok", "arms": "bert-tiny,random"}
    with pytest.raises(UserError, match="none"):
        unmask.compare(train=inputs / "train.tsv", columns={"text": "none"}, out=tmp_path / "out", **words, **HERE)
    (tmp_path / "few.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(UserError):
        unmask.compare(train=tmp_path / "few.tsv", out=tmp_path / "out", **words, **HERE)
    assert not (tmp_path / "out").exists()


def test_a_changed_comparison_lists_what_it_would_repeat(finished, inputs, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    changed = tmp_path / "changed.toml"
    text = (
        (inputs / "pets.toml")
        .read_text()
        .replace('["t', f'["{inputs}/t')
        .replace('["text.txt"]', f'["{inputs}/text.txt"]')
    )
    changed.write_text(text.replace("2ktok", "3ktok"))
    with pytest.raises(UserError, match=r"pretraining: bert, seed 0.*recompute"):
        unmask.compare(changed, out=out, **HERE)


def test_another_directory_is_refused(inputs, tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(UserError, match="not the directory of a comparison"):
        unmask.compare(inputs / "pets.toml", out=tmp_path, **HERE)


def test_a_failed_cell_stops_nothing_and_is_tried_again(inputs, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished[0], tmp_path / "out")
    (cell,) = (cell for cell in planned(inputs).of("score") if (cell.arm, cell.seed) == ("random", 0))
    shutil.rmtree(out / "cells" / cell.key)

    def fail(*arguments):
        raise RuntimeError("a broken disk")

    with monkeypatch.context() as patch:
        patch.setitem(compute.COMPUTE, "score", fail)
        outcome = unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert outcome.arm("random").state == "failed" and "broken disk" in outcome.arm("random").error
    assert outcome.arm("bert").state == "complete"
    assert "random has failed, and is not compared: a broken disk" in outcome.warnings
    assert "broken disk" in (out / "report.html").read_text()
    again = unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert again.arm("random").scores == finished[1].arm("random").scores


def test_interrupted_cells_continue(inputs, finished, tmp_path, stopped_at):
    out = tmp_path / "out"
    with stopped_at(4):
        unmask.compare(inputs / "pets.toml", out=out, **HERE)
    with stopped_at(2):
        unmask.compare(inputs / "pets.toml", out=out, **HERE)
    unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert results(out) == results(finished[0])


def test_a_process_that_ends_three_times_has_failed(inputs, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    plan = planned(inputs)
    (cell,) = (cell for cell in plan.of("score") if (cell.arm, cell.seed) == ("random", 0))
    (out / "cells" / cell.key / "result.json").unlink()
    (out / "cells" / cell.key / "cell.json").write_text(json.dumps({"attempt": "this", "attempts": 3}))
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="this", quiet=True)
    assert "3 times" in failure_of(out, cell).error


def test_what_another_process_computes_is_left_to_it(inputs, finished, tmp_path, monkeypatch, replace_time):
    out, plan = shutil.copytree(finished[0], tmp_path / "out"), planned(inputs)
    (cell,) = (cell for cell in plan.of("score") if (cell.arm, cell.seed) == ("random", 1))
    folder = out / "cells" / cell.key
    result = (folder / "result.json").read_bytes()
    (folder / "result.json").unlink()
    lock = acquire(folder / ".lock")
    monkeypatch.setattr(compute, "COMPUTE", {})
    replace_time(work, sleep=lambda seconds: (folder / "result.json").write_bytes(result))  # it finishes
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="this", quiet=True)
    lock.release()
    assert failure_of(out, cell) is None


def test_test_texts_in_the_text_are_counted(inputs, finished, tmp_path):
    folder = shutil.copytree(inputs, tmp_path / "inputs")
    rows = [line.split("\t")[0] for line in (folder / "test.tsv").read_text().splitlines()[1:]]
    with (folder / "text.txt").open("a") as file:
        file.write("\n\n" + ". ".join(row.upper() for row in rows[:7]) + "\n")
    plan = planned(folder)
    (cell,) = plan.of("overlap")
    assert compute.find_overlap(cell, tmp_path, {}, choose_machine("cpu", "float32")) == {
        "seen": 7,
        "examples": 30,
    }


def test_a_checkpoint_that_has_read_the_test_texts(inputs, finished, tmp_path):
    rows = [line.split("\t")[0] for line in (inputs / "test.tsv").read_text().splitlines()[1:]]
    (tmp_path / "read.txt").write_text("\n".join(rows * 8))
    settings = {**SETTINGS, "batch.tokens": 512, "budget.steps": 120, "stages": [], "objective.next_sentence": False}
    settings |= {"optimizer.learning_rate": 5e-3, "layout.kind": "document_sentences"}
    settings |= {"encoder.width": 64, "encoder.feed_forward": 128}
    unmask.pretrain(
        "bert-tiny", text=tmp_path / "read.txt", documents="line", out=tmp_path / "seen", settings=settings, **HERE
    )
    base = planned(inputs)
    other = folder_of(finished[0], next(iter(base.of("pretraining")))) / "run"
    for path, suspicious in ((tmp_path / "seen", True), (other, False)):
        models = {"checkpoint": Arm(model=str(path)), "adapted": Arm(model=str(path), way="adapt")}
        (cell,) = (plan := planned(inputs, arms={**base.comparison.arms, **models})).of("familiarity")
        assert plan.owners[cell.key] == list(models), "what it has read stays with it"
        compared = compute.compare_familiarity(cell, tmp_path, {}, choose_machine("cpu", "float32"))
        assert (compared["z"] < KNOWN and compared["test"] < CLEARLY * compared["train"]) == suspicious


def pretend(out, cell, share_right):
    """Write the result of a score: 1,000 test examples, of which a share is right."""
    folder = out / "cells" / cell.key
    folder.mkdir(parents=True)
    right = np.random.default_rng(0).random(1000) < share_right  # for each seed: two have little to say
    drawn = [right[np.random.default_rng(r).integers(1000, size=1000)].mean() * 100 for r in range(50)]
    np.save(folder / RESAMPLED, np.array([drawn], np.float32))
    result = {
        "deciding": ["accuracy"],
        "metric": "accuracy",
        "metrics": {"accuracy": float(100 * right.mean())},
        "independent": 1000,
        "elapsed": 1.0,
    }
    write_result(folder, cell, result)


def test_a_first_look_is_taken_by_this_process_alone(inputs, finished, tmp_path, monkeypatch):
    model = folder_of(finished[0], next(iter(planned(inputs).of("pretraining")))) / "run"
    counts: list[int] = []
    monkeypatch.setattr(compare_module, "local_workers", lambda count, *_: nullcontext(counts.append(count)))
    files = {"train": inputs / "train.tsv", "test": inputs / "test.tsv", "arms": [f"{model}", f"{model}@frozen"]}
    outcome = unmask.compare(**files, first=True, out=tmp_path / "out", **HERE)
    assert not any("Not finished" in note for note in outcome.notes)
    assert counts == [0] and [cell.name.partition(":")[0] for cell in outcome.cells] == ["look"]
    assert "without training" in outcome.recommendation[0]


def test_races_stop_what_is_clearly_worse(inputs, tmp_path):
    arms = planned(inputs).comparison.arms
    arms = {**arms, "frozen": msgspec.structs.replace(arms["bert"], use="frozen")}  # shares the models of bert
    plan, out = planned(inputs, arms=arms, seeds=5, race=True), tmp_path / "out"
    scores = {(cell.arm, cell.seed): cell for cell in plan.of("score")}
    models = {cell.seed: cell.key for cell in plan.of("pretraining")}
    first = race(plan, out)
    assert not first.stopped and {scores[name, 2].key for name in arms} <= first.waiting
    assert not first.waiting & {cell.key for cell in plan.cells if cell.seed < 2}
    for (name, seed), cell in scores.items():
        if seed < 2:
            pretend(out, cell, {"bert": 0.5, "random": 0.3, "frozen": 0.9}[name])
    second = race(plan, out)
    assert second.stopped == {scores[name, seed].key for name in ("bert", "random") for seed in (2, 3, 4)}
    assert second.waiting == {scores["frozen", seed].key for seed in (3, 4)} | {models[3], models[4]} | {
        scores[name, seed].key for name in ("bert", "random") for seed in (3, 4)
    }
    for seed in (2, 3):
        pretend(out, scores["frozen", seed], 0.9)
    third = race(plan, out)
    assert not third.waiting and models[4] not in third.stopped and scores["frozen", 4].key not in third.stopped


def test_a_race_ends(inputs, finished, tmp_path, monkeypatch):
    plan, out = planned(inputs, seeds=4, race=True), tmp_path / "out"
    for cell in plan.of("score"):
        if cell.arm == "random" and cell.seed < 2:
            pretend(out, cell, 0.1)

    def compute_score(cell, folder, *others):
        shutil.rmtree(folder)
        pretend(out, cell, 0.9)
        return result_of(out, cell)

    for kind in compute.COMPUTE:
        monkeypatch.setitem(compute.COMPUTE, kind, lambda *others: {"seconds": 0.0})
    monkeypatch.setitem(compute.COMPUTE, "score", compute_score)
    work.work(plan, out, choose_machine("cpu", "float32"), attempt="this", quiet=True)
    done = {(cell.arm, cell.seed) for cell in plan.of("score") if (out / "cells" / cell.key / "result.json").exists()}
    assert done == {("bert", seed) for seed in range(4)} | {("random", 0), ("random", 1)}


@pytest.mark.exhaustive
def test_two_processes_divide_the_cells(inputs, finished, tmp_path):
    command = [sys.executable, "-m", "unmask", "compare", str(inputs / "pets.toml"), "--out", str(tmp_path / "out")]
    command += ["--device", "cpu", "--precision", "float32", "--quiet", "--json", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert [arm["scores"]["pets"]["seeds"] for arm in outcome["arms"]] == [
        arm.scores["pets"].seeds for arm in finished[1].arms
    ]


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_killed_three_times_at_random(inputs, finished, tmp_path):
    out, rng = tmp_path / "out", random.Random(0)
    command = [
        sys.executable,
        "-m",
        "unmask",
        "compare",
        str(inputs / "pets.toml"),
        "--out",
        str(out),
        "--workers",
        "2",
    ]
    command += ["--device", "cpu", "--precision", "float32", "--quiet"]
    for number in range(1, 4):
        process = subprocess.Popen(command, start_new_session=True)
        while len(list(out.glob("cells/*/result.json"))) < 3 * number and process.poll() is None:
            time.sleep(rng.uniform(0.05, 0.3))
        os.killpg(process.pid, signal.SIGKILL)  # all of its workers, too
        process.wait()
    subprocess.run(command, check=True, timeout=1200)
    other = {
        "resampled",
        "files",
        "intervals",
        "engines",
        "left_out",
    }  # of as many resamples as users have, and of real engines
    unbroken, continued = (
        {name: {key: value for key, value in result.items() if key not in other} for name, result in each.items()}
        for each in (results(finished[0]), results(out))
    )
    assert continued == unbroken


def test_slurm_and_dry_runs_train_nothing(inputs, tmp_path):
    out = tmp_path / "out"
    outcome = unmask.compare(inputs / "pets.toml", out=out, slurm=True, workers=8, **HERE)
    assert f"unmask compare {out}/comparison.toml --out {out}" in outcome.script
    assert planned(inputs).cells == _plan_of(out / "comparison.toml").cells
    assert "#SBATCH --array=1-8" in outcome.script and not list(out.glob("cells/*"))
    dry = unmask.compare(inputs / "pets.toml", out=tmp_path / "none", dry_run=True, device="cpu")
    assert dry.arms == [] and len(dry.planned) == len(planned(inputs).cells) + 1
    assert any("pretraining: bert, seed 1" in line for line in dry.planned) and "cells, about" in dry.planned[-1]
    assert not (tmp_path / "none").exists()


def test_the_commands_of_cells_run(finished, inputs, tmp_path, monkeypatch):
    from unmask.cli.main import main

    _, outcome = finished
    monkeypatch.chdir(tmp_path)
    (cell,) = (cell for cell in outcome.cells if cell.name == "score: bert, pets, seed 1")
    words = cell.command.replace("RUN", str(tmp_path / "again")).split()[1:]
    assert main([*words, "--quiet"]) == 0
    assert words[words.index("--precision") + 1] == "float32", "as it was computed, not as it would be by default"
    metrics = json.loads((tmp_path / "again" / "dev.json").read_bytes())["metrics"]
    assert metrics["accuracy"] == pytest.approx(outcome.arm("bert").scores["pets"].seeds[1])
    assert Path("again").exists()
