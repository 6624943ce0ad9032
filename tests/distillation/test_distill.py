"""The function of the Python interface: text or examples, and what has no effect on either."""

import pytest

import unmask
from unmask.distillation.distill import distill
from unmask.errors import UserError
from unmask.recipe import read_recipe

from .conftest import CPU, recipe_of


def test_it_is_public():
    assert unmask.distill is distill


def test_the_source_decides(teacher, tuned, corpus, examples, tmp_path):
    given = {"layers": 1, "machine": CPU, "quiet": True}
    recipe = recipe_of("tinybert-mini", budget__steps=1)
    assert distill(recipe, teacher, tmp_path / "text", corpus=corpus, **given) == tmp_path / "text/model"
    settings = {"budget.steps": 2}
    model = distill(recipe, tuned("classification"), tmp_path / "task", train=str(examples / "classification.tsv"),
                    unlabelled=[examples / "plain.txt"], settings=settings, **given)  # fmt: skip
    assert model == tmp_path / "task/model"
    for run in ("text", "task"):
        assert "The student is" in (tmp_path / run / "report.md").read_text()


@pytest.mark.parametrize("option", ["train", "unlabelled", "dev", "augment", "settings"])
def test_options_of_tasks_have_no_effect_on_text(option, teacher, corpus, tmp_path):
    given = {"augment": 1, "settings": {"seed": 1}}.get(option, "file.tsv")
    with pytest.raises(UserError, match=f"{option} has no effect with a corpus; remove it"):
        distill(read_recipe("tinybert-mini"), teacher, tmp_path / "run", corpus=corpus, **{option: given})
