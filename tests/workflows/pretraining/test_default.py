"""The recipe if none is named: its size by machine, budget and text; its rules; what is said about it."""

import math
import random
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import pytest

from unmask.data.tokenizers.train import TokenizerSettings
from unmask.data.tokenizers.wordpiece import WORDPIECE
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.messages import rendered
from unmask.training.settings import BudgetSettings
from unmask.workflows.pretraining import default
from unmask.workflows.pretraining.default import (
    ENOUGH,
    PASSES,
    SIZES,
    choose,
    describe_decay,
    for_model,
    limited,
    rules,
    worth,
)
from unmask.workflows.pretraining.search import SHARE, cost

SHAPE = {"layers": 1, "width": 32, "heads": 2, "positions": 64}


@dataclass
class Peak:
    """A machine with this many operations per second."""

    flops: float
    memory: int = 0

    def matmul_peak(self):
        return self.flops

    def available_memory(self):
        return self.memory


def chosen(corpus, flops, **settings):
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return choose(corpus, Peak(flops), read_recipe(SIZES[0], named), named)


def enough(name, corpus, minutes=60):
    """Return the speed at which a recipe just gets enough tokens of new text."""
    found = cost(read_recipe(name, {"tokenizer.vocabulary": corpus.tokenizer.size}))
    return ENOUGH[name] * found.inner * found.flops / (SHARE * 60 * minutes)


@pytest.mark.parametrize("number", range(1, len(SIZES)))
def test_it_is_the_largest_that_reads_enough(number, corpus, monkeypatch):
    monkeypatch.setattr(default, "PASSES", 1e6)
    speed = enough(SIZES[number], corpus)
    assert chosen(corpus, 1.01 * speed)[0].name == SIZES[number]
    assert chosen(corpus, 0.99 * speed)[0].name == SIZES[number - 1]
    assert chosen(corpus, 4.04 * speed, budget__minutes=15)[0].name == SIZES[number]
    assert chosen(corpus, 1e-3 * speed)[0].name in SIZES[:number]


GPUS = {
    "H100": (Peak(750e12, 70 << 30), "modernbert-large-hour"),
    "RTX 4090": (Peak(160e12, 21 << 30), "modernbert-base-hour"),
    "T4": (Peak(40e12, 13 << 30), "modernbert-medium"),
    "H100 of which others use most": (Peak(750e12, 4 << 30), "modernbert-base-hour"),
    "two processors' cores": (Peak(2e11, 8 << 30), "modernbert-mini"),
}
"""Machines by name: measured products per second and free memory, and the recipe for an hour."""


@pytest.mark.parametrize("name", GPUS)
def test_an_hour_on_a_gpu_gets_an_encoder_that_fits(name):
    machine, expected = GPUS[name]
    tokenizer = SimpleNamespace(size=8000, lowercase=True, kind=WORDPIECE)
    corpus = SimpleNamespace(train=SimpleNamespace(num_tokens=2e8), tokenizer=tokenizer)
    recipe, (line, *_) = choose(corpus, machine, read_recipe(SIZES[0]), {"budget.minutes": 60})
    assert recipe.name == expected
    costs = cost(recipe)
    assert default.needed_memory(costs.parameters, recipe) <= machine.memory
    tokens = costs.num_tokens(SHARE * machine.flops)
    assert recipe.batch.tokens == rules(tokens, recipe.encoder.width, 1)["batch.tokens"]
    assert recipe.encoder.shape in line and "1 h 00 min" in line


def test_little_text_gets_a_small_encoder(corpus):
    """It is read 16 times at most, unless a budget is given."""
    text = corpus.train.num_tokens
    assert PASSES * text < cost(read_recipe(SIZES[1])).inner
    recipe, lines = chosen(corpus, 1e15)
    assert (recipe.name, recipe.budget.tokens, recipe.budget.minutes) == (SIZES[0], PASSES * text, None)
    assert ", 16 times this text, " in lines[0]
    assert not any("gets worse" in line for line in lines)
    recipe, lines = chosen(corpus, 1e15, budget__minutes=60)
    assert (recipe.name, recipe.budget.minutes) == (SIZES[0], 60)
    assert lines[1] == "after 16 times an encoder gets worse at other text: choose a smaller budget"


