"""Results that are not comparable: failed arms, long lists of mistakes, machines that are not equally fast."""

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import unmask
from unmask.inference.bench import EngineMeasurement
from unmask.inference.evaluation.likelihood import TokenizedText
from unmask.metrics.comparison.decision import listed
from unmask.support.settings import write
from unmask.tasks.mistakes import Mistake, Passage
from unmask.tasks.rows import as_rows
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.comparing import compute, work
from unmask.workflows.comparing.cells import (
    FAILED,
    MISTAKES,
    RESULT,
    Cell,
    Failure,
    folder_of,
    result_of,
    write_result,
)
from unmask.workflows.comparing.recommendation import limits
from unmask.workflows.comparing.report import summary
from unmask.workflows.comparing.results import conclude
from unmask.workflows.comparing.scores import race
from unmask.workflows.comparing.settings import Arm, read_comparison
from unmask.workflows.finetuning import finetune
from unmask.workflows.finetuning.prepare import prepare

from .test_report import faked
from .test_variants import changed, planned

MACHINE = choose_machine("cpu", "float32")


def test_an_arm_that_failed_is_not_the_best_one(inputs, tmp_path):
    """It has two of three seeds, and both are better than those of the other arm."""
    plan = planned(changed(inputs, seeds=3))
    faked(plan, tmp_path, lambda cell: 0.9 if cell.arm == "random" else 0.6)
    (last,) = (cell for cell in plan.of("score") if (cell.arm, cell.seed) == ("random", 2))
    (folder_of(tmp_path, last) / RESULT).unlink()
    (folder_of(tmp_path, last) / FAILED).write_bytes(msgspec.json.encode(Failure("the disk is full", "", ["x"])))
    outcome = conclude(plan, tmp_path, MACHINE)
    assert outcome.best == ["bert"] and outcome.arm("bert").behind is None
    assert outcome.recommendation[0] == "Nothing is recommended: no other arm than bert has all its scores."
    assert (outcome.arm("random").state, outcome.arm("random").error) == ("failed", "the disk is full")
    assert outcome.arm("random").score is None and outcome.arms[0].name == "bert"


def told_of(inputs, out, accuracy, constant=50.0, **changes):
    """The outcome of planted accuracies, with the score of one prediction for all examples."""
    plan = planned(changed(inputs, **{"seeds": 3, **changes}))
    faked(plan, out, accuracy)
    for cell in plan.of("score"):
        result = result_of(out, cell)
        write_result(folder_of(out, cell), cell, {**result, "constant": {"accuracy": constant}})
    return conclude(plan, out, MACHINE)


@pytest.mark.parametrize(
    ("bert", "random", "constant", "said"),
    [
        (0.505, 0.50, 50.0, "No arm scores clearly above the same prediction for all examples (50.0): nothing shows"),
        (0.80, 0.797, 50.0, "No arm is clearly better than random weights, random: what others learned before"),
        (0.797, 0.80, 50.0, "No arm is clearly better than random weights, random: what others learned before"),
        (0.80, 0.50, 50.0, "Use bert: "),
        (0.80, 0.90, 50.0, "No arm is clearly better than random weights, random: "),
    ],
)
def test_arms_that_have_learned_nothing_are_said_to(inputs, tmp_path, bert, random, constant, said):
    outcome = told_of(inputs, tmp_path, lambda cell: bert if cell.arm == "bert" else random, constant)
    first, second = outcome.recommendation
    assert first.startswith(said) and outcome.tasks["pets"].constant == constant
    best = max(outcome.arms, key=lambda arm: arm.score.mean)
    assert f"{best.score.mean:.1f} (95 %: {best.score.low:.1f} to {best.score.high:.1f})" in second
    assert "Take" not in first and outcome.best[0] == best.name
    if not said.startswith("Use"):
        assert second.startswith(f"{best.name} scored highest, ") and f" above {outcome.arms[1].name}" in second


