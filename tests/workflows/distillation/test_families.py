"""Every family teaches and learns in whole runs: on text, and the predictions of a task."""

import pytest
import torch

from unmask.families.albert import AlbertSettings
from unmask.families.deberta import DebertaSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, load_model, save_model
from unmask.workflows.distillation.general import distill_encoder

from .conftest import CPU, FILES, LABELS, TASKS_OF, learn, recipe_of

SHAPE = {"layers": 4, "width": 32, "heads": 2, "positions": 64, "dropout": 0.0, "init_std": 0.2}
FAMILIES = {
    "roberta": RobertaSettings(**SHAPE, feed_forward=64, offset=1),
    "albert": AlbertSettings(**SHAPE, feed_forward=48, embedding=16, shared="all"),
    "electra": ElectraSettings(**SHAPE, feed_forward=64, embedding=16),
    "distilbert": DistilBertSettings(**SHAPE, feed_forward=32),
    "roformer": RoFormerSettings(**SHAPE, feed_forward=64),
    "modernbert": ModernBertSettings(**SHAPE, feed_forward=48, window=4),
    "deberta": DebertaSettings(**SHAPE, feed_forward=64, buckets=8, distances=16),
    "xlnet": XlnetSettings(**SHAPE, feed_forward=64),
}


ALIKE = ("roberta", "roformer", "distilbert", "electra")
"""Families whose bodies return hidden states and attention as BERT does, which the other tests here teach."""


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.exhaustive) if name in ALIKE else name for name in FAMILIES]
)
def test_a_family_teaches_smaller_models_of_it(family, tokenizer, corpus, examples, tmp_path):
    torch.manual_seed(0)
    shape, task, labels = FAMILIES[family], TASKS_OF["classification"], LABELS["classification"]
    heads = {task.part: task.build(shape.head, labels).published()}
    save_model(tmp_path / "teacher", Model(shape.build(tokenizer.size), tokenizer, heads, labels, task), "")
    factor = {"attention": 0.0} if family in ("modernbert", "xlnet") else {}
    recipe = recipe_of(
        "tinybert-mini", budget__steps=2, **{f"objective__layer_matching__{k}": v for k, v in factor.items()}
    )
    layers = 1 if family == "modernbert" else 2
    distill_encoder(recipe, tmp_path / "teacher", corpus, tmp_path / "run", layers=layers, machine=CPU, quiet=True)
    student = load_model(tmp_path / "run").encoder.settings
    assert (type(student), student.layers, student.width) == (type(shape), layers, 32)
    given = {"train": examples / FILES["classification"], "settings": {"budget.steps": 2}}
    run = learn("distilbert-mini", tmp_path / "teacher", tmp_path / "task", init=tmp_path / "run", **given)
    assert load_model(run.path).labels == labels
