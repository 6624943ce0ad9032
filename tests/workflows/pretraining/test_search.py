"""The search for a learning rate: short runs within an eighth of the budget, the best multiple, exact continuation.

Costs are estimated as runs count them: operations per token, tokens of a budget, time.
"""

import json
import math
from functools import partial

import pytest

from unmask.cli.main import main
from unmask.data.corpus.build import write_corpus
from unmask.recipes.recipe import read_recipe, shipped
from unmask.support.errors import UserError
from unmask.training.evaluate import NotFiniteError
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.training.settings import BudgetSettings
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.search import FACTORS, SHORTER, _scaled, _vertex, cost, search_rate, with_rates

SMALL = {"encoder.layers": 1, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 32, "batch.tokens": 256}
SETTINGS = SMALL | {"budget.steps": 48, "layout.length": 32, "stages": []}


@pytest.fixture
def recipe():
    return read_recipe("bert-tiny", SETTINGS)


def losses(found):
    """Return a function in place of training, which leaves these losses, and the runs that it was called for."""
    called = []

    def train(trial, run, resume):
        factor = float(run.name.removeprefix("x"))
        called.append((run.name, trial.optimizer.learning_rate, trial.budget.steps, resume))
        if factor not in found:
            raise KeyboardInterrupt
        (run / "checkpoints").mkdir(parents=True)
        run.joinpath("metrics.jsonl").write_text(
            json.dumps({"kind": "heldout", "step": 2, "loss": found[factor]}) + "\n"
        )

    return train, called


@pytest.mark.parametrize("budget", [{"budget.steps": 23}, {"budget.steps": None, "budget.tokens": 24 * 256 - 1}])
def test_short_runs_of_less_than_a_step_are_refused(tmp_path, budget):
    with pytest.raises(UserError, match="takes a 24th of the budget, which is 23 steps; choose a budget of 24 steps"):
        search_rate(read_recipe("bert-tiny", SETTINGS | budget), tmp_path / "run", None, None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("found", "best"),
    [
        *(((3.0, 2.0, 3.0), 1.0), ((3.0, 2.0, 4.0), 0.891), ((4.0, 2.0, 3.0), 1.12)),
        *(((2.0, 3.0, 4.5), 0.5), ((3, 2, 1), 2), ((1, 5, 4), 0.5), ((3.0, 4.0, None), 0.5)),
    ],
)
def test_the_multiple_with_the_lowest_loss_is_taken(recipe, tmp_path, found, best):
    train, called = losses(dict(zip(FACTORS, found, strict=True)))
    said = []
    chosen = search_rate(recipe, tmp_path / "run", train, said.append)
    rate = recipe.optimizer.learning_rate
    assert called == [(f"x{factor:g}", factor * SHORTER * rate, 2, False) for factor in FACTORS]
    assert chosen.optimizer.learning_rate == best * rate
    assert chosen.budget.steps == 42
    assert said[-1].endswith(f"chosen: {best:g}")
    assert search_rate(recipe, tmp_path / "run", train, said.append) == chosen
    assert len(called) == len(FACTORS), "nothing is searched twice"


@pytest.mark.parametrize("best", [0.4, 0.9, 1.7, 3.0])
def test_the_multiple_is_that_of_the_rest_of_the_budget(recipe, tmp_path, best):
    """Losses are those of runs whose best rate is inversely proportional to the third root of the number of steps."""

    def train(trial, run, resume):
        best_rate = best * recipe.optimizer.learning_rate * (42 / trial.budget.steps) ** (1 / 3)
        (run / "checkpoints").mkdir(parents=True)
        line = {"kind": "heldout", "step": 2, "loss": math.log(trial.optimizer.learning_rate / best_rate) ** 2}
        run.joinpath("metrics.jsonl").write_text(json.dumps(line) + "\n")

    chosen = search_rate(recipe, tmp_path / "run", train, print)
    assert chosen.budget.steps == 42
    within = min(max(best, FACTORS[0]), FACTORS[-1])
    assert chosen.optimizer.learning_rate == pytest.approx(within * recipe.optimizer.learning_rate, rel=1e-3)


@pytest.mark.parametrize("again", [False, True])
def test_a_search_in_which_all_rates_diverge_is_refused(recipe, tmp_path, again):
    """No rate is taken for the best one, also if the search is continued; a lower rate is searched for anew."""
    train, called = losses(dict.fromkeys(FACTORS))
    for _ in range(1 + again):
        with pytest.raises(NotFiniteError, match=r"diverges with every learning rate .* lower optimizer.learning_rate"):
            search_rate(recipe, tmp_path / "run", train, print)
    assert len(called) == len(FACTORS)
    train, called = losses({0.5: 3.0, 1.0: 4.0, 2.0: None})
    lower = with_rates(recipe, 0.1)
    assert search_rate(lower, tmp_path / "run", train, print).optimizer == with_rates(lower, 0.5).optimizer


def test_an_interrupted_search_continues_and_another_recipe_searches_again(recipe, tmp_path):
    train, called = losses({0.5: 3.0})
    with pytest.raises(KeyboardInterrupt):
        search_rate(recipe, tmp_path / "run", train, print)
    train, called = losses({0.5: 9.0, 1.0: 4.0, 2.0: 5.0})
    assert search_rate(recipe, tmp_path / "run", train, print) == search_rate(recipe, tmp_path / "run", train, print)
    assert [name for name, *_ in called] == ["x1", "x2"]
    other = with_rates(recipe, 3.0)
    search_rate(other, tmp_path / "run", train, print)
    assert [name for name, *_ in called] == ["x1", "x2", "x0.5", "x1", "x2"]


