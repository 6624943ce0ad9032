"""Rule for the defaults of fine-tuning: its dependence on task, width, examples and downstream model."""

import msgspec
import pytest

from unmask.data.labelled.labelled_file import Row
from unmask.recipes.recipe import FinetuningRecipe, read_recipe
from unmask.support.choices import DOWNSTREAM_KINDS
from unmask.support.settings import convert
from unmask.tasks import TASKS
from unmask.workflows.finetuning.job import FROZEN_RATES, LAYERS, MIN_STEPS, defaults


def test_defaults_are_a_rule():
    small = read_recipe("bert-tiny").encoder
    base = read_recipe("bert-base").encoder
    few, many = (
        defaults("classification", small, 100, pretrained=True),
        defaults("classification", base, 100_000, pretrained=True),
    )
    assert (few["batch"], many["batch"]) == ({"sequences": 16}, {"sequences": 32})
    assert (few["budget"], many["budget"]) == ({"epochs": 20.0}, {"epochs": 3.0})
    assert many["optimizer"]["learning_rate"] == 5e-5
    assert few["optimizer"]["learning_rate"] == pytest.approx(5e-5 * 6**0.5, rel=0.03)


@pytest.mark.parametrize(
    ("examples", "epochs", "sequences"), [(200, 20, 16), (1000, 7, 16), (8000, 3, 32), (60_000, 3, 32)]
)
def test_the_rule_depends_on_examples(recipe, examples, epochs, sequences):
    rule = defaults("classification", recipe.encoder, examples, pretrained=True)
    assert (rule["budget"], rule["batch"]) == ({"epochs": epochs}, {"sequences": sequences})


@pytest.mark.parametrize(("examples", "sequences"), [(499, 16), (500, 64), (60_000, 64)])
def test_negatives_of_each_other_are_in_larger_steps_and_read_as_often(recipe, examples, sequences):
    rule, usual = (
        defaults("embedding", recipe.encoder, examples, pretrained=True, contrasted=contrasted)
        for contrasted in (True, False)
    )
    assert rule["batch"] == {"sequences": sequences}
    assert {**rule, "batch": usual["batch"]} == usual


def test_steps_of_samples_of_several_examples_have_as_many_examples(recipe):
    rule, usual = (
        defaults("ranking", recipe.encoder, 8000, pretrained=True, per_sample=per_sample) for per_sample in (4.2, 1)
    )
    assert (rule["batch"], usual["batch"]) == ({"sequences": 8}, {"sequences": 32})
    assert {**rule, "batch": usual["batch"]} == usual


def test_texts_without_scores_are_negatives_of_each_other():
    plain, scored = Row({"text": "a", "text_b": "b"}, "f", 1), Row({"text": "a", "text_b": "b", "label": "1"}, "f", 1)
    contrasting = {name for name, task in TASKS.items() if task().contrasts([plain])}
    assert contrasting == {"embedding", "sparse", "late-interaction"}
    assert not TASKS["embedding"]().contrasts([scored])


def test_the_rule_depends_on_width(recipe):
    def rate(width, pretrained):
        shape = msgspec.structs.replace(recipe.encoder, width=width)
        return defaults("classification", shape, 1000, pretrained=pretrained)["optimizer"]["learning_rate"]

    assert rate(768, True) == pytest.approx(5e-5)
    assert rate(192, True) == pytest.approx(1e-4)
    assert rate(768, False) == pytest.approx(2 * rate(768, True))


def test_the_rule_depends_on_the_text_that_was_read(recipe):
    def rate(tokens):
        rule = defaults("classification", recipe.encoder, 1000, pretrained=True, tokens=tokens)
        return rule["optimizer"]["learning_rate"]

    published = rate(None)
    assert rate(10_000_000) == rate(100_000_000) == pytest.approx(4 * published, rel=0.03)
    assert rate(100_000_000) > rate(500_000_000) > rate(2_000_000_000) > published
    assert rate(4_000_000_000) == published


def test_taggers_learn_at_a_higher_rate_and_for_more_epochs(recipe):
    for pretrained in (False, True):
        texts, tags = (
            defaults(task, recipe.encoder, 60_000, pretrained=pretrained)
            for task in ("classification", "token-classification")
        )
        assert tags["optimizer"]["learning_rate"] == pytest.approx(2 * texts["optimizer"]["learning_rate"], rel=0.03)
        assert (texts["budget"], tags["budget"]) == ({"epochs": 3.0}, {"epochs": 4.0})


@pytest.mark.parametrize(("sentences", "epochs"), [(1, 200), (16, 200), (17, 100), (64, 50), (160, 20), (400, 16)])
def test_taggers_learn_for_two_hundred_steps_at_least(recipe, sentences, epochs):
    for task in ("token-classification", "spans"):
        assert defaults(task, recipe.encoder, sentences, pretrained=True)["budget"] == {"epochs": epochs}
    assert defaults("classification", recipe.encoder, sentences, pretrained=True)["budget"]["epochs"] <= 20


def test_downstream_models_have_their_own_rule(recipe):
    shape = recipe.encoder  # two layers
    for kind, layers in (("linear", [-1]), ("average", [-2, -1]), ("rnn", [-2, -1])):
        rule = defaults("classification", shape, 5000, pretrained=True, frozen=True, downstream=kind)
        assert rule["downstream"] == {"kind": kind, "layers": layers}
        assert (rule["frozen"], rule["budget"]) == (True, {"epochs": 13.0})
        assert rule["optimizer"]["learning_rate"] == FROZEN_RATES[kind]
    tuned = defaults("classification", shape, 5000, pretrained=True, downstream="rnn")
    assert tuned["optimizer"] == defaults("classification", shape, 5000, pretrained=True)["optimizer"]
    assert "downstream" not in defaults("classification", shape, 5000, pretrained=True)


def test_every_downstream_kind_has_a_learning_rate():
    assert {"linear", "average", "difference", "rnn"} == set(FROZEN_RATES) == set(DOWNSTREAM_KINDS)


@pytest.mark.parametrize("task", TASKS)
def test_the_defaults_are_a_valid_recipe_whose_length_fits_the_model(recipe, task):
    rule = defaults(task, recipe.encoder, 500, pretrained=True)
    made = convert(rule, FinetuningRecipe, "test")
    assert type(made.task) is TASKS[task]
    assert made.task.length == min(TASKS[task]().length, 64) == rule["task"]["length"]
    longer = msgspec.structs.replace(recipe.encoder, positions=1000)
    assert defaults(task, longer, 500, pretrained=True)["task"]["length"] == TASKS[task]().length


def test_few_examples_are_trained_on_for_a_minimum_of_steps(recipe):
    for examples in (500, 1000, 1999):
        rule = defaults("classification", recipe.encoder, examples, pretrained=True)
        steps = rule["budget"]["epochs"] * examples / rule["batch"]["sequences"]
        assert steps >= MIN_STEPS


def test_no_more_layers_are_read_than_the_model_has(recipe):
    for layers, expected in ((2, 2), (12, LAYERS)):
        shape = msgspec.structs.replace(recipe.encoder, layers=layers)
        rule = defaults("classification", shape, 500, pretrained=True, frozen=True, downstream="average")
        assert rule["downstream"]["layers"] == list(range(-expected, 0))
