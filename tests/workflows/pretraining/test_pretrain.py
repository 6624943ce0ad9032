"""Pretraining runs: constant-prediction baselines, refusals before the run, adaptation and teachers."""

import re

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.train import train_vocabulary
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.training.runs.directory import RunDirectory
from unmask.training.settings import BudgetSettings
from unmask.workflows.pretraining.pretrain import baseline, pretrain_corpus, train_encoder
from unmask.workflows.pretraining.start import InitialWeights

BODIES = {"causal_lm": GptSettings(layers=1, width=8, heads=2)}
BODY = BertSettings(layers=1, width=8, heads=2, feed_forward=16)


def guess(token, *batches, names):
    """Return the metrics of always predicting a token, on batches of one sample with the given labels."""
    samples = [
        Sample(
            key=(0,),
            ids=np.arange(8),
            segments=np.zeros(8, np.int64),
            labels={label: np.array(value, np.int64) for label, value in one.items()},
            counts=dict.fromkeys(names, 1),
        )
        for one in batches
    ]
    context = BuildContext(BODIES.get(names[0], BODY).build(20))
    learner = Learner(context.body, {name: OBJECTIVES[name]().build(context) for name in names})
    return baseline(learner, [collate([sample]) for sample in samples], token)


def test_the_baseline_is_scored_at_masked_tokens():
    found = guess(7, {"masked": [7, 7, 5]}, {"masked": [7, 4, 4]}, names=["masked_lm"])
    assert found == {"masked_lm_accuracy": pytest.approx(0.5)}


def test_the_baseline_of_pairs_is_one_half_and_tokens_without_labels_have_none():
    found = guess(7, {"masked": [], "next_sentence": [1]}, names=["masked_lm", "next_sentence"])
    assert found == {"next_sentence_accuracy": 0.5}


def test_the_baseline_of_swapped_pairs_and_of_a_generator():
    found = guess(7, {"masked": [7, 5], "sentence_order": [1]}, names=["replaced_token", "sentence_order"])
    assert found == {"generator_accuracy": 0.5, "sentence_order_accuracy": 0.5}


def test_the_baseline_of_next_tokens():
    assert guess(7, {"next": [7, 5, 7, 4]}, names=["causal_lm"]) == {"causal_lm_accuracy": 0.5}


