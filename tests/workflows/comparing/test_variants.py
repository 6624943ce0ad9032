"""Comparisons on several numbers of examples, of students of other arms, and without tasks."""

import csv
import json
import re
import shlex
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
import torch

import unmask
from unmask.cli.main import main
from unmask.inference.bench import Bench
from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.support.messages import in_command, rendered
from unmask.support.settings import write
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.comparing import compute, planner
from unmask.workflows.comparing.cells import BITS, RESAMPLED, command_of, folder_of, result_of, write_result
from unmask.workflows.comparing.checks import check_comparison
from unmask.workflows.comparing.outcome import ArmOutcome, Estimate
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.recommendation import recommend
from unmask.workflows.comparing.report import as_markdown, as_page, summary
from unmask.workflows.comparing.results import conclude
from unmask.workflows.comparing.scores import race
from unmask.workflows.comparing.settings import Arm, Comparison, TaskData, read_comparison
from unmask.workflows.finetuning.examples import drawn
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel
from unmask.workflows.finetuning.prepare import prepare

from .test_report import faked

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
STUDENT = {"encoder.layers": 1, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}


def changed(inputs, **changes):
    """The comparison pets.toml with changes."""
    return msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **changes)


def planned(comparison):
    return Planner(comparison, comparison.named_arms(), "float32").plan()


def limited(inputs, *numbers):
    """The task of pets.toml with numbers of examples."""
    data = read_comparison(inputs / "pets.toml").tasks["pets"]
    return {"pets": msgspec.structs.replace(data, examples=list(numbers))}


def test_draws_of_more_examples_include_those_of_fewer():
    rng = np.random.default_rng(0)
    for _ in range(60):
        examples = list(range(rng.integers(1, 40)))
        few, many = sorted(rng.integers(1, len(examples) + 1, size=2).tolist())
        seed = {"seed": int(rng.integers(5))}
        smaller, larger = drawn(examples, few, seed), drawn(examples, many, seed)
        assert len(smaller) == few and len(larger) == many and set(smaller) <= set(larger) <= set(examples)
        assert larger == sorted(larger) and drawn(examples, None, seed) == examples
    assert drawn(list(range(99)), 9, {"seed": 1}) != drawn(list(range(99)), 9, {"seed": 2})


def test_a_task_for_each_number_of_examples(inputs):
    base = planned(changed(inputs))
    plan = planned(changed(inputs, tasks=limited(inputs, 8, 20)))
    assert list(plan.tasks) == ["pets-8", "pets-20"]
    cells = {(cell.arm, cell.task, cell.seed): cell for cell in plan.of("score")}
    assert len(cells) == 2 * 2 * 2 and {cell.inputs["examples"] for cell in cells.values()} == {8, 20}
    trained = {cell.key for cell in base.cells if cell.kind in ("corpus", "pretraining", "bits", "overlap")}
    assert trained < {cell.key for cell in plan.cells}, "what does not depend on the number is the same"
    job = compute._job(cells["random", "pets-8", 1], inputs, {"tokenizer": inputs}, choose_machine("cpu"))
    assert job.examples == 8 and job.settings["seed"] == 1
    (one,) = planned(changed(inputs, tasks=limited(inputs, 8))).tasks
    assert one == "pets"


def test_a_run_on_fewer_examples_knows_all_labels(inputs, published):
    files = read_comparison(inputs / "pets.toml").tasks["pets"].files
    machine = choose_machine("cpu", "float32")
    for number in (1, 5, 40):
        job = FinetuningJob("classification", InitialModel(published), files, {"seed": 3}, examples=number)
        ready = prepare(job, machine, Display(quiet=True), choosing=False)
        assert len(ready.data.train) == number and ready.data.labels == ("cat", "dog")


@pytest.fixture(scope="module")
def variants(inputs, tmp_path_factory):
    """A comparison of a recipe and a student of it, on three numbers of examples."""
    arms = {
        "bert": Arm(recipe="bert-tiny"),
        "student": Arm(teacher="bert", recipe="tinybert-mini", settings=STUDENT),
    }
    folder = tmp_path_factory.mktemp("variants")
    unlabelled = folder / "unlabelled.txt"
    unlabelled.write_text("a dog near the house\nthe cat sleeps\n")
    data = msgspec.structs.replace(limited(inputs, 10, 20, 40)["pets"], unlabelled=[str(unlabelled)])
    comparison = changed(inputs, arms=arms, tasks={"pets": data})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.metrics.intervals.RESAMPLES", 50)
        out = folder / "out"
        file = folder / "file.toml"
        file.write_text(write(comparison))
        patch.setattr(compute, "measure_engines", lambda *given, **sizes: Bench([], 0, []))
        outcome = unmask.compare(file, out=out, **HERE)
    return comparison, out, outcome


