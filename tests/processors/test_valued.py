"""What is computed on a device is what a CPU computes: losses, gradients and predictions; see `valued_program.py`."""

import json
from pathlib import Path

import pytest

from unmask.tasks import CLASSES

from .. import forking
from .test_device import RAW, SHAPES, tuning

PROGRAM = Path(__file__).with_name("valued_program.py")
ATTENTION = ("varlen", "padded", "plain")
FEW = {"encoder.dropout": 0.0, "budget.steps": 3}
TWO_MICRO_BATCHES = {"batch.tokens": 512, "batch.micro_tokens": 256}
QUICK = ("sparse", "answer-beams", "spans")
"""Tasks whose heads and predictions are of different kinds."""


def compared(tmp_path, runs):
    """Return what the program finds of runs, by their names."""
    done = forking.run([PROGRAM, tmp_path / "runs"], stdin="\n".join(map(json.dumps, runs)), timeout=1800)
    assert done.returncode == 0, done.stderr
    return {found.pop("name"): found for found in map(json.loads, done.stdout.splitlines())}


def pretraining(name, attention, source, settings, **more):
    """Return a run of a recipe, whose name may be followed by a word, on a corpus or a text."""
    sizes = {} if name.startswith(("xlnet", "elmo")) else TWO_MICRO_BATCHES
    arguments = {"recipe": name.split()[0], "settings": {**settings, **FEW, **sizes}, **source}
    return {"name": f"{name} {attention}", "call": "pretrain", "arguments": arguments, "attention": attention, **more}


def task(kind, tmp_path, attention):
    """Return a run that fine-tunes a toy model for a task, and predicts."""
    _, run = tuning(kind, tmp_path, **{"dropout": 0.0})
    arguments = run["arguments"]
    return {
        "name": kind,
        "call": "finetune",
        "arguments": arguments,
        "attention": attention,
        "data": arguments["train"],
    }


def assert_near(found, expected):
    """Assert that two JSON values differ by rounding only."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_near(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for mine, its in zip(found, expected, strict=True):
            assert_near(mine, its)
    else:
        assert found == (pytest.approx(expected, rel=1e-4, abs=1e-5) if isinstance(expected, float) else expected)


def assert_equal(found):
    """Assert that runs have the losses, gradients and predictions of the CPU."""
    assert {name: one["error"] for name, one in found.items() if "error" in one} == {}
    for one in found.values():
        assert_near(one["device"], one["cpu"])
        assert_near(one.get("predicted on device"), one.get("predicted on cpu"))


@pytest.mark.timeout(600)
def test_pretraining_computes_what_a_cpu_does(corpus, tmp_path):
    source = {"corpus": str(corpus.directory)}
    names = {"bert-mini recompute": "padded", "modernbert-mini": "varlen"}
    assert_equal(compared(tmp_path, [pretraining(name, how, source, SHAPES[name]) for name, how in names.items()]))


@pytest.mark.timeout(600)
def test_tasks_compute_and_predict_what_a_cpu_does(tmp_path):
    runs = [task(kind, tmp_path, ATTENTION[number % 3]) for number, kind in enumerate(QUICK)]
    assert_equal(compared(tmp_path, runs))


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("attention", ATTENTION)
def test_every_family_and_task_computes_what_a_cpu_does(corpus, text_file, tmp_path, attention):
    runs = [pretraining(name, attention, {"corpus": str(corpus.directory)}, each) for name, each in SHAPES.items()]
    runs += [pretraining(name, attention, {"text": str(text_file)}, each) for name, each in RAW.items()]
    assert_equal(compared(tmp_path, [*runs, *(task(kind, tmp_path, attention) for kind in CLASSES)]))


def test_planted_faults_are_seen(corpus, tmp_path):
    source, runs = {"corpus": str(corpus.directory)}, []
    for fault in ("mixed", "unmasked"):
        runs.append(pretraining("bert-mini", "padded", source, SHAPES["bert-mini"], fault=fault) | {"name": fault})
    found = compared(tmp_path, runs)
    assert "mixes devices" in found["mixed"]["error"]
    with pytest.raises(AssertionError):
        assert_near(found["unmasked"]["device"], found["unmasked"]["cpu"])
