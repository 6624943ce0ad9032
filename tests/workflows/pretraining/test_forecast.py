"""Costs are estimated as runs count them: operations per token, tokens of a budget, time."""

import pytest

from unmask.recipes.recipe import read_recipe, shipped
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.search import cost


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "electra-mini", "spanbert-mini", "albert-mini"])
def test_operations_are_those_that_a_run_counts(name, corpus, tmp_path):
    """Up to sequences shorter than the maximum: a run pays less for attention, and more for each text's summary."""
    settings = {"budget.steps": 2, "batch.tokens": 2048, "masking.final_rate": False, "encoder.layers": 2, "stages": []}
    recipe = read_recipe(name, settings)
    pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    lines = RunDirectory(tmp_path / "run").read_metrics("train")
    counted = lines[-1]["flops_per_second"] / lines[-1]["tokens_per_second"]
    like = read_recipe(name, settings | {"tokenizer.vocabulary": corpus.tokenizer.size})
    assert cost(like).flops == pytest.approx(counted, rel=0.1)


def test_parameters_are_those_of_the_encoder():
    assert cost(read_recipe("bert-base")).parameters == 109_482_240
    assert cost(read_recipe("bert-mini")).parameters == 5_404_928


@pytest.mark.parametrize("name", shipped())
def test_every_recipe_has_a_cost(name):
    found = cost(read_recipe(name))
    assert 0 < found.seconds(3e11) == pytest.approx(found.num_tokens(3e11) * found.flops / 3e11)


def test_budgets_in_all_units_agree():
    minutes = cost(read_recipe("bert-mini", {"budget.minutes": 10}))
    tokens = minutes.num_tokens(3e11)
    assert tokens == 600 * 3e11 / minutes.flops
    assert cost(read_recipe("bert-mini", {"budget.tokens": tokens})).seconds(3e11) == pytest.approx(600)
    assert cost(read_recipe("bert-mini", {"budget.steps": 7})).num_tokens(3e11) == 7 * 4096
    assert cost(read_recipe("bert-base")).num_tokens(3e11) == 1_000_000 * 256 * 512
