"""What cells are made of: each file and model is read once for a plan, and what changes in between is noticed."""

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import unmask
from unmask.support import fingerprint
from unmask.support.errors import UnmaskError
from unmask.training.machine import choose_machine
from unmask.workflows.comparing import cells, compute, work
from unmask.workflows.comparing.cells import Contents, failure_of, folder_of
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.settings import Arm, read_comparison

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.fixture
def seen(monkeypatch):
    """How often each file and model is read for its fingerprint."""
    seen = Counter()

    def counting(read):
        def counted(path, *arguments):
            seen[str(path)] += 1
            return read(path, *arguments)

        return counted

    for name in ("fingerprint_source", "fingerprint_path"):
        monkeypatch.setattr(cells, name, counting(getattr(cells, name)))
    return seen


def test_each_file_and_model_is_read_once(inputs, published, seen):
    comparison = read_comparison(inputs / "pets.toml")
    pets = msgspec.structs.replace(comparison.tasks["pets"], examples=[10, 20, 30])
    others = {use: Arm(model=str(published), use=use) for use in ("finetuned", "frozen", "average")}
    more = msgspec.structs.replace(comparison, tasks={"pets": pets}, arms={**comparison.arms, **others})
    plan = Planner(more, more.named_arms(), "float32").plan()
    assert len({cell.task for cell in plan.of("score")}) == 3
    files = (*more.text, *pets.train, *pets.test, str(published))
    assert seen == dict.fromkeys(files, 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("train.tsv", "score", marks=pytest.mark.exhaustive),
        ("test.tsv", "score"),
        ("text.txt", "corpus"),
    ],
)
def test_what_changes_in_between_has_no_result(inputs, finished, tmp_path, monkeypatch, name, kind):
    """No result of other contents is stored, and what was made of them is not used when the file is as it was."""
    moved, out = shutil.copytree(inputs, tmp_path / "moved"), shutil.copytree(finished[0], tmp_path / "out")
    for path in (out / "cells").glob("*/cell.json"):
        if json.loads(path.read_bytes())["kind"] in (kind, "pretraining", "score", "cost"):
            shutil.rmtree(path.parent)
    before, compute_it = (moved / name).read_bytes(), compute.COMPUTE[kind]

    def changing(*arguments):
        if (moved / name).read_bytes() == before:
            more = b"\n\na dog sleeps near the road.\n" if name == "text.txt" else b"a dog sleeps\tdog\n"
            (moved / name).write_bytes(before + more)
        return compute_it(*arguments)

    with monkeypatch.context() as patch:
        patch.setitem(compute.COMPUTE, kind, changing)
        with pytest.raises(
            UnmaskError, match=rf"every arm has failed: .*{name}: has changed since the comparison began"
        ):
            unmask.compare(moved / "pets.toml", out=out, **HERE)
    cells = json.loads((out / "report.json").read_bytes())["cells"]
    states = {(cell["name"].partition(":")[0], cell["state"]) for cell in cells}
    assert (kind, "failed") in states and (kind, "done") not in states
    (moved / name).write_bytes(before)
    again = unmask.compare(moved / "pets.toml", out=out, **HERE)
    assert [arm.scores for arm in again.arms] == [arm.scores for arm in finished[1].arms]


def test_files_are_read_again_if_they_may_have_changed(inputs, published, seen, tmp_path, monkeypatch):
    """Generated: any of a size, a time and a file at the same path, changed or not; recent times show nothing."""
    names = [shutil.copy(inputs / name, tmp_path) for name in ("text.txt", "train.tsv")]
    model = str(shutil.copytree(published, tmp_path / "model"))
    known, rng = Contents(), random.Random(0)
    monkeypatch.setattr(fingerprint, "COARSE", -60)  # as if all had been written a while ago

    def read():
        known.forget_changed([*names, model])
        return [*known.of_files("text", names), known.of_model(model)]

    def replace(path):
        shutil.copy(path, tmp_path / "aside")
        (tmp_path / "aside").replace(path)

    changes = [
        lambda path: None,
        lambda path: path.write_bytes(path.read_bytes() + b" more"),
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
        lambda path: os.utime(path, ns=(1, rng.randrange(10**18))),
        replace,
    ]
    before = read()
    for _ in range(40):
        place = rng.choice([*names, f"{model}/config.json", f"{model}/model.safetensors"])
        change = rng.choice(changes)
        seen.clear()
        change(Path(place))
        after = read()
        assert sum(seen.values()) == (change is not changes[0]), "what has changed is read, and nothing else"
        assert after == [*Contents().of_files("text", names), Contents().of_model(model)]
        assert (after != before) == (change in changes[1:3])
        before = after


def test_files_that_were_written_just_now_are_read_again(inputs, seen, tmp_path):
    """They may be written once more at a time that is the same."""
    known, name = Contents(), str(shutil.copy(inputs / "text.txt", tmp_path))
    for times in (1, 2):
        known.forget_changed([name])
        known.of_files("text", [name])
        assert seen[name] == times


def test_tokenizers_that_change_in_between_make_no_corpus(inputs, published, tmp_path, monkeypatch):
    model = shutil.copytree(published, tmp_path / "model")
    comparison = read_comparison(inputs / "pets.toml")
    arms = {"adapted": Arm(model=str(model), way="adapt"), "as it is": Arm(model=str(model))}
    comparison = msgspec.structs.replace(comparison, arms=arms, settings={}, budget="10ktok")
    plan = Planner(comparison, comparison.named_arms(), "float32").plan()
    (cell,) = plan.of("corpus")

    def changing(*arguments):
        made = make_corpus(*arguments)
        (model / "vocab.txt").write_text("other")
        return made

    make_corpus = compute.COMPUTE["corpus"]
    folder_of(tmp_path / "out", cell).mkdir(parents=True)
    monkeypatch.setitem(compute.COMPUTE, "corpus", changing)
    work._compute(cell, tmp_path / "out", choose_machine("cpu", "float32"), "", plan.contents)
    assert "model: has changed since" in failure_of(tmp_path / "out", cell).error
    assert not list(tmp_path.glob("out/cells/*/corpus"))
