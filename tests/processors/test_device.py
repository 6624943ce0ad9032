"""Training steps on GPUs, which need not exist: every family, objective and task; see `device_program.py`."""

import json
from pathlib import Path

import pytest

import unmask
from unmask.families import FAMILIES
from unmask.model.model import save_model
from unmask.recipes.recipe import read_recipe
from unmask.tasks import CLASSES
from unmask.testing.task import toy_model

from .. import forking
from ..testing.test_task import FILES

PROGRAM = Path(__file__).with_name("device_program.py")
SMALL = {"encoder.layers": 2, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}
OTHERS = ("roformer", "deberta", "nomicbert", "neobert", "eurobert", "distilbert")
SHAPES = {
    **dict.fromkeys(("bert-mini", "bert-large", "spanbert-mini", "xlnet-mini"), SMALL),
    "gpt-mini": {name: value for name, value in SMALL.items() if name != "encoder.feed_forward"},
    **dict.fromkeys(("albert-mini", "electra-mini"), SMALL | {"encoder.embedding": 16}),
    "modernbert-mini": SMALL | {"layout.length": 84},
    **{f"bert-mini {kind}": SMALL | {"encoder.kind": kind} for kind in OTHERS},
    "bert-mini recompute": SMALL | {"batch.recompute": True},
}
"""A recipe and a word for each family that reads subwords of the corpus, and its settings."""
RAW = {"elmo-mini": {"encoder.width": 32, "encoder.cells": 32, "layout.length": 8}, "roberta-mini": SMALL}
RAW |= {f"roberta-mini {kind}": SMALL | {"encoder.kind": kind} for kind in ("xlm_roberta", "camembert", "mpnet")}
"""Recipes with vocabularies of another kind, which are made of text."""
LONG = {"quac": 64, "coqa": 64, "hotpotqa": 64}
"""The length of tasks that do not fit into that of the others."""
PER_LAYER = {
    ("bert-large", "bf16"): {"forward": 12, "backward": 21},
    ("modernbert-mini", "bf16"): {"forward": 19, "backward": 28},  # where torch lacks Triton, whose kernel rotates
    ("modernbert-mini", "float32"): {"forward": 76, "backward": 93},
}
"""Number of operations that a further layer adds to the phases of a step. In float32 it pads to groups, and this device
has no kernel for their attention, so that the operations that it consists of are counted."""
LAYERS, STEP = 24, 909
"""Number of layers of bert-large, and of operations of a step with dropout whose targets are in one chunk."""
FIXED = {"forward": 140, "backward": 50, "copies": 2, "optimizer": 80, "other": 20}
"""Maximum number of operations of the phases besides those of layers."""

FAULTS = {
    "unplanned": ("cuda", "span_boundary.py"),
    "left behind": ("cuda", "at least two devices"),
    "read": ("cuda", "_local_scalar_dense"),
    "float64": ("mps", "float64"),
}
"""The device of each fault of the program, and what is found of it."""


def look(tmp_path, runs):
    """Return what the program finds of runs, by their names."""
    lines = "\n".join(map(json.dumps, runs))
    done = forking.run([PROGRAM, tmp_path], stdin=lines, timeout=1800)
    assert done.returncode == 0, done.stderr
    return {found.pop("name"): found for found in map(json.loads, done.stdout.splitlines())}


def pretraining(names, corpus, device="cuda", precision="bf16", **more):
    """Return runs of recipes on a corpus."""
    for name in names:
        settings = {"encoder.dropout": 0.1, **SHAPES[name]}
        arguments = {"recipe": name.split()[0], "corpus": str(corpus.directory), "settings": settings}
        run = {"name": name, "call": "pretrain", "arguments": arguments}
        yield run | {"device": device, "precision": precision, **more}


def assert_clean(found):
    """Assert that steps read numbers once and wait for nothing else."""
    faults = {name: {**one, "phases": None} for name, one in found.items()}
    assert faults == {name: {"phases": None, "reads": 1, "waits": {}} for name in found}


def raw(name, text_file, device="cuda"):
    """Return a run of a recipe on text."""
    settings = {"encoder.dropout": 0.1, **RAW[name]}
    arguments = {"recipe": name.split()[0], "text": str(text_file), "settings": settings}
    return {"name": name, "call": "pretrain", "arguments": arguments, "device": device, "precision": "bf16"}


def tuning(kind, tmp_path, name="", **more):
    """Return a toy model, and a run that fine-tunes it for a task, with more settings."""
    suffix, content = FILES[kind]
    path, model = tmp_path / f"{kind}.{suffix}", tmp_path / f"{kind}-toy"
    path.write_text(content, encoding="utf8")
    save_model(model, toy_model(content), "A toy.")
    settings = {"batch.sequences": 8, "budget.steps": 2, "task.length": LONG.get(kind, 48), **more}
    arguments = {"task": kind, "model": str(model), "train": str(path), "settings": settings}
    run = {"call": "finetune", "arguments": arguments, "device": "cuda", "precision": "bf16"}
    return model, run | {"name": name or kind}