def test_a_search_with_another_number_of_layers_begins_again(corpus, tmp_path, monkeypatch):
    large = read_recipe("bert-tiny", SETTINGS | {"encoder.layers": 3, "budget.steps": 1})
    pretrain_corpus(large, corpus, tmp_path / "model", quiet=True)
    train, called = losses({0.5: 3.0, 1.0: 2.0})
    monkeypatch.setattr("unmask.workflows.pretraining.pretrain.pretrain_corpus", _as(train))
    options = {"init": tmp_path / "model", "out": tmp_path / "run", "search": True, "settings": {"budget.steps": 48}}
    for layers in (2, 2, 1, None):
        with pytest.raises(KeyboardInterrupt):
            pretrain(None, corpus, **options, layers=layers, quiet=True)
    assert [name for name, *_ in called] == ["x0.5", "x1", "x2", "x2", *(["x0.5", "x1", "x2"] * 2)]


def _as(train):
    return lambda trial, corpus, folder, *, resume, **others: train(trial, folder, resume)


def test_all_rates_are_scaled():
    recipe = read_recipe("modernbert-mini")
    found = with_rates(recipe, 2.0).optimizer
    assert found.learning_rate == 2 * recipe.optimizer.learning_rate
    assert found.matrix_learning_rate == 2 * recipe.optimizer.matrix_learning_rate


def test_a_folder_of_the_user_is_not_touched(recipe, tmp_path):
    (tmp_path / "run" / "search").mkdir(parents=True)
    (tmp_path / "run" / "search" / "mine.txt").write_text("mine")
    train, called = losses({})
    with pytest.raises(UserError, match="not empty"):
        search_rate(recipe, tmp_path / "run", train, print)
    assert not called and (tmp_path / "run" / "search" / "mine.txt").exists()


def test_the_run_after_a_search_is_that_without_one(recipe, corpus, tmp_path):
    """Short runs leave no trace in it; it resumes without another search."""
    given = [str(corpus.directory), "--out", str(tmp_path / "run"), "--search", "--quiet", "--device", "cpu"]
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    command = ["pretrain", "bert-tiny", "--corpus", *given, "--precision", "float32", *settings]
    assert main(command) == 0
    run = RunDirectory(tmp_path / "run")
    rates = json.loads((run.path / "search" / "rates.json").read_text())
    assert rates.keys() == {"0.5", "1", "2"}
    chosen = read_recipe(run.path / "recipe.toml")
    best = _vertex({float(factor): loss for factor, loss in rates.items()})
    assert chosen.optimizer.learning_rate == recipe.optimizer.learning_rate * best
    assert chosen.budget.steps == 42
    pretrain_corpus(chosen, corpus, tmp_path / "alone", quiet=True, machine=choose_machine("cpu", "float32"))
    alone = RunDirectory(tmp_path / "alone").read_metrics("train")
    assert [line["loss"] for line in run.read_metrics("train")] == [line["loss"] for line in alone]
    before = run.metrics.read_text()
    assert main([*command, "--resume"]) == 0
    assert run.metrics.read_text() == before


def test_without_held_out_text_nothing_can_be_compared(recipe, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.workflows.pretraining.pretrain._read", partial(_without_heldout, corpus))
    with pytest.raises(UserError, match="no held-out text to compare learning rates by; omit search"):
        search_rate(
            recipe, tmp_path / "run", lambda trial, run, again: pretrain_corpus(trial, corpus, run, quiet=True), print
        )


def test_without_held_out_text_nothing_is_trained(tokenizer, documents, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", heldout=None)
    with pytest.raises(UserError, match="no held-out text to compare learning rates by; omit search"):
        pretrain("bert-tiny", corpus=corpus, out=tmp_path / "run", search=True, settings=SETTINGS, quiet=True)
    assert not (tmp_path / "run").exists()


def _without_heldout(corpus, curriculum, recipe, given, read, display):
    return curriculum.source(corpus.train), []


@pytest.mark.parametrize(
    "name",
    [
        *("bert-tiny", "electra-mini"),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("spanbert-mini", "albert-mini", "modernbert-mini")
        ),
    ],
)
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
    assert cost(read_recipe("bert-base")).num_tokens(3e11) == pytest.approx(1e6 * 256 * (0.9 * 128 + 0.1 * 512))


def test_searches_keep_the_limit_of_a_budget():
    recipe = read_recipe("bert-mini", {"budget.tokens": 1e6, "budget.max_minutes": 8})
    assert _scaled(recipe, 7 / 8).budget == BudgetSettings(tokens=875_000, max_minutes=7)


def test_operations_of_stages_are_means_over_their_tokens():
    """A run of two stages costs what two runs of one stage each cost together."""
    sizes = {"batch.tokens": 4096, "batch.sequences": False, "tokenizer.vocabulary": 2000}
    for share, length in ((0.9, 128), (0.5, 64), (0.25, 512)):
        stages = [{"share": share, "layout": {"length": length}}, {"share": 1 - share}]
        both = cost(read_recipe("bert-base", {**sizes, "stages": stages})).flops
        parts = [
            cost(read_recipe("bert-base", {**sizes, "stages": [], "layout.length": n})).flops for n in (length, 512)
        ]
        assert both == pytest.approx(share * parts[0] + (1 - share) * parts[1])
