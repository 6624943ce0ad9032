"""What cells measure: held-out passages, seconds of several starts, metrics, and models of the same shape."""

import json
import math
import time

import msgspec
import numpy as np
import pytest

from unmask.data.text.documents import TextOptions
from unmask.inference.bench import EngineMeasurement
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.usage import Usage
from unmask.workflows.comparing import compute
from unmask.workflows.comparing.cells import (
    FAILED,
    HELD,
    RESULT,
    Cell,
    Failure,
    failure_of,
    folder_of,
    result_of,
    write_result,
)
from unmask.workflows.comparing.results import conclude
from unmask.workflows.comparing.settings import Arm, read_comparison
from unmask.workflows.comparing.work import work

from .test_report import faked
from .test_variants import changed, planned

MACHINE = choose_machine("cpu", "float32")


def drawn(texts, folder, monkeypatch, *, characters=20_000, longest=1_000):
    """The passages that are drawn of held-out texts."""
    monkeypatch.setattr(compute, "held_out", lambda documents: iter(texts))
    monkeypatch.setattr(compute, "read_documents", lambda *given: [])
    inputs, paths = {"characters": characters, "longest": longest}, {"text": [], "reading": TextOptions()}
    cell = Cell("heldout", inputs, paths={**paths, "decides": True})
    result = compute.draw_heldout(cell, folder, {}, MACHINE)
    passages = [json.loads(line)["text"] for line in (folder / HELD).read_bytes().splitlines()]
    assert result == {"documents": len(texts), "passages": len(passages), "characters": sum(map(len, passages))}
    return passages


def test_passages_are_of_all_held_out_text(tmp_path, monkeypatch):
    """Not of its first documents, nor of the beginnings of documents."""
    texts = [" ".join(f"d{number}w{word}" for word in range(1000)) for number in range(200)]
    passages = drawn(texts, tmp_path, monkeypatch)
    assert 20_000 <= sum(map(len, passages)) <= 21_000 and max(map(len, passages)) <= 1_000
    owners = [int(passage.partition("w")[0][1:]) for passage in passages]
    assert len(set(owners)) == len(owners) and max(owners) > 150 and min(owners) < 50
    assert all(passage in texts[owner] for passage, owner in zip(passages, owners, strict=True))
    starts = [texts[owner].index(passage) / len(texts[owner]) for passage, owner in zip(passages, owners, strict=True)]
    assert sum(start > 0.4 for start in starts) > 4 and sum(start < 0.4 for start in starts) > 4
    words = [passage.split()[0] for passage in passages]
    assert all(word in texts[owner].split() for word, owner in zip(words, owners, strict=True)), "whole words"
    assert drawn(texts, tmp_path, monkeypatch) == passages
    assert sorted(drawn(texts[:5], tmp_path, monkeypatch, characters=10**9, longest=10**6)) == sorted(texts[:5])


@pytest.mark.parametrize("text", ["\u5b57" * 5_000, ("\u5b57" * 900 + "\n") * 5, "word " * 1_000])
def test_passages_of_all_scripts_are_long(tmp_path, monkeypatch, text):
    for passage in drawn([text] * 20, tmp_path, monkeypatch):
        assert len(passage) >= 950 and passage in text


def test_too_few_documents_decide_nothing(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="fewer than two documents are held out of the text; add to text"):
        drawn(["a text"], tmp_path, monkeypatch)


def test_seconds_of_learning_are_those_of_all_starts(inputs, finished, tmp_path, monkeypatch):
    cell = next(cell for cell in planned(changed(inputs)).of("score") if cell.arm == "random")
    needed = {name: folder_of(finished[0], other) for name, other in cell.needs.items()}
    monkeypatch.setattr(
        compute, "read_usage", lambda path: [Usage("a", 0.0, 600.0, 9.0), Usage("a", 900.0, 400.0, 9.0)]
    )
    start = time.monotonic()
    result = compute.learn_and_score(cell, tmp_path, needed, MACHINE)
    assert 1000 < result["seconds"] < 1000 + time.monotonic() - start


def test_scores_that_are_no_numbers_are_failures(inputs, finished, tmp_path, monkeypatch):
    cell = next(cell for cell in planned(changed(inputs)).of("score") if cell.arm == "random")
    needed = {name: folder_of(finished[0], other) for name, other in cell.needs.items()}
    monkeypatch.setattr(
        compute, "measure_all", lambda measure, number: {**measure(np.arange(number)), "accuracy": math.nan}
    )
    with pytest.raises(UserError, match="task 'pets': accuracy is not a number"):
        compute.learn_and_score(cell, tmp_path, needed, MACHINE)