def distilling(kind, tmp_path):
    """Return a run that distils a model of a task."""
    _, run = tuning(kind, tmp_path)
    teacher, arguments = tmp_path / f"{kind}-teacher", run["arguments"]
    unmask.finetune(**arguments, out=teacher, device="cpu", precision="float32", quiet=True)
    settings = {"batch.sequences": 8, "budget.steps": 2, "objective.layer_matching": False}
    learning = {"recipe": "tinybert-mini", "teacher": str(teacher), "train": arguments["train"], "layers": 1}
    return run | {"name": f"distil {kind}", "call": "distill", "arguments": learning | {"settings": settings}}


def test_every_family_is_looked_at():
    recipes = [read_recipe(name.split()[0], settings) for name, settings in {**SHAPES, **RAW}.items()]
    assert {recipe.encoder.__struct_config__.tag for recipe in recipes} == FAMILIES.keys()


def layered(run, layers, name=""):
    """Return a run whose encoder has another number of layers."""
    settings = {**run["arguments"]["settings"], "encoder.layers": layers}
    return run | {"name": name or run["name"], "arguments": run["arguments"] | {"settings": settings}}


@pytest.fixture(scope="module")
def found(corpus, text_file, tmp_path_factory):
    """What one program finds of all runs, as torch takes seconds to prepare tensors without values."""
    folder = tmp_path_factory.mktemp("runs")
    flat = [
        *pretraining(("electra-mini", "spanbert-mini"), corpus),
        *pretraining(("xlnet-mini",), corpus, precision="float32"),
        *pretraining(("bert-mini",), corpus, precision="fp16"),
    ]
    deep = [(name, precision, *pretraining([name], corpus, precision=precision)) for name, precision in PER_LAYER]
    faulty = []
    for fault, (device, _) in FAULTS.items():
        faulty += pretraining(["spanbert-mini"], corpus, device, "float32", fault=fault)
        faulty[-1]["name"] = fault
    runs = [
        *(layered(run, 1) for run in (*flat, *faulty)),
        *(layered(run, layers, f"{name} {precision} {layers}") for name, precision, run in deep for layers in (2, 3)),
        layered(raw("elmo-mini", text_file), 1),
        *(tuning(kind, folder)[1] for kind in ("sparse", "quac")),
        *(tuning(kind, folder, **{"task.weights": "balanced"})[1] for kind in ("classification", "multi-label")),
        distilling("spans", folder),
    ]
    found = look(folder, runs)
    assert len(found) == len(runs)
    return found


def test_steps_wait_for_the_gpu_once(found):
    assert_clean({name: one for name, one in found.items() if name not in FAULTS})


def test_each_layer_adds_few_operations_and_none_to_the_optimizer(found):
    for recipe, precision in PER_LAYER:
        two, three = (found[f"{recipe} {precision} {layers}"]["phases"] for layers in (2, 3))
        added = {phase: number - two[phase] for phase, number in three.items() if number != two[phase]}
        assert added == PER_LAYER[recipe, precision]
        if recipe == "bert-large":
            assert sum(two.values()) + (LAYERS - 2) * sum(added.values()) == STEP
        fixed = {phase: number - 2 * added.get(phase, 0) for phase, number in two.items()}
        assert {phase: number for phase, number in fixed.items() if number > FIXED[phase]} == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("device", "precision"), [("cuda", "bf16"), ("cuda", "fp16"), ("cuda", "float32"), ("mps", "float32")]
)
def test_steps_of_every_family_wait_for_the_device_once(corpus, text_file, tmp_path, device, precision):
    raws = [raw(name, text_file) | {"device": device, "precision": precision} for name in RAW]
    assert_clean(look(tmp_path, [*pretraining(SHAPES, corpus, device, precision), *raws]))


@pytest.mark.exhaustive
def test_steps_of_every_task_wait_for_the_gpu_once(tmp_path, text_file):
    runs = [tuning(kind, tmp_path)[1] for kind in CLASSES]
    runs += [distilling(kind, tmp_path) for kind in ("classification", "quac", "multi-label", "regression")]
    for recipe in ("tinybert-mini", "distilbert-mini"):
        learning = {"recipe": recipe, "teacher": str(tmp_path / "classification-toy"), "text": str(text_file)}
        shape = {"layers": 1, "settings": {"batch.tokens": 512, "layout.length": 48}}
        runs.append(runs[0] | {"name": recipe, "call": "distill", "arguments": learning | shape})
    assert_clean(look(tmp_path, runs))


def test_planted_faults_are_seen(found):
    seen = {name: found[name].get("error", "") + "".join(found[name]["waits"]) for name in FAULTS}
    assert {name: what in seen[name] for name, (_, what) in FAULTS.items()} == dict.fromkeys(FAULTS, True), seen
