"""Models, files and helpers shared by the tests of fine-tuning."""

import numpy as np
import pytest

from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.settings import convert, parse_overrides, put
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.training.machine import choose_machine
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.run_job import run_job

CPU = choose_machine("cpu", "float32")


@pytest.fixture
def rows(tmp_path, documents):
    """A file of 120 texts, labeled by their length."""
    path = tmp_path / "rows.tsv"
    lines = [f"{text}\t{'long' if text.count('.') > 5 else 'brief'}\n" for text in documents]
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


@pytest.fixture
def classifier(tmp_path, recipe, tokenizer):
    """A classifier whose labels are not in alphabetical order."""
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    heads = {"classification": ClassificationHead(recipe.encoder.head, 2).state_dict()}
    save_model(tmp_path / "start", Model(encoder, tokenizer, heads, ("long", "brief"), Classification(length=64)), "")
    return tmp_path / "start"


@pytest.fixture(scope="session")
def task(tmp_path_factory):
    """120 texts of several lengths whose label depends on one word at a random position, and weights of some."""
    rng = np.random.default_rng(0)
    lines = ["text\tlabel\timportance"]
    for number in range(120):
        word, label = (("dog", "good"), ("cat", "bad"))[number % 2]
        words = [word, *rng.choice(["river", "house", "teacher", "market", "garden"], rng.integers(2, 7))]
        lines.append(f"{' '.join(rng.permutation(words))}\t{label}\t{number % 5 / 10}")
    path = tmp_path_factory.mktemp("task") / "train.tsv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def start(tmp_path, recipe, tokenizer):
    """An encoder whose random weights are large enough to distinguish words."""
    shape = recipe.encoder.__class__(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    return tmp_path / "start"


def run(model, rows, out, *settings, resume=False):
    """Fine-tune a classifier; return the model of the run."""
    finetune(
        "classification",
        model,
        [rows],
        out,
        settings=parse_overrides(["task.length=32", *settings]),
        device="cpu",
        precision="float32",
        resume=resume,
        quiet=True,
    )
    return load_model(out)


def job_of(start, task, *settings, **options):
    """Return a job with a frozen encoder, evaluated on its training examples."""
    settings = parse_overrides(["task.length=24", *settings])
    more = {"frozen": True, "machine": CPU, "quiet": True, **options}
    return FinetuningJob("classification", InitialModel(start), LabelledFiles([task], [task]), settings, **more)


def tune(start, task, out, *settings, resume=False, features=None, **options):
    """Run a job; return the model of the run."""
    run_job(job_of(start, task, *settings, **options), out, resume=resume, features=features)
    return load_model(out)


def recipe_of(*settings):
    """Return the recipe of one training step on a frozen encoder, with these settings."""
    table = {
        "task": {"kind": "classification", "length": 24},
        "batch": {"sequences": 16},
        "optimizer": {"kind": "adamw"},
        "schedule": {"kind": "constant", "warmup": 0.0},
        "budget": {"steps": 1},
        "frozen": True,
    }
    return convert(put(table, parse_overrides(settings), FinetuningRecipe), FinetuningRecipe, "test")