def test_text_that_is_read_often_gets_more_weight_decay(corpus):
    text = corpus.train.num_tokens
    usual = read_recipe(SIZES[0]).optimizer.weight_decay
    for passes, decay in ((PASSES, 1.0), (8, 1.0), (7.9, usual), (1, usual)):
        assert chosen(corpus, 1e15, budget__tokens=passes * text)[0].optimizer.weight_decay == decay
    assert chosen(corpus, 1e15)[0].optimizer.weight_decay == 1.0, "read as often as by default"
    assert chosen(corpus, 1e15, optimizer__weight_decay=0.1)[0].optimizer.weight_decay == 0.1


@pytest.mark.parametrize(
    ("name", "changes", "passes"),
    [
        ("modernbert-tiny", {}, 8),
        ("modernbert-mini", {"optimizer.weight_decay": 0.29}, 20),
        ("modernbert-mini", {"optimizer.weight_decay": 0.3}, 0),
        ("modernbert-mini", {"optimizer.kind": "adamw"}, 0),
        ("modernbert-base", {}, 0),
        ("bert-mini", {}, 0),
    ],
)
def test_who_names_a_recipe_is_told_of_text_that_is_read_often(corpus, name, changes, passes):
    text, vocabulary = corpus.train.num_tokens, {"tokenizer.vocabulary": corpus.tokenizer.size}

    def told(**budget):
        budgets = {f"budget.{key}": value for key, value in budget.items()}
        recipe = read_recipe(name, {**changes, **vocabulary, **budgets})
        return list(map(rendered, describe_decay(recipe, corpus, Peak(1e12), processes=2)))

    times = passes or 20
    notes = [told(tokens=times * text)]
    per_step = cost(read_recipe(name, {**vocabulary, "budget.steps": 1})).tokens
    notes.append(told(steps=math.ceil(times * text / per_step)))
    flops = cost(read_recipe(name, {**changes, **vocabulary})).flops
    notes.append(told(minutes=1.001 * times * text * flops / (2 * SHARE * 1e12) / 60))
    for note in notes:
        assert len(note) == bool(passes)
        assert all('settings={"optimizer.weight_decay": 1.0} is better' in text for text in note)
    assert told(tokens=7.9 * text) == []


def test_settings_of_the_command_line_take_precedence(corpus):
    recipe, lines = chosen(corpus, 1e9, batch__tokens=512, encoder__layers=3, budget__steps=7)
    assert (recipe.batch.tokens, recipe.encoder.layers, recipe.budget.steps) == (512, 3, 7)
    assert recipe.tokenizer == TokenizerSettings(vocabulary=corpus.tokenizer.size, lowercase=corpus.tokenizer.lowercase)
    assert "3 layers, width 128" in lines[0]
    recipe, _ = chosen(corpus, 1e9, optimizer__kind="adamw", encoder__width=256)
    assert (recipe.optimizer.kind, recipe.optimizer.matrix_learning_rate) == ("adamw", None)
    assert chosen(corpus, 1e9, encoder__width=256)[0].optimizer.matrix_learning_rate == 3e-3
    with pytest.raises(UserError, match="did you mean 'layers'"):
        chosen(corpus, 1e9, encoder__layer=3)


def test_repeated_text_is_worth_less():
    assert worth(5e6, 1e7) == 5e6
    assert worth(1e7, 1e7) == 1e7
    assert worth(2e7, 1e7) == pytest.approx(1e7 + 1e7 * 15 * (1 - math.exp(-1 / 15)))
    assert worth(1e12, 1e7) == pytest.approx(16e7)


def test_steps_grow_with_the_square_root_of_the_run():
    sizes = [rules(tokens, 256, 1)["batch.tokens"] for tokens in (1e5, 1.5e6, 8e6, 32e6, 128e6, 1e12)]
    assert sizes == [2048, 2048, 4096, 8192, 16_384, 65_536]


@pytest.mark.parametrize("name", SIZES)
def test_the_recipes_have_the_learning_rate_of_their_width(name):
    recipe = read_recipe(name)
    rate = rules(8e6, recipe.encoder.width, 1)["optimizer.matrix_learning_rate"]
    assert recipe.optimizer.matrix_learning_rate == rate
    assert recipe.optimizer.learning_rate == read_recipe(SIZES[0]).optimizer.learning_rate