def test_students_learn_from_another_arm(variants):
    comparison, out, outcome = variants
    plan = planned(comparison)
    assert {arm.name: arm.state for arm in outcome.arms} == {"bert": "complete", "student": "complete"}
    for cell in plan.of("score"):
        inputs = json.loads((folder_of(out, cell) / "cell.json").read_bytes())
        if cell.arm != "student":
            continue
        teacher = cell.needs["teacher"]
        assert (teacher.arm, teacher.task, teacher.seed) == ("bert", cell.task, cell.seed)
        assert inputs["needs"] == {"teacher": teacher.key}
        assert (folder_of(out, teacher) / "run" / "model").is_dir(), "teachers of all seeds are kept"
        assert result_of(out, cell)["trained_on"] == int(cell.task.partition("-")[2]) + 2, "and the unlabelled texts"
        if cell.seed == 0:
            model = load_model(folder_of(out, cell) / "run")
            assert model.encoder.num_layers == 1 and model.labels == ("cat", "dog")
    assert "learns each task from bert" in outcome.arm("student").how
    assert not any("begins with" in line for line in (*outcome.warnings, *outcome.notes)), "of students"
    few = "pets-10, pets-20, pets-40: 30 independent test examples, so only large differences show."
    assert outcome.notes.count(few) == 1, "once for all tasks"
    assert outcome.arm("student").bits is None and not any(look.scores.get("student") for look in outcome.looks)


def test_curves_by_the_number_of_labels(variants, tmp_path):
    comparison, _, outcome = variants
    tasks = ["pets-10", "pets-20", "pets-40"]
    assert outcome.by_examples == {"pets": tasks}
    assert [outcome.tasks[name].trained_on for name in tasks] == [10, 20, 40]
    plan = planned(comparison)
    faked(plan, tmp_path, lambda cell: 0.9 - 2 / cell.inputs["examples"])
    outcome = conclude(plan, tmp_path, choose_machine("cpu", "float32"))
    page, markdown = as_page(outcome), as_markdown(outcome)
    assert "pets, by the number of labels" in page and "pets: with more labels, an extrapolation" in page
    expected = [(each.arm, each.times, each.task) for each in outcome.prospects]
    assert expected == [(arm, times, "pets") for arm in ("bert", "student") for times in (2, 4)]
    assert "| student | 4 times the labels of pets |" in markdown
    for each in outcome.prospects:
        assert 0 <= each.score.low <= each.score.mean <= each.score.high <= 100


