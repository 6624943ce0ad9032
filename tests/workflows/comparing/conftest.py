import random

import pytest

import unmask
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.workflows.comparing import compute

SHAPE = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64, "positions": 64, "initial_offsets": []}
SETTINGS = {f"encoder.{name}": value for name, value in SHAPE.items()} | {
    "tokenizer.vocabulary": 300,
    "layout.length": 32,
    "batch.tokens": 256,
}
TASK_SETTINGS = {"task.length": 24, "budget.epochs": 2}
FILE = """
text = ["text.txt"]
budget = "2ktok"
seeds = 2
documents = "blank-line"

[settings]
{settings}

[task_settings]
{task_settings}

[arms.bert]
recipe = "bert-tiny"

[arms.random]
recipe = "bert-tiny"
way = "random"

[tasks.pets]
train = ["train.tsv"]
test = ["test.tsv"]
"""
WORDS = [
    "the",
    "a",
    "near",
    "sees",
    "house",
    "river",
    "dog",
    "cat",
    "runs",
    "sleeps",
    "old",
    "small",
    "garden",
    "rain",
    "falls",
    "quickly",
    "under",
    "over",
    "tree",
    "road",
]


def as_toml(settings):
    return "\n".join(f'"{key}" = {value}' for key, value in settings.items())


def fake_engines(model, *, sequences, requests):
    return Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("unmask.metrics.intervals.RESAMPLES", 50)
    monkeypatch.setattr(compute, "measure_engines", fake_engines)


def write_inputs(folder):
    rng = random.Random(0)

    def sentence(size):
        return " ".join(rng.choices(WORDS, k=size))

    (folder / "text.txt").write_text("\n\n".join(f"{sentence(12)}. {sentence(9)}." for _ in range(150)))
    for name, size in (("train", 40), ("test", 30)):
        rows = [
            f"{sentence(5)} {animal} {sentence(3)} {n}\t{animal}" for n in range(size // 2) for animal in ("dog", "cat")
        ]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    (folder / "pets.toml").write_text(FILE.format(settings=as_toml(SETTINGS), task_settings=as_toml(TASK_SETTINGS)))
    return folder


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with text, labeled files, and the comparison pets.toml of two arms with two seeds."""
    return write_inputs(tmp_path_factory.mktemp("comparison"))


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """The directory of the finished comparison, and its outcome."""
    out = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.metrics.intervals.RESAMPLES", 50)
        patch.setattr(compute, "measure_engines", fake_engines)
        outcome = unmask.compare(inputs / "pets.toml", out=out, device="cpu", precision="float32", quiet=True)
    return out, outcome
