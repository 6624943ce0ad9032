"""Distillation from Python: what goes together, on text and on examples; test_general.py and test_task.py train."""

import pytest

import unmask
from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import write
from unmask.workflows.distillation.distill import distill

from .conftest import recipe_of

RECIPE = read_recipe("distilbert-mini")


def test_it_is_public():
    assert unmask.distill is distill


def test_the_source_decides(teacher, tuned, corpus, examples, tmp_path):
    given = {"layers": 1, "device": "cpu", "precision": "float32", "quiet": True}
    recipe = recipe_of("tinybert-mini", budget__steps=1)
    assert distill(recipe, teacher, tmp_path / "text", corpus=corpus, **given) == tmp_path / "text/model"
    (tmp_path / "recipe.toml").write_text(write(recipe))
    again = {"corpus": corpus.directory, **given}
    assert distill(tmp_path / "recipe.toml", teacher, tmp_path / "named", **again) == tmp_path / "named/model"
    files = {"train": str(examples / "classification.tsv"), "unlabelled": [examples / "plain.txt"]}
    found = distill(recipe, tuned("classification"), tmp_path / "task", **files, settings={"budget.steps": 2}, **given)
    assert found == tmp_path / "task/model"
    for run in ("text", "task"):
        assert "The student is" in (tmp_path / run / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train", "train.tsv"),
        ("unlabelled", ["texts.txt"]),
        ("dev", "dev.tsv"),
        ("columns", {"text": "review"}),
        ("format", "tsv"),
        ("augment", 2),
        ("masked_lm", "model"),
    ],
)
def test_what_belongs_to_examples_is_refused_with_a_corpus(tmp_path, name, value):
    reason = "corpus and {} cannot be combined; remove one of them"
    if name not in ("train", "unlabelled"):
        reason = "{} has no effect on text; omit it"
    with pytest.raises(UserError, match=f"^{reason.format(name)}$"):
        distill(RECIPE, tmp_path, tmp_path / "run", corpus=object(), **{name: value})


@pytest.mark.parametrize("start", [{}, {"init": "narrow"}])
def test_a_student_that_cannot_learn_is_refused_before_text_is_read(teacher, tokenizer, tmp_path, start):
    narrow = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=64)
    save_model(tmp_path / "narrow", Model(build_encoder(narrow, tokenizer.size), tokenizer), "")
    start = {name: tmp_path / path for name, path in start.items()}
    settings = {"layout.length": 48} | ({} if start else {"encoder.width": 16, "encoder.heads": 2})
    (tmp_path / "a.txt").write_text("a dog\n")
    with pytest.raises(UserError, match="compares hidden states of equal widths, but the student's is 16"):
        distill(RECIPE, teacher, tmp_path / "run", text=tmp_path / "a.txt", settings=settings, quiet=True, **start)
    assert not (tmp_path / "run").exists()


def test_without_a_corpus_or_examples_there_is_nothing_to_learn_from(tmp_path):
    with pytest.raises(UserError, match="there is nothing to learn from"):
        distill(RECIPE, tmp_path, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_baseline_needs_a_single_process(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="baseline works with a single process only"):
        distill(RECIPE, tmp_path, tmp_path / "run", train="train.tsv", baseline=True)