def test_commands_of_students_and_of_fewer_examples_repeat_their_cells(variants, tmp_path, monkeypatch):
    comparison, out, outcome = variants
    for cell in planned(comparison).of("score"):
        if cell.seed or cell.task == "pets-40":
            continue
        command = rendered(command_of(out, cell), in_command)
        assert f"--examples {cell.inputs['examples']}" in command
        assert command in [each.command for each in outcome.cells]
        monkeypatch.chdir(tmp_path)
        run = f"{cell.arm}-{cell.task}"
        program, *words = shlex.split(command.replace("RUN", run))
        assert program == "unmask"
        assert main([*words, "--device", "cpu", "--precision", "float32", "--quiet"]) == 0
        again, first = load_model(tmp_path / run), load_model(folder_of(out, cell) / "run")
        ours, theirs = again.encoder.state_dict(), first.encoder.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"examples": [0]}, "at least one training example"),
        ({"examples": [5, 5]}, "task 'pets': examples names 5 twice"),
        ({"unlabelled": ["x.txt"]}, "no arm is a student"),
        ({"examples": [20, 41]}, "40 training examples, fewer than .*41.*at most 40"),
    ],
)
def test_impossible_examples_are_refused(inputs, tmp_path, changes, message):
    comparison = changed(inputs)
    data = msgspec.structs.replace(comparison.tasks["pets"], **changes)
    file = tmp_path / "file.toml"
    file.write_text(write(msgspec.structs.replace(comparison, tasks={"pets": data})))
    with pytest.raises(UserError, match=message):
        unmask.compare(file, out=tmp_path / "out", **HERE)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (Arm(teacher="berd"), "no arm 'berd'; did you mean 'bert'"),
        (Arm(teacher="other"), "its teacher is a student, too"),
        (Arm(teacher="bert", model="x"), "no effect on a student"),
        (Arm(teacher="bert", use="frozen"), "no effect on a student"),
        (Arm(teacher="bert", way="adapt"), "no effect on a student"),
        (Arm(recipe="bert-tiny", layers=2), "only a student has layers"),
        (Arm(teacher="bert", layers=0), "at least 1"),
        (Arm(teacher="bert", layers=2, settings={"encoder.width": 32}), "encoder.width.*layers determines the encoder"),
        (Arm(teacher="bert", settings={"tokenizer.vocabulary": 300}), "the teacher's tokenizer"),
        (Arm(teacher="bert", settings={"encoder.widht": 32}), "widht"),
        (Arm(teacher="bert", settings={"seed": 3}), "seed has no effect"),
        (Arm(teacher="bert", task_settings={"reset": 1}), "students are trained as a whole"),
    ],
)
def test_impossible_students_are_refused(inputs, arm, message):
    comparison = changed(inputs)
    arms = {**comparison.arms, "student": arm, "other": Arm(teacher="bert")}
    with pytest.raises(UserError, match=message):
        check_comparison(msgspec.structs.replace(comparison, arms=arms))


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("embedding", {}, "groups of texts; remove the arm or the task"),
        ("multiple-choice", {}, "groups of texts; remove the arm or the task"),
        ("classification", {"task.windows": 3}, "groups of windows; set task.windows to 1"),
        ("ranking", {}, ""),
        ("regression", {}, ""),
    ],
)
def test_students_of_groups_of_texts_are_refused(inputs, task, settings, message):
    comparison = changed(inputs)
    tasks = {**comparison.tasks, "other": TaskData(task=task, train=["x"], settings=settings)}
    arms = {**comparison.arms, "student": Arm(teacher="bert")}
    comparison = msgspec.structs.replace(comparison, arms=arms, tasks=tasks, task_settings={})
    with pytest.raises(UserError, match=f"'student', task 'other': .*{message}") if message else nullcontext():
        check_comparison(comparison)


def test_arms_without_tasks_are_compared_by_bits(inputs, tmp_path, monkeypatch):
    """End to end: the better arm learns, the other one hardly does."""
    monkeypatch.setattr(planner, "HELD_OUT", 600)
    slow = Arm(recipe="bert-tiny", settings={"optimizer.learning_rate": 1e-7})
    arms = {"slow": slow, "quick": Arm(recipe="bert-tiny", settings={"optimizer.learning_rate": 3e-3})}
    comparison = changed(inputs, arms=arms, tasks={}, task_settings={}, seeds=2, budget="4ktok")
    file = tmp_path / "file.toml"
    file.write_text(write(comparison))
    outcome = unmask.compare(file, out=tmp_path / "out", **HERE)
    assert [arm.name for arm in outcome.arms] == ["quick", "slow"] and outcome.tasks == {}
    quick, slow = outcome.arms
    assert len(quick.bits_by_seed) == 2 and quick.bits.mean == pytest.approx(np.mean(quick.bits_by_seed))
    assert quick.score.mean == pytest.approx(-quick.bits.mean) and quick.bits.low <= quick.bits.mean <= quick.bits.high
    assert slow.behind.mean == pytest.approx(slow.bits.mean - quick.bits.mean) and slow.behind.mean > 0
    assert quick.latency == 2 and quick.parameters > 0 and quick.learning_seconds == 0
    said = " ".join(outcome.recommendation)
    assert f"{slow.behind.mean:.3f} bits per character below slow" in said and f"{quick.bits.mean:.3f} (95 %" in said
    rows = list(csv.DictReader((tmp_path / "out" / "report.csv").read_text().splitlines()))
    assert [(row["arm"], row["task"], row["metric"]) for row in rows] == [
        (arm.name, "text", BITS) for arm in outcome.arms for _ in range(2)
    ]
    page, lines = (tmp_path / "out" / "report.html").read_text(), list(summary(outcome))
    assert "minus bits per character" in page and f"{quick.bits.mean:.3f} (" in page
    assert lines[-3].split("  ")[0] == "arm" and lines[-2].startswith("quick")
    plan = planned(comparison)
    for cell in plan.of("bits"):
        assert np.load(folder_of(tmp_path / "out", cell) / RESAMPLED).shape == (1, 50)
        assert result_of(tmp_path / "out", cell)["bits"] in outcome.arm(cell.arm).bits_by_seed