def test_seconds_of_training_are_those_of_embeddings_and_of_a_search(tmp_path, monkeypatch):
    def pretrain(recipe, *, out, **options):
        for run, seconds in ((out, 40.0), (out / "search" / "x0.5", 2.0), (out / "search" / "x1", 3.0)):
            run.mkdir(parents=True)
            lines = [
                {"kind": "start", "step": 0, "seconds": 0.5},
                {"kind": "train", "step": 1, "seconds": 0.1, "tokens": 1},
            ]
            lines.append({"kind": "train", "step": 2, "seconds": seconds, "tokens": 100})
            RunDirectory(run).metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(compute, "pretrain", pretrain)
    cell = Cell("pretraining", {"way": "pretrain", "search": True}, paths={"recipe": "bert-tiny", "model": ""})
    result = compute.train_model(cell, tmp_path, {"corpus": tmp_path}, MACHINE)
    assert result["seconds"] == pytest.approx(46.5) and result["tokens"] == 300


def test_another_metric_computes_nothing_again(finished, inputs):
    out, outcome = finished
    tasks = read_comparison(inputs / "pets.toml").tasks
    other = {"pets": msgspec.structs.replace(tasks["pets"], metric="f1_macro")}
    plan = planned(changed(inputs, tasks=other))
    assert {cell.key for cell in plan.cells} == {cell.key for cell in planned(changed(inputs)).cells}
    again = conclude(plan, out, MACHINE)
    assert again.tasks["pets"].metric == "f1_macro" and outcome.tasks["pets"].metric == "accuracy"
    for arm in again.arms:
        stored = [result_of(out, cell)["metrics"]["f1_macro"] for cell in plan.of("score") if cell.arm == arm.name]
        assert arm.scores["pets"].seeds == pytest.approx(stored) and arm.scores["pets"].metric == "f1_macro"
    wrong = {"pets": msgspec.structs.replace(tasks["pets"], metric="exact_match")}
    with pytest.raises(UserError, match="task 'pets': no metric 'exact_match' to decide by; known: accuracy"):
        planned(changed(inputs, tasks=wrong))


def test_equal_tasks_are_refused(inputs):
    pets = read_comparison(inputs / "pets.toml").tasks["pets"]
    with pytest.raises(UserError, match="tasks 'pets' and 'again' are the same; remove one"):
        planned(changed(inputs, tasks={"pets": pets, "again": msgspec.structs.replace(pets, metric="f1")}))


def test_models_of_one_shape_are_equally_fast(inputs, tmp_path):
    """Noise of the measurement recommends nothing."""
    arms = {"bert": Arm(recipe="bert-tiny"), "frozen": Arm(recipe="bert-tiny", use="frozen")}
    plan = planned(changed(inputs, arms=arms))
    faked(plan, tmp_path, lambda cell: {"bert": 0.702, "frozen": 0.7}[cell.arm])
    for cell, latency in zip(plan.of("cost"), (4.0, 2.0), strict=True):
        rows = [EngineMeasurement("torch", "float32", 1000 / latency, latency, 9.0, 0.0)]
        folder_of(tmp_path, cell).mkdir(parents=True, exist_ok=True)
        result = {"engines": msgspec.to_builtins(rows), "shape": cell.arm, "elapsed": 1.0}
        write_result(folder_of(tmp_path, cell), cell, result)
    outcome = conclude(plan, tmp_path, MACHINE)
    assert {arm.name: arm.latency for arm in outcome.arms} == {"bert": 4.0, "frozen": 2.0}
    assert "Take frozen, the fastest" in outcome.recommendation[0]
    for cell in plan.of("cost"):
        result = result_of(tmp_path, cell)
        write_result(folder_of(tmp_path, cell), cell, {**result, "shape": "same"})
    outcome = conclude(plan, tmp_path, MACHINE)
    assert {arm.name: (arm.latency, arm.speed) for arm in outcome.arms} == dict.fromkeys(
        ("bert", "frozen"), (2.0, 500.0)
    )
    assert "Take bert, the one that scored highest" in outcome.recommendation[0]


