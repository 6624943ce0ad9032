"""Learner of a fine-tuning run: the head, the labels, the downstream model and the layers that are reinitialized."""

import msgspec
import pytest
import torch

from unmask.families.albert import AlbertSettings
from unmask.families.gpt import GptSettings
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.prepare import build_learner, finished_model

from .conftest import recipe_of, run, tune


def test_a_model_keeps_its_head_and_the_order_of_its_labels(classifier, rows, tmp_path):
    tuned = run(classifier, rows, tmp_path / "run", "budget.steps=1", "optimizer.learning_rate=1e-9")
    assert tuned.labels == ("long", "brief")
    before, after = (model.heads["classification"]["out.weight"] for model in (load_model(classifier), tuned))
    assert (before - after).abs().max() < 1e-6


def test_other_labels_get_a_new_head(classifier, rows, tmp_path, capsys):
    rows.write_text(rows.read_text().replace("brief", "short"))
    finetune(
        "classification",
        classifier,
        [rows],
        tmp_path / "run",
        settings=parse_overrides(["task.length=32", "budget.steps=1"]),
        device="cpu",
        precision="float32",
    )
    assert load_model(tmp_path / "run").labels == ("long", "short")
    assert "the classification head (its own is for long, brief)" in capsys.readouterr().err


@pytest.mark.parametrize("layers", [0, 1])
def test_the_topmost_layers_are_reinitialized(classifier, rows, tmp_path, layers):
    still = ["budget.steps=1", "optimizer.learning_rate=1e-9", f"reset={layers}"]
    tuned, before = run(classifier, rows, tmp_path / "run", *still), load_model(classifier)
    moved = {
        name
        for name, value in tuned.encoder.state_dict().items()
        if (value - before.encoder.state_dict()[name]).abs().max() > 1e-4
    }
    assert {name.split(".")[0] for name in moved} == ({"pooler", "blocks"} if layers else {"pooler"})
    assert all(name.startswith(("pooler.", "blocks.1.")) for name in moved)
    with pytest.raises(UserError, match=r"reset = 3, but the model has 2 layers"):
        run(classifier, rows, tmp_path / "other", "reset=3")


def test_a_missing_pooler_cannot_be_reinitialized(recipe, tokenizer, rows, tmp_path):
    shape = GptSettings(layers=1, width=32, heads=2, positions=recipe.encoder.positions)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match=r"reset = 0 reinitializes the pooler, but the model has none"):
        run(tmp_path / "start", rows, tmp_path / "run", "reset=0")


@pytest.mark.parametrize("shared", ["all", "attention", "feed_forward"])
def test_layers_that_share_their_weights_cannot_be_reinitialized(recipe, tokenizer, rows, tmp_path, shared):
    shape = AlbertSettings(**msgspec.structs.asdict(recipe.encoder), shared=shared)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match=r'reset = 1 would also reinitialize lower layers.*pass settings={"reset": 0}'):
        run(tmp_path / "start", rows, tmp_path / "run", "reset=1")
    run(tmp_path / "start", rows, tmp_path / "run", "reset=0", "budget.steps=1")


def test_the_downstream_model_is_kept_when_trained_further(start, task, tmp_path):
    slow = ["budget.steps=1", "optimizer.learning_rate=1e-9"]
    first = tune(start, task, tmp_path / "first", "budget.steps=3", downstream="rnn")
    second = tune(tmp_path / "first", task, tmp_path / "second", *slow, downstream="rnn")
    for name, value in first.heads["downstream"].items():
        assert (second.heads["downstream"][name] - value).abs().max() < 1e-6
    third = tune(tmp_path / "first", task, tmp_path / "third", *slow, downstream="average")
    assert (third.downstream.kind, third.heads["downstream"]) == ("average", {})
    plain = tune(tmp_path / "first", task, tmp_path / "plain", *slow, frozen=False)
    assert plain.downstream is None


def test_an_average_cannot_classify_tokens(start, monkeypatch):
    recipe, base = recipe_of("downstream.kind=average"), load_model(start)
    task = type(recipe.task)
    build = task.build

    def tagger(self, *given):  # a head that reads tokens other than the first
        head = build(self, *given)
        head.at = "first"
        return head

    monkeypatch.setattr(task, "build", tagger)
    with pytest.raises(
        UserError,
        match=r"average. yields one vector per text, but classification needs one per token; use linear or rnn",
    ):
        build_learner(base, ("a", "b"), recipe)
    build_learner(base, ("a", "b"), recipe_of("downstream.kind=linear", "downstream.layers=[0]"))  # a static tagger


def test_a_finished_model_is_a_copy_of_the_learner(start):
    base, recipe = load_model(start), recipe_of("downstream.kind=rnn", "downstream.width=8")
    learner, kept = build_learner(base, ("a", "b"), recipe)
    made = finished_model(base, learner, ("a", "b"), recipe.task)
    assert not kept
    assert (made.labels, made.task, made.downstream) == (("a", "b"), recipe.task, recipe.downstream)
    assert sorted(made.heads) == ["classification", "downstream"]
    published = learner.parts["classification"].published()
    assert all(torch.equal(made.heads["classification"][name], value) for name, value in published.items())
    again, kept = build_learner(made, ("a", "b"), recipe)
    assert kept
    state = learner.parts["classification"].state_dict()
    torch.testing.assert_close(again.parts["classification"].state_dict(), state, rtol=0, atol=0)
    assert not build_learner(made, ("b", "a"), recipe)[1], "labels in another order get a new head"


def test_a_new_head_depends_only_on_the_seed(start):
    base = load_model(start)
    heads = [
        build_learner(base, ("a", "b"), recipe_of(f"seed={seed}"))[0].parts["classification"] for seed in (0, 0, 1)
    ]
    first, second, other = (head.out.weight for head in heads)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