def pretend(plan, out, bits):
    """Write results of all cells of bits, of 40 documents."""
    for cell in plan.of("bits"):
        folder = folder_of(out, cell)
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0).normal(size=40)
        rng = np.random.default_rng(1)
        values = bits(cell) + 0.3 * noise + 0.001 * cell.seed
        np.save(
            folder / RESAMPLED, np.array([[values[rng.integers(40, size=40)].mean() for _ in range(50)]], np.float32)
        )
        mean = float(values.mean())
        result = {
            "bits": mean,
            "low": mean - 0.1,
            "high": mean + 0.1,
            "head": "masked_lm",
            "metric": BITS,
            "deciding": [BITS],
        }
        result |= {"metrics": {BITS: mean}, "independent": 40, "parameters": 9, "elapsed": 1.0}
        write_result(folder, cell, result)


def test_effects_and_outlook_without_tasks(inputs, tmp_path):
    """Planted: two layers need 0.3 bits less, half of the distance to 1 bit with four times the budget."""
    factors = {"encoder.layers": [1, 2], "masking": ["token", "span"]}
    comparison = changed(
        inputs, tasks={}, task_settings={}, arms={"bert": Arm(recipe="bert-tiny")}, vary=factors, seeds=4
    )
    plan = planned(comparison)
    pretend(plan, tmp_path, lambda cell: 2.5 - 0.3 * ("layers=2" in cell.arm) + 0.1 * ("span" in cell.arm))
    outcome = conclude(plan, tmp_path, choose_machine("cpu", "float32"))
    assert outcome.best == ["encoder.layers=2,masking=token"]
    changes = {effect.factor: effect.change.mean for effect in outcome.effects}
    assert changes == {"encoder.layers": pytest.approx(-0.3, abs=1e-6), "masking": pytest.approx(0.1, abs=1e-6)}
    arms = {name: Arm(recipe="bert-tiny", settings={"encoder.layers": n}) for name, n in (("one", 1), ("two", 2))}
    comparison = changed(inputs, tasks={}, task_settings={}, arms=arms, outlook=True, seeds=4, budget="16ktok")
    plan, out = planned(comparison), tmp_path / "outlook"
    pretend(plan, out, lambda cell: 1 + cell.share**-0.5 + (cell.arm == "one"))
    outcome = conclude(plan, out, choose_machine("cpu", "float32"))
    assert len(outcome.prospects) == 4
    for each in outcome.prospects:
        bits = outcome.arm(each.arm).bits.mean
        assert 0 < each.score.low <= each.score.mean <= each.score.high and each.score.mean < bits
        assert each.score.low <= 1 + each.times**-0.5 + (each.arm == "one") <= each.score.high


def test_races_without_tasks(inputs, tmp_path):
    arms = {name: Arm(recipe="bert-tiny", settings={"encoder.layers": n}) for name, n in (("good", 1), ("bad", 2))}
    plan = planned(changed(inputs, tasks={}, task_settings={}, arms=arms, seeds=4, race=True))
    pretend(plan, tmp_path, lambda cell: 1.0 + 2 * (cell.arm == "bad"))
    stopped = {(cell.arm, cell.seed) for cell in plan.cells if cell.key in race(plan, tmp_path).stopped}
    assert stopped == {("bad", 2), ("bad", 3)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": []}, "needs a task, or text to predict"),
        ({"task_settings": {"budget.epochs": 3}}, "task_settings have no effect"),
        ({"arms": ["bert-tiny", "random"]}, "'random' predicts no text"),
        ({"arms": ["bert-tiny", "bert-mini@frozen"]}, "use and task_settings have no effect"),
    ],
)
def test_impossible_comparisons_without_tasks_are_refused(inputs, changes, message):
    comparison = {"arms": ["bert-tiny", "bert-mini"], "text": ["a.txt"], "budget": "1min", **changes}
    with pytest.raises(UserError, match=message):
        check_comparison(Comparison(**comparison))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bert-mini,gpt-mini", "'bert-mini' is a masked language model, and 'gpt-mini' is not"),
        ("bert-mini,electra-mini", "'electra-mini' is no language model"),
        ("bert-mini,MINILM", "arm '.*': .*no head of a language model"),
        ("bert-mini", "'tokenizer.lowercase=False' distinguishes upper and lower case, and '.*=True' does not"),
    ],
)
def test_bits_that_cannot_be_compared_are_refused(inputs, tmp_path, minilm, words, message):
    files = {"text": inputs / "text.txt", "budget": "200ktok", "documents": "blank-line"}
    vary = ["tokenizer.lowercase=false,true"] if "," not in words else []
    with pytest.raises(UserError, match=message):
        unmask.compare(arms=words.replace("MINILM", str(minilm)), vary=vary, out=tmp_path / "out", **files, **HERE)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "documents", "message"),
    [
        (b"", "auto", r"there is no text in .*text\.txt"),
        (b" \n\n\t\n", "line", r"there is no text in .*text\.txt"),
        (b"a\xff\xfab", "auto", "every document was skipped"),
    ],
)
def test_text_without_documents_is_refused_before_anything_is_computed(tmp_path, content, documents, message):
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    with pytest.raises(UserError, match=message):
        unmask.compare(
            text=text, arms="bert-tiny,bert-mini", budget="9ktok", documents=documents, out=tmp_path / "out", **HERE
        )
    assert not (tmp_path / "out").exists()