def test_tasks_that_no_arm_has_learned_are_named(inputs, tmp_path):
    tasks = dict(read_comparison(inputs / "pets.toml").tasks)
    tasks["again"] = msgspec.structs.replace(tasks["pets"], columns={"text": "text"})
    outcome = told_of(
        inputs,
        tmp_path,
        lambda cell: 0.5 if cell.task == "again" else 0.9 if cell.arm == "bert" else 0.6,
        tasks=tasks,
    )
    assert outcome.recommendation[0].startswith("Use bert: ")
    warned = [note for note in outcome.notes if "the same prediction for all examples (50.0)" in note]
    assert [note.split(":")[0] for note in warned] == ["again"]


def test_notes_name_the_arms_of_which_they_are_true(inputs, tmp_path):
    plan = planned(changed(inputs, seeds=2))
    faked(plan, tmp_path, lambda cell: 0.6)
    for cell in plan.of("score"):
        notes = ["of all", *(["of one"] if cell.arm == "bert" else []), f"of {cell.arm}, seed {cell.seed}"]
        told = {"notes": notes, "warnings": ["all is wrong"] if cell.arm == "bert" else []}
        write_result(folder_of(tmp_path, cell), cell, {**result_of(tmp_path, cell), **told})
    outcome = conclude(plan, tmp_path, MACHINE)
    noted = [line for line in outcome.notes if line.startswith("pets: ")]
    of_seeds = [f"pets: {arm}: of {arm}, seed {seed}." for arm in ("bert", "random") for seed in (0, 1)]
    assert sorted(noted) == sorted(["pets: of all.", "pets: bert: of one.", *of_seeds])
    assert outcome.warnings == ["pets: bert: all is wrong."]
    printed = list(summary(outcome))
    assert "warning: pets: bert: all is wrong." in printed and set(noted) < set(printed)
    assert listed(["x=1,y=1", "x=1,y=2"]) == "x=1,y=1; x=1,y=2"


def test_what_a_tokenizer_does_not_let_an_arm_predict_is_told(inputs, tmp_path):
    plan, note = planned(changed(inputs)), "the tokenizer is uncased: the case of letters is not predicted"
    faked(plan, tmp_path, lambda cell: 0.6)
    (cell,) = plan.of("bits")
    folder_of(tmp_path, cell).mkdir()
    write_result(folder_of(tmp_path, cell), cell, {"notes": [note], "elapsed": 1.0})
    assert f"bert: {note}." in conclude(plan, tmp_path, MACHINE).notes


def test_the_table_of_a_race_has_the_intervals_of_the_recommendation(inputs, tmp_path):
    arms = dict(read_comparison(inputs / "pets.toml").arms) | {"bad": Arm(recipe="bert-tiny", use="frozen")}
    plan = planned(changed(inputs, arms=arms, seeds=4, race=True))
    faked(plan, tmp_path, lambda cell: {"bert": 0.9, "random": 0.85, "bad": 0.5}[cell.arm])
    for cell in plan.of("score"):
        if cell.arm == "bad" and cell.seed > 1:
            (folder_of(tmp_path, cell) / RESULT).unlink()
    outcome = conclude(plan, tmp_path, MACHINE)
    assert {arm.name: arm.state for arm in outcome.arms} == {"bert": "complete", "random": "complete", "bad": "stopped"}
    behind = outcome.arm("random").behind
    assert f"{behind.mean:.1f} points above random" in outcome.recommendation[0]
    assert f"({behind.low:.1f} to {behind.high:.1f})" in outcome.recommendation[0]
    assert outcome.arm("bad").behind.low > 30