def test_effects_are_told_without_an_arm_that_failed(inputs, tmp_path):
    factors = {"encoder.layers": [1, 2], "masking": ["token", "span"]}
    plan = planned(changed(inputs, vary=factors, seeds=3))
    faked(plan, tmp_path, lambda cell: 0.6 + 0.1 * ("layers=2" in cell.arm) + 0.04 * ("masking=span" in cell.arm))
    lost = "encoder.layers=2,masking=span"
    for cell in plan.of("score"):
        if cell.arm == lost and cell.seed == 1:
            (folder_of(tmp_path, cell) / RESULT).unlink()
            (folder_of(tmp_path, cell) / FAILED).write_bytes(msgspec.json.encode(Failure("no memory", "", ["x"])))
    outcome = conclude(plan, tmp_path, MACHINE)
    changes = {effect.factor: effect.change.mean for effect in outcome.effects}
    assert changes == {"encoder.layers": pytest.approx(10, abs=2), "masking": pytest.approx(4, abs=2)}
    assert any(f"told without {lost}, whose scores are not complete" in note for note in outcome.notes)


def test_what_is_not_known_is_warned_of(inputs, tmp_path):
    """A comparison whose search for test texts failed may have arms that have seen them."""
    plan = planned(changed(inputs))
    faked(plan, tmp_path, lambda cell: 0.7)
    (cell,) = plan.of("overlap")
    folder_of(tmp_path, cell).mkdir(parents=True, exist_ok=True)
    (folder_of(tmp_path, cell) / FAILED).write_bytes(msgspec.json.encode(Failure("cannot be read", "", ["x"])))
    warnings = conclude(plan, tmp_path, MACHINE).warnings
    assert "Not known, since it failed: overlap: pets (cannot be read)." in warnings


def test_cells_name_why_what_they_need_failed(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(compute, "COMPUTE", {})
    plan = planned(changed(inputs))
    score = next(cell for cell in plan.of("score") if cell.arm == "bert")
    corpus = score.needs["model"].needs["corpus"]
    folder_of(tmp_path, corpus).mkdir(parents=True)
    (folder_of(tmp_path, corpus) / FAILED).write_bytes(msgspec.json.encode(Failure("the disk is full", "", ["now"])))
    work(plan, tmp_path, MACHINE, attempt="now", quiet=True)
    assert failure_of(tmp_path, score, "now").error == "needs what failed: corpus: the disk is full"


@pytest.mark.parametrize(("seconds", "warned"), [(60, False), (70, False), (90, True), (40, True)])
def test_minutes_that_differ_from_the_budget_are_warned_of(inputs, tmp_path, seconds, warned):
    plan = planned(changed(inputs, budget="1min"))
    faked(plan, tmp_path, lambda cell: 0.7)
    for cell in plan.of("pretraining"):
        folder_of(tmp_path, cell).mkdir(parents=True, exist_ok=True)
        result = {"seconds": seconds, "tokens": 1, "memory": 0, "curve": [], "elapsed": 1.0}
        write_result(folder_of(tmp_path, cell), cell, result)
    warnings = " ".join(conclude(plan, tmp_path, MACHINE).warnings)
    assert (f"(bert {seconds / 60:.2g} times)" in warnings) == ("other minutes" in warnings) == warned


@pytest.mark.parametrize("width", [384, 32])
def test_students_of_teachers_of_another_width_learn_without_comparing_hidden_states(inputs, finished, width):
    model = folder_of(finished[0], next(planned(changed(inputs)).of("pretraining"))) / "run"
    arms = {"student": Arm(model=str(model), way="distill"), "random": Arm(recipe="bert-tiny", way="random")}
    settings = {"encoder.width": 32, "encoder.heads": 2} if width == 32 else {}
    plan = planned(changed(inputs, arms=arms, settings=settings, budget="9ktok", seeds=1))
    (cell,) = plan.of("pretraining")
    assert ("hidden_cosine" in cell.inputs["recipe"]["objective"]) == (width == 32)


def test_the_report_has_all_that_was_measured(finished):
    out, outcome = finished
    page, markdown = (out / "report.html").read_text(), (out / "report.md").read_text()
    for text in (page, markdown):
        assert "2 ms for one text in torch" in text and "calibration error of pets" in text
    assert "``" not in markdown and "All settings of pretraining: bert, seed 0" in page
    assert "learning_rate" in outcome.recipes["score: bert, pets, seed 0"]
    commands = {cell.name: cell.command for cell in outcome.cells}
    assert all(commands[name].startswith("unmask ") for name in ("corpus", "bits: bert", "cost: bert", "cost: random"))
    assert not any("\x02" in file.read_text() or r"\u0002" in file.read_text() for file in out.glob("report.*"))
    assert "-0.0" not in markdown