def test_what_is_said_of_bits_is_what_was_measured():
    """In 60 draws: the best arm has the fewest bits, and the interval that is said is that of the difference."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        names = [["a", "b", "c"], ["x=1,y=1", "x=1,y=2", "x=2,y=1"]][rng.integers(2)][: rng.integers(2, 4)]
        noise, width = rng.normal(size=(50, 1)), rng.choice([0.001, 0.3])
        overall, arms = {}, []
        for name in names:
            bits = rng.uniform(1, 3) + rng.normal(0, width, 3)
            drawn_bits = bits[:, None] + 0.05 * noise.T + rng.normal(0, 0.01, (3, 50))
            overall[name] = Resampled((0, 1, 2), -bits, -drawn_bits, 40, None)
            mean = -float(bits.mean())
            arms.append(ArmOutcome(name, "", "complete", parameters=9, score=Estimate(mean, mean, mean)))
        lines, best = recommend(arms, [], overall, {}, {})
        means = {name: -float(arm.scores.mean()) for name, arm in overall.items()}
        leader, *others = sorted(means, key=means.__getitem__)
        second = next((name for name in others if name in best), others[0])
        said = " ".join(lines)
        seen.add(said.split()[0])
        assert leader in best and f"{means[second] - means[leader]:.3f} bits per character below {second}" in said
        score = re.search(rf"{means[leader]:.3f} \(95 %: (-?\d\.\d+) to (-?\d\.\d+)\)", said)
        assert float(score[1]) <= means[leader] + 1e-3 and means[leader] - 1e-3 <= float(score[2])
        low, high = map(float, re.search(r"(-?\d+\.\d{3}) to (-?\d+\.\d{3})(?:\)\.|\. More)", said).groups())
        assert low - 1e-3 <= means[second] - means[leader] <= high + 1e-3
        assert said.startswith("Use") == (best == [leader])
        assert low >= 0 if said.startswith("Use") else low <= 0
        assert said.startswith("Use") or f"Take {leader}, the one that needs the fewest bits" in said
        if not said.startswith("Use"):
            contenders = re.search(r"between ([^.]+)\.", said)[1]
            assert sorted(contenders.split("; " if "," in "".join(names) else ", ")) == sorted(best)
    assert seen == {"Use", "Too"}


def test_a_checkpoint_teaches_by_what_it_has(inputs, published, tmp_path):
    arms = {"random": Arm(recipe="bert-tiny", way="random"), "student": Arm(model=str(published), way="distill")}
    comparison = changed(inputs, arms=arms, seeds=1)
    (cell,) = planned(comparison).of("pretraining")
    assert "masked_lm" not in load_model(published).heads and list(cell.inputs["recipe"]["objective"]) == [
        "layer_matching"
    ]
    arms["student"] = msgspec.structs.replace(arms["student"], recipe="distilbert-mini")
    file = tmp_path / "file.toml"
    file.write_text(write(msgspec.structs.replace(comparison, arms=arms, settings={}, budget="9ktok")))
    with pytest.raises(UserError, match="arm 'student': the teacher has no masked_lm head"):
        unmask.compare(file, out=tmp_path / "out", **HERE)
    longer = {"layout.length": 4096, "encoder.positions": 4096, "encoder.heads": 2}
    arms["student"] = Arm(model=str(published), way="distill", settings=longer)
    file.write_text(write(msgspec.structs.replace(comparison, arms=arms, settings={}, budget="9ktok")))
    with pytest.raises(UserError, match=r"arm 'student': the layout's length 4096 exceeds the \d+ positions"):
        unmask.compare(file, out=tmp_path / "out", **HERE)
    assert not (tmp_path / "out").exists()
