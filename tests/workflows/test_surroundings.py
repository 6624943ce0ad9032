"""Results do not depend on the locale, on the clock of the machine, or on how many threads a resumed run may use."""

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import unmask
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from .. import forking

SOURCE = Path(unmask.__file__).parent
PROGRAM = """
import itertools, locale, sys, time
from pathlib import Path

import torch
import unmask

text, rows, out, minutes, jumps = sys.argv[1:]
print(locale.setlocale(locale.LC_ALL, ""), locale.localeconv()["decimal_point"], f"{locale.str(1.5)}")
if jumps:
    real, days = time.time, itertools.cycle([86400, -86400, 0])
    time.time = lambda: real() + next(days)
out, here = Path(out), {"device": "cpu", "precision": "float32", "quiet": True}
shape = {"encoder.layers": 1, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}
small = {**shape, "encoder.positions": 64, "layout.length": 48, "batch.tokens": 512}
budget = {"budget.minutes": float(minutes)} if minutes else {"budget.steps": 3}
out.mkdir()
for kind, size in (("wordpiece", 150), ("unigram", 120), ("bpe", 300)):
    unmask.train_tokenizer(text, out / kind, vocab_size=size, kind=kind, quiet=True)
unmask.build_corpus(text, out / "wordpiece", out / "corpus", workers=1, quiet=True)
unmask.pretrain("bert-tiny", corpus=out / "corpus", out=out / "run", settings={**small, **budget}, **here)
if jumps:
    sys.exit()
for kind in ("classification", "regression"):
    options = {"settings": {"task.length": 16, "budget.steps": 2}, **here}
    unmask.finetune(kind, out / "run", rows, out / kind, **options)
    unmask.predict(out / kind, rows, out=out / f"{kind}.jsonl", **here)
unmask.evaluate(out / "classification", rows, errors=out / "errors.html", **here)
unmask.embed(out / "run", rows, out=out / "vectors.npy", **here)
unmask.export(out / "classification", out / "exported", "huggingface", quiet=True)
"""
TIMED = {"metrics.jsonl", "progress.json", "manifest.json", "report.md", "usage.json"}
"""Names of files with times in them."""


@pytest.fixture(scope="module")
def comma(tmp_path_factory):
    """Return the variables of a Turkish locale: decimal commas, and an i without a dot as the lower case of I."""
    source = Path("/usr/share/i18n/locales/tr_TR")
    if not (source.exists() and shutil.which("localedef")):
        pytest.skip("there are no sources of locales")
    folder = tmp_path_factory.mktemp("locales")
    subprocess.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", folder / "tr_TR.UTF-8"], check=False)
    return {"LOCPATH": str(folder), "LC_ALL": "tr_TR.UTF-8"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    nouns = ("Istanbul", "ISTANBUL", "ısı", "İzmir", "tiger", "Igel", "RIVER", "house")
    lines = [f"{noun} costs 1.5 {other},{int(noun < other)}" for noun in nouns for other in nouns]
    path.write_text("\n".join(["text,label", *lines]), encoding="utf8")
    return path


def run(folder, text_file, rows, minutes="", jumps="", **variables):
    done = forking.run(
        ["-c", PROGRAM, text_file, rows, folder, minutes, jumps], env={**os.environ, "LC_ALL": "C.UTF-8", **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def contents(folder):
    """Return the content of each file, without times."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "events"]
    files = {path.relative_to(folder): path.read_bytes() for path in paths}
    for path, content in files.items():
        if path.name == "metrics.jsonl":
            records = [json.loads(line) for line in content.splitlines()]
            files[path] = [{name: value for name, value in it.items() if "second" not in name} for it in records]
    return {path: content for path, content in files.items() if path.name == "metrics.jsonl" or path.name not in TIMED}


@pytest.mark.slow
def test_files_are_the_same_under_a_locale_with_a_decimal_comma(comma, text_file, rows, tmp_path):
    """The locale is set as a library may do, so that C's `strtod` reads "1.5" as 1."""
    out = tmp_path / "out"  # the path is in some files
    assert run(out, text_file, rows)[1:] == [".", "1.5"]
    out.rename(tmp_path / "plain")
    assert run(out, text_file, rows, **comma) == ["tr_TR.UTF-8", ",", "1,5"]
    plain, turkish = contents(tmp_path / "plain"), contents(out)
    assert plain.keys() == turkish.keys() and len(plain) > 50
    assert not [path for path, content in plain.items() if turkish[path] != content]


def test_jumps_of_the_clock_change_no_budget(text_file, rows, tmp_path):
    """The clock jumps by a day, ahead and back, each time that it is read."""
    run(tmp_path / "out", text_file, rows, minutes="0.02", jumps="yes")
    records = RunDirectory(tmp_path / "out/run").read_metrics("train")
    seconds = [record["seconds"] for record in records]
    assert seconds[0] > 0 and seconds == sorted(seconds)
    assert seconds[-1] < 60, "of a budget of 1.2 seconds"


def wall_clocks(source):
    """Return the lines of a program that read the clock of the machine, which is not monotonic."""
    names = {
        "time": {"time", "time_ns", "localtime", "ctime"},
        "datetime": {"now", "today", "utcnow"},
        "date": {"today"},
    }
    if not any(f"{name}." in source for name in names):
        return []  # without parsing it, which takes most of the time
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and node.attr in names.get(getattr(node.value, "id", getattr(node.value, "attr", "")), set())
    ]


def test_only_monotonic_clocks_are_read():
    assert wall_clocks("import time\nx = time.time()\ny = time.monotonic()\nz = datetime.datetime.now()") == [2, 4]
    found = {path: lines for path in SOURCE.rglob("*.py") if (lines := wall_clocks(path.read_text(encoding="utf8")))}
    once = {
        SOURCE / "support" / "fingerprint.py": 1,  # times of files are by that clock
        SOURCE / "serving" / "service.py": 1,  # OpenAI's API states since when there is a model
        SOURCE / "training" / "runs" / "usage.py": 1,  # starts of the program on the same machine may overlap
    }
    assert {path: len(lines) for path, lines in found.items()} == once


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_T4_a_run_is_resumed_with_another_number_of_threads(first, second, corpus, tmp_path, stopped_at, capsys):
    """It computes with as many as at its start, so that its numbers are those of an unbroken run; it says so."""
    shape = ("encoder.layers=1", "encoder.width=64", "encoder.heads=2", "encoder.feed_forward=64")
    others = ("encoder.positions=64", "layout.length=48", "batch.tokens=1024", "budget.steps=4")
    recipe = read_recipe("bert-tiny", parse_overrides([*shape, *others]))
    before = torch.get_num_threads()

    def pretrain(name, **more):
        pretrain_corpus(recipe, corpus, tmp_path / name, machine=choose_machine("cpu", "float32"), **more)
        return (tmp_path / name / "model/model.safetensors").read_bytes()

    try:
        torch.set_num_threads(first)
        whole = pretrain("whole")
        with stopped_at(2):
            pretrain("cut")
        torch.set_num_threads(second)
        capsys.readouterr()
        assert pretrain("cut", resume=True) == whole
        assert f"computing with {first} threads, as at the start of the run" in capsys.readouterr().err
        assert torch.get_num_threads() == first
    finally:
        torch.set_num_threads(before)