def test_mistakes_beyond_those_that_are_described_are_mistakes(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(compute, "MAX_MISTAKES", 2)
    plan = planned(changed(inputs))
    faked(plan, tmp_path, lambda cell: 0.7)
    wrong = {"bert": ["1", "2", "3", "4"], "random": ["3", "4", "5", "1"]}
    for cell in plan.of("score"):
        file = f"{cell.arm}.tsv"  # the same file, elsewhere
        mistakes = [Mistake((Passage("text"),), f"{file}:{n}", 1.0, "probability", "a", "b") for n in wrong[cell.arm]]
        folder, result = folder_of(tmp_path, cell), result_of(tmp_path, cell)
        (folder / MISTAKES).write_bytes(json.dumps(compute._listed(mistakes, [file])).encode())
        write_result(folder, cell, result)
    differing = {(each.wrong, each.where) for each in conclude(plan, tmp_path, MACHINE).differing}
    assert differing == {("bert", "bert.tsv:2")}, "1 is a mistake of both, and of 5 there is no text"


def test_engines_whose_outputs_differ_are_not_the_fastest(inputs, tmp_path):
    """The scores are those of torch, not of an int8 model that says something else."""
    plan = planned(changed(inputs))
    faked(plan, tmp_path, lambda cell: 0.7)
    for cell, differs in zip(plan.of("cost"), (0.01, 0.3), strict=True):
        rows = [EngineMeasurement("torch", "float32", 100.0, 4.0, 5.0, 0.0)]
        rows.append(EngineMeasurement("onnx", "int8", 900.0, 1.0, 2.0, differs))
        folder_of(tmp_path, cell).mkdir(parents=True, exist_ok=True)
        write_result(
            folder_of(tmp_path, cell), cell, {"engines": msgspec.to_builtins(rows), "shape": cell.arm, "elapsed": 1.0}
        )
    outcome = conclude(plan, tmp_path, MACHINE)
    fastest = {arm.name: (arm.engine, arm.engine_latency, arm.speed) for arm in outcome.arms}
    assert fastest == {"bert": ("onnx int8", 1.0, 900.0), "random": ("torch float32", 4.0, 100.0)}
    assert {arm.learning_seconds for arm in outcome.arms} == {1.0}


def test_rates_are_chosen_by_the_metric_that_decides_on_training_examples(inputs, published, tmp_path, monkeypatch):
    data = msgspec.structs.replace(
        read_comparison(inputs / "pets.toml").tasks["pets"], examples=[40], metric="f1_macro"
    )
    arms = {use: Arm(model=str(published), use=use) for use in ("finetuned", "frozen")}
    cell = next(planned(changed(inputs, arms=arms, tasks={"pets": data}, search=True)).of("rate"))
    metrics = {run: {"accuracy": 10.0 * run, "f1_macro": 50 - run**2} for run in range(4)}
    runs, parts = [], []

    def run_job(job, run, *, choosing, **options):
        runs.append(run)
        parts.append(prepare(job, MACHINE, Display(quiet=True), choosing=choosing).data)

    monkeypatch.setattr(finetune, "run_job", run_job)
    monkeypatch.setattr(finetune, "_rate", lambda run: float(runs.index(run) + 1))
    monkeypatch.setattr(finetune, "_metrics", lambda run: metrics[runs.index(run)])
    chosen = compute.choose_rate(cell, tmp_path, {}, MACHINE)
    assert chosen == {"rate": 1.0, "scores": {f"{run + 1}": 50 - run**2 for run in range(4)}}
    train, test = (texts_of(inputs / f"{name}.tsv") for name in ("train", "test"))
    for part in parts:
        used = {row.values["text"] for row in (*part.train, *part.held)}
        assert used == train and not used & test and len(part.held) == 4


@pytest.mark.parametrize("number", [1, 199, 200, 201, 399, 400, 599, 4321])
def test_the_texts_that_a_checkpoint_may_know_are_of_the_whole_file(inputs, tmp_path, monkeypatch, number):
    """Files may be sorted, by their labels or by where texts are from."""
    read = []

    class Likelihood:
        def encode(self, texts):
            read.append([int(text) for text in texts])
            return [TokenizedText(np.array([0]), np.array([0])) for _ in texts]

        def __call__(self, texts):
            return [np.array([-1.0]) for _ in texts]

    parts = SimpleNamespace(train=as_rows(list(map(str, range(number)))), held=as_rows(["0", "1"]))
    monkeypatch.setattr(compute, "read_parts", lambda task, files: parts)
    monkeypatch.setattr(compute, "load_model", lambda path: None)
    monkeypatch.setattr(compute, "_likelihood", lambda model, machine: Likelihood())
    cell = Cell("familiarity", {"task": "classification"}, paths={"files": None, "model": ""})
    compute.compare_familiarity(cell, tmp_path, {}, MACHINE)
    steps = {after - before for before, after in pairwise(read[0])}
    assert len(read[0]) <= compute.FAMILIAR and len(steps) <= 1
    assert number - 1 - read[0][-1] < max(steps, default=1) and (number <= 200 or len(read[0]) > 100)


def texts_of(file):
    return {line.split("\t")[0] for line in file.read_text().splitlines()[1:]}


@pytest.mark.parametrize("kind", ["cost", "pretraining"])
def test_machines_that_differ_are_named(inputs, tmp_path, kind):
    plan = planned(changed(inputs, budget="1min"))
    faked(plan, tmp_path, lambda cell: 0.7)
    for number, cell in enumerate(plan.of(kind)):
        folder = folder_of(tmp_path, cell)
        folder.mkdir(parents=True, exist_ok=True)
        result = {"engines": [], "seconds": 1.0, "tokens": 9, "memory": 0, "curve": [], "elapsed": 1.0}
        write_result(folder, cell, {**result, "machine": {**MACHINE.describe(), "threads": 61 + number % 2}})
    warnings = [each for each in conclude(plan, tmp_path, MACHINE).warnings if "different machines" in each]
    assert len(warnings) == 1 and "61 threads" in warnings[0] and "62 threads" in warnings[0]


def test_other_processes_measure_no_speed(inputs, finished, tmp_path, monkeypatch):
    """They have fewer threads than the process of the user, whose speeds would not be comparable with theirs."""
    out, plan = shutil.copytree(finished[0], tmp_path / "out"), planned(changed(inputs))
    for cell in plan.of("cost"):
        shutil.rmtree(folder_of(out, cell))
    work.work(plan, out, MACHINE, attempt="a", quiet=True, measures=False)
    assert not any(result_of(out, cell) for cell in plan.of("cost"))
    work.work(plan, out, MACHINE, attempt="a", quiet=True)
    assert all(result_of(out, cell) for cell in plan.of("cost"))


def test_a_first_look_replaces_no_report_of_more(inputs, published, tmp_path):
    arms = {use: Arm(model=str(published), use=use) for use in ("finetuned", "frozen")}
    comparison = changed(inputs, arms=arms, text=[], budget="", settings={}, documents="auto")
    faked(planned(comparison), tmp_path / "out", lambda cell: 0.9 if cell.arm == "frozen" else 0.6)
    (tmp_path / "file.toml").write_text(write(comparison))
    options = {"device": "cpu", "precision": "float32", "quiet": True}
    outcome = unmask.compare(tmp_path / "file.toml", out=tmp_path / "out", first=True, **options)
    assert {arm.name: arm.state for arm in outcome.arms} == {"frozen": "complete", "finetuned": "complete"}
    (look,) = outcome.looks
    assert set(look.scores) == {"frozen", "finetuned"}, "both arms have the features of the checkpoint"


def test_test_examples_are_called_so(inputs, published, tmp_path):
    words = {"arms": f"{published}@frozen,{published}@average", "seeds": 1}
    files = {"train": inputs / "train.tsv", "test": shutil.copy(inputs / "train.tsv", tmp_path / "test.tsv")}
    options = {"device": "cpu", "precision": "float32", "quiet": True}
    outcome = unmask.compare(out=tmp_path / "out", **words, **files, **options)
    (warning,) = [each for each in outcome.warnings if "training examples" in each]
    assert "40 of the 40 test examples (100.0 %) are also training examples" in warning
    assert " dev " not in (tmp_path / "out" / "report.md").read_text().partition("Cells:")[0]


def raced(inputs, out, accuracy, milliseconds=None):
    """The plan of a race of four seeds with planted scores and latencies by arm; arms that stop have two seeds."""
    arms = {name: Arm(recipe="bert-tiny", settings={"encoder.positions": 64 + n}) for n, name in enumerate(accuracy)}
    plan = planned(changed(inputs, arms=arms, seeds=4, race=True))
    faked(plan, out, lambda cell: accuracy[cell.arm])
    for cell in plan.of("cost"):
        folder_of(out, cell).mkdir(parents=True, exist_ok=True)
        rows = [EngineMeasurement("torch", "float32", 100.0, (milliseconds or {}).get(cell.arm, 1.0), 5.0, 0.0)]
        result = {"engines": msgspec.to_builtins(rows), "shape": cell.arm, "elapsed": 1.0}
        write_result(folder_of(out, cell), cell, result)
    stopped = race(plan, out).stopped
    for cell in plan.of("score"):
        if cell.key in stopped:
            (folder_of(out, cell) / RESULT).unlink()
    return plan


def test_an_arm_that_a_slow_one_stopped_may_be_the_best_of_the_fast_ones(inputs, tmp_path):
    """All fast arms are clearly worse than the slow one; they were never compared with each other."""
    accuracy = {"slow": 0.9, "fast": 0.7, "also fast": 0.7}
    plan = raced(inputs, tmp_path, accuracy, {"slow": 9.0})
    outcome = conclude(plan, tmp_path, MACHINE)
    stopped = re.fullmatch("Use slow: (.+) stopped early, as clearly worse.", outcome.recommendation[0])
    assert sorted(stopped[1].split(", ")) == ["also fast", "fast"]
    assert outcome.best == ["slow"] and {arm.state for arm in outcome.arms} == {"complete", "stopped"}
    fast = conclude(plan, tmp_path, MACHINE, limits(["5ms"]))
    assert fast.best == [] and fast.recommendation[0].startswith("Not decided within 5 ms: fast, also fast")
    assert conclude(plan, tmp_path, MACHINE, limits(["20ms"])).best == ["slow"]


def test_an_arm_that_failed_stops_none(inputs, tmp_path):
    accuracy = {"fails": 0.95, "good": 0.8, "bad": 0.6}
    plan = raced(inputs, tmp_path, accuracy)
    fails = [cell for cell in plan.of("score") if cell.arm == "fails"]
    for cell in plan.of("score"):
        if cell.arm != "fails":
            faked(replace(plan, cells=(cell,)), tmp_path, lambda cell: accuracy[cell.arm])
    (folder_of(tmp_path, fails[1]) / RESULT).unlink()
    (folder_of(tmp_path, fails[1]) / FAILED).write_bytes(msgspec.json.encode(Failure("the disk is full", "", ["x"])))
    assert race(plan, tmp_path).losers == {"bad": "good"}
    for cell in plan.of("score"):  # now it fails later, when it has stopped the others
        if cell.arm == "fails" and cell.seed < 2:
            faked(replace(plan, cells=(cell,)), tmp_path, lambda cell: accuracy[cell.arm])
    (folder_of(tmp_path, fails[2]) / FAILED).write_bytes(msgspec.json.encode(Failure("the disk is full", "", ["x"])))
    (folder_of(tmp_path, fails[2]) / RESULT).unlink()
    losers = race(plan, tmp_path).losers
    assert losers == {"good": "fails", "bad": "fails"}
    for cell in plan.of("score"):
        if cell.arm in losers and cell.seed > 1:
            (folder_of(tmp_path, cell) / RESULT).unlink()
    outcome = conclude(plan, tmp_path, MACHINE)
    assert outcome.best == [] and "Not decided: good" in outcome.recommendation[0]


def test_an_arm_that_was_complete_before_the_race_began_has_not_stopped(inputs, tmp_path):
    """The race names it as a loser of an arm that is too slow, but it is compared with all of its scores."""
    plan = raced(inputs, tmp_path, {"slow": 0.9, "fast": 0.7, "also fast": 0.7}, {"slow": 9.0})
    faked(plan, tmp_path, lambda cell: 0.9 if cell.arm == "slow" else 0.7 + 0.01 * len(cell.arm))
    assert race(plan, tmp_path).losers.keys() == {"fast", "also fast"}
    outcome = conclude(plan, tmp_path, MACHINE, limits(["5ms"]))
    assert {arm.state for arm in outcome.arms} == {"complete"}
    assert outcome.recommendation[0].startswith("Use also fast within 5 ms")
