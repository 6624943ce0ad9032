"""A small teacher with random weights that are large enough to tell words apart, and recipes of smaller students."""

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.model import Model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipe import read_recipe
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
SHAPE = BertSettings(layers=4, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
SMALL = {"layout.length": 48, "batch.tokens": 512, "optimizer.learning_rate": 1e-3, "budget.steps": 6}


@pytest.fixture(scope="session")
def teacher_model(tokenizer):
    """A BERT of four layers with a masked-LM head."""
    torch.manual_seed(0)
    encoder = SHAPE.build(tokenizer.size)
    return Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).state_dict()}, tokens=1000)


@pytest.fixture(scope="session")
def teacher(teacher_model, tmp_path_factory):
    """Its directory."""
    path = tmp_path_factory.mktemp("teacher") / "model"
    save_model(path, teacher_model, "card")
    return path


def recipe_of(name, **settings):
    """Return a recipe that trains in seconds."""
    return read_recipe(name, {**SMALL, **{key.replace("__", "."): value for key, value in settings.items()}})