def test_a_corpus_without_samples_is_refused_before_there_is_a_run(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("The dog sees the cat. The cat sees the dog.", encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", report=lambda _: None)
    with pytest.raises(UserError, match="only one document"):
        pretrain_corpus(
            read_recipe("bert-tiny", parse_overrides(["budget.steps=1"])), corpus, tmp_path / "run", quiet=True
        )
    assert not (tmp_path / "run").exists()


def test_held_out_text_that_is_damaged_is_named(recipe, documents, tokenizer, tmp_path):
    """It is not taken for text that is too short, without which a run goes on."""
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    corpus = write_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus")
    assert len(corpus.heldout)
    tokens = np.load(file := tmp_path / "corpus" / "heldout-00000.tokens.npy")
    tokens[-1] ^= 1
    np.save(file, tokens)
    with pytest.raises(UserError, match=r"heldout-00000"):
        pretrain_corpus(recipe, tmp_path / "corpus", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "settings"),
    {
        "elmo-mini": [
            *("encoder.width=16", "encoder.cells=16", "encoder.filters=[[1,8],[3,24]]"),
            *("batch.sequences=2", "layout.streams=2", "objective.bidirectional_lm.vocabulary=30"),
        ],
        "electra-mini": ["encoder.width=32", "encoder.heads=2", "objective.replaced_token.generator_size=0.5"],
        "gpt-mini": ["encoder.width=32", "encoder.heads=2"],
    }.items(),
)
def test_without_held_out_text_there_is_a_model_and_no_word_on_how_good_it_is(name, settings, documents, tmp_path):
    recipe = read_recipe(name, parse_overrides(["encoder.layers=1", "budget.steps=2", *settings]))
    words = recipe.tokenizer
    tokenizer = train_vocabulary(words.kind, documents, size=400, lowercase=words.lowercase)
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", heldout=None)
    model = pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    assert load_model(model).tokenizer.sha256 == tokenizer.sha256
    report = (tmp_path / "run" / "report.md").read_text(encoding="utf8")
    assert "No held-out text was scored" in report
    assert not re.search("[Pp]erplexity: |would be right", report)


def test_adaptation_keeps_the_dropout_of_future_heads(documents, tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", report=lambda _: None)
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "layout.length=32", "budget.steps=1"]
    recipe = read_recipe("bert-tiny", parse_overrides([*small, "encoder.dropout=0", "encoder.head_dropout=0.2"]))
    pretrain_corpus(recipe, corpus, tmp_path / "first", quiet=True)
    pretrain_corpus(recipe, corpus, tmp_path / "second", init=tmp_path / "first", quiet=True)
    for run in ("first", "second"):
        settings = load_model(tmp_path / run).encoder.settings
        assert (settings.dropout, settings.before_last) == (0.0, 0.2)
    assert load_model(tmp_path / "second", dropout=0.3).encoder.settings.before_last == 0.3


def test_a_model_knows_how_many_tokens_it_was_pretrained_on(recipe, corpus, tmp_path):
    recipe = msgspec.structs.replace(recipe, budget=BudgetSettings(steps=2))
    published = tmp_path / "published"
    save_model(published, Model(recipe.encoder.build(corpus.tokenizer.size), corpus.tokenizer), "")
    pretrain_corpus(recipe, corpus, tmp_path / "first", quiet=True)
    again = tmp_path / "first" / "recipe.toml"
    pretrain_corpus(again, corpus.directory, tmp_path / "second", init=tmp_path / "first", quiet=True)
    pretrain_corpus(recipe, corpus, tmp_path / "third", init=published, quiet=True)
    tokens = RunDirectory(tmp_path / "first").read_metrics("train")[-1]["tokens"]
    assert [load_model(tmp_path / run).tokens for run in ("first", "second", "third")] == [tokens, 2 * tokens, None]
    assert load_model(published).tokens is None


def test_a_resumed_run_has_the_same_teacher(corpus, tmp_path):
    small = ["encoder.layers=1", "encoder.width=8", "encoder.feed_forward=64", "layout.length=32", "batch.tokens=256"]
    small += ["objective.hidden_cosine.weight=1"]

    def teacher(seed):
        torch.manual_seed(seed)
        return Teacher(Learner(BODY.build(corpus.tokenizer.size), {}))

    def run(seed, steps, **more):
        recipe = read_recipe("bert-tiny", parse_overrides([*small, f"budget.steps={steps}"]))
        train_encoder(recipe, corpus, tmp_path / "run", InitialWeights(), teacher=teacher(seed), quiet=True, **more)

    run(0, 1)
    with pytest.raises(UserError, match=r"inputs.teacher was \w{12}, now \w{12}"):
        run(1, 2, resume=True)
    run(0, 2, resume=True)


def test_objectives_that_learn_from_a_teacher_have_one(recipe, corpus, tmp_path):
    teacher = Teacher(Learner(BODY.build(corpus.tokenizer.size), {}))
    with pytest.raises(UserError, match="no objective of the recipe bert-tiny learns from a teacher; use a recipe"):
        train_encoder(recipe, corpus, tmp_path / "run", InitialWeights(), teacher=teacher, quiet=True)
    recipe = read_recipe("bert-tiny", {"objective.hidden_cosine.weight": 1})
    with pytest.raises(UserError, match=r"objective\.hidden_cosine learns from a teacher; use it with unmask.distill"):
        pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_model_with_another_tokenizer_is_refused(recipe, corpus, documents, tmp_path):
    other = train_wordpiece(documents[:30], size=150)
    save_model(tmp_path / "model", Model(recipe.encoder.build(other.size), other), "")
    with pytest.raises(UserError, match=r"the corpus was not built with the tokenizer of .*; rebuild it: unmask"):
        pretrain_corpus(recipe, corpus, tmp_path / "run", init=tmp_path / "model", quiet=True)
    assert not (tmp_path / "run").exists()
