"""What cells are made of: each file and model is read once for a plan, and what changes in between is noticed."""

import json
import shutil
from collections import Counter

import msgspec
import pytest

import unmask
from unmask.support.errors import UnmaskError
from unmask.workflows.comparing import compute, contents
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.settings import Arm, read_comparison

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


def test_each_file_and_model_is_read_once(inputs, published, monkeypatch):
    seen = Counter()

    def counting(read):
        def counted(path, *arguments):
            seen[str(path)] += 1
            return read(path, *arguments)

        return counted

    for name in ("fingerprint_source", "fingerprint_path"):
        monkeypatch.setattr(contents, name, counting(getattr(contents, name)))
    comparison = read_comparison(inputs / "pets.toml")
    pets = msgspec.structs.replace(comparison.tasks["pets"], examples=[10, 20, 30])
    others = {use: Arm(model=str(published), use=use) for use in ("finetuned", "frozen", "average")}
    more = msgspec.structs.replace(comparison, tasks={"pets": pets}, arms={**comparison.arms, **others})
    plan = Planner(more, more.named_arms(), "float32").plan()
    assert len({cell.task for cell in plan.of("score")}) == 3
    files = (*more.text, *pets.train, *pets.test, str(published))
    assert seen == dict.fromkeys(files, 1)


@pytest.mark.parametrize(("name", "kind"), [("train.tsv", "score"), ("test.tsv", "score"), ("text.txt", "corpus")])
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