def test_what_is_expected_comes_from_recorded_runs(corpus, monkeypatch):
    points = ((1e3, 0.2), (1e5, 0.4), (1e7, 0.5))
    runs = [default.RecordedRun(SIZES[0], tokens, accuracy) for tokens, accuracy in points]
    monkeypatch.setattr(default, "recorded", lambda: default.Recorded(runs, published=86.6, half_hour=79.4))
    assert default.expectations(SIZES[0], 1e4)[0].startswith("expected: 30% of masked tokens predicted")
    assert default.expectations(SIZES[0], 1e7)[0].startswith("expected: 50% ")
    assert default.expectations(SIZES[0], 2e7)[0].startswith("expected: at least 50% ")
    for name, tokens in ((SIZES[0], 999), (SIZES[1], 1e4)):
        (line,) = default.expectations(name, tokens)
        assert "init=DIRECTORY" in rendered(line)
        assert line.endswith("a small one has F1 87, half an hour from scratch 79")


@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        (BertSettings(**SHAPE, feed_forward=64, segments=2), "masked_lm"),
        (GptSettings(**SHAPE), "causal_lm"),
        (XlnetSettings(layers=2, width=32, heads=2, feed_forward=64), "permutation_lm"),
        (XlnetSettings(layers=2, width=32, heads=2, feed_forward=64, memory=16), "permutation_lm"),
        (ElmoSettings(width=32, cells=16, filters=((1, 8), (3, 24))), "bidirectional_lm"),
    ],
    ids=["bert", "gpt", "xlnet", "xlnet with memory", "elmo"],
)
def test_a_model_is_adapted_by_its_own_objective(settings, objective, tokenizer, tmp_path):
    save_model(tmp_path / "model", Model(build_encoder(settings, tokenizer.size), tokenizer, {}), "")
    recipe = for_model(tmp_path / "model", {"optimizer.learning_rate": 3e-4})
    assert (recipe.name, recipe.optimizer.learning_rate) == ("adapt", 3e-4)
    assert list(recipe.objectives) == [objective]
    assert recipe.layout.length <= settings.positions
    assert msgspec.structs.replace(recipe, encoder=settings).encoder == settings, "the model fits the rest of it"
    short = limited(recipe, 1000, {"optimizer.learning_rate": 3e-4})
    assert short.budget == BudgetSettings(tokens=PASSES * 1000, max_minutes=60), "not read for an hour"
    for name, value in (("minutes", 90.0), ("tokens", 1e6), ("steps", 7)):
        named = for_model(tmp_path / "model", {f"budget.{name}": value})
        assert limited(named, 1000, {f"budget.{name}": value}).budget == BudgetSettings(**{name: value})


SETTINGS = {
    "encoder.layers": (1, 3),
    "encoder.width": (64, 128),
    "encoder.kind": ("modernbert", "bert", "roformer"),
    "layout.length": (64, 128),
    "masking.rate": (0.15, 0.4),
    "masking.kind": ("token", "span"),
    "optimizer.kind": ("adamw", "lamb"),
    "optimizer.learning_rate": (1e-4, 2e-3),
    "batch.tokens": (512, 1024),
    "batch.sequences": (4, 8),
    "budget.steps": (5, 50),
    "budget.tokens": (1e5, 1e6),
    "budget.minutes": (1, 10),
    "objective.causal_lm.weight": (0.5,),
    "tokenizer.lowercase": (True, False),
    "seed": (1, 2),
}


@pytest.mark.parametrize("number", [10, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_it_is_the_recipe_that_is_read_with_all_settings(corpus, number):
    """No setting is lost by handing on the recipe instead of reading its file again."""
    rng, equal = random.Random(0), 0
    while equal < number:
        names = rng.sample(sorted(SETTINGS), rng.randint(0, 5))
        named = {name: rng.choice(SETTINGS[name]) for name in names}
        try:
            read_recipe(SIZES[0], named)
        except UserError:
            continue
        recipe, _ = choose(corpus, Peak(1e9), read_recipe(SIZES[0], named), named)
        words = {"tokenizer.vocabulary": corpus.tokenizer.size, "tokenizer.lowercase": corpus.tokenizer.lowercase}
        limited = {} if any(name.startswith("budget.") for name in named) else {"budget.tokens": recipe.budget.tokens}
        limited = {name: value for name, value in limited.items() if value is not None}
        ruled = rules(recipe.budget.tokens or 1.0, recipe.encoder.width, PASSES)
        ruled["batch.tokens"] = recipe.batch.tokens or ruled["batch.tokens"]
        ruled["optimizer.weight_decay"] = recipe.optimizer.weight_decay
        assert recipe == read_recipe(recipe.name, {**words, **ruled, **limited, **named}), named
        equal += 1
