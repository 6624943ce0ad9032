"""A small recipe, and models fine-tuned from its random weights, shared by the tests of tasks."""

import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.objectives.learner import joint_gradients
from unmask.recipes.recipe import FinetuningRecipe, read_recipe
from unmask.support.settings import convert, parse_overrides, put, write
from unmask.tasks.holding_out import parted
from unmask.workflows.finetuning.finetune import finetune


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory):
    """A recipe of two layers of width 48."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    small = [
        "encoder.layers=2",
        "encoder.width=48",
        "encoder.heads=2",
        "encoder.feed_forward=96",
        "encoder.positions=64",
    ]
    path.write_text(write(read_recipe("bert-tiny", parse_overrides([*small, "layout.length=48"]))))
    return path


@pytest.fixture(scope="session")
def fine_tuned(recipe_file, tokenizer_directory):
    """Fine-tunes random weights for a task on a file, which is also the dev file; returns the run's directory."""

    def run(kind, train, out, *settings, recipe=recipe_file, **options):
        sets = ("dropout=0.0", "optimizer.learning_rate=5e-3", "batch.sequences=10", *settings)
        finetune(
            kind,
            f"random:{recipe}",
            [train],
            out,
            dev=[train],
            tokenizer=tokenizer_directory,
            settings=parse_overrides(sets),
            device="cpu",
            precision="float32",
            quiet=True,
            **options,
        )
        return out

    return run


def read_task(kind, *settings):
    """The task of a recipe of fine-tuning with settings such as "task.focal=2"."""
    table = {
        "task": {"kind": kind, "length": 16},
        "batch": {"sequences": 4},
        "optimizer": {"kind": "adamw"},
        "schedule": {"kind": "linear", "warmup": 0.1},
        "budget": {"epochs": 1.0},
    }
    return convert(put(table, parse_overrides(settings), FinetuningRecipe), FinetuningRecipe, "test").task


def pair_rows(pairs, *, negatives):
    """Return pairs of texts as rows, each with a negative if there are any."""
    if not negatives:
        return [Row({"text": first, "text_b": second}, "a.tsv", 2) for first, second in pairs]
    return [
        Row({"text": first, "text_b": second}, "a.tsv", 2, negatives=(f"sea {number} garden",))
        for number, (first, second) in enumerate(pairs)
    ]


def assert_gradient_of_the_whole_step(learner, part, samples):
    """Assert that two micro-batches have the gradient of the loss in which all texts of the step are compared."""
    learner(collate(samples))[part].sum.backward()
    whole = {name: value.grad.clone() for name, value in learner.named_parameters() if value.grad is not None}
    learner.zero_grad()
    batches = [collate(samples[:1]), collate(samples[1:])]
    joint = joint_gradients(learner, batches, lambda index: None)
    for index, batch in enumerate(batches):
        learner(joint.attach(batch, index))[part].sum.backward()
    assert {name for name, value in learner.named_parameters() if value.grad is not None} == whole.keys()
    for name, value in learner.named_parameters():
        if name in whole:
            torch.testing.assert_close(value.grad, whole[name], rtol=1e-3, atol=1e-4)


def hold_out(task, examples, seed, notes=None):
    """Return the examples to train on and those to evaluate on, as a task divides them."""
    return parted(examples, task.choose_held(examples, task.identities(examples), seed, notes))
