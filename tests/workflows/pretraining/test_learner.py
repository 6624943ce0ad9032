"""The learner starts from random weights or from a model, and reports what the model lacks."""

import msgspec
import torch

from unmask.model.model import Model, load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides
from unmask.workflows.pretraining.start import build_learner


def test_a_published_discriminator_keeps_its_head(corpus, tmp_path):
    """It comes without its generator, which is newly initialized."""
    shape = ["encoder.layers=1", "encoder.width=64", "encoder.heads=2", "stages=[]"]
    recipe = read_recipe("electra-mini", parse_overrides(shape))
    first, _ = build_learner(recipe, corpus.tokenizer.size, None)
    head = {
        name: value for name, value in first.parts["replaced_token"].state_dict().items() if "generator" not in name
    }
    save_model(tmp_path, Model(first.encoder, corpus.tokenizer, {"replaced_token": head}), "")
    learner, created = build_learner(recipe, corpus.tokenizer.size, load_model(tmp_path))
    assert created == ["the pooler", "the generator"]
    for name, value in learner.parts["replaced_token"].state_dict().items():
        assert torch.equal(value, head[name]) if name in head else name.startswith("generator.")
    assert len(head) == 4


def test_a_learner_from_scratch_is_determined_by_the_seed(recipe, corpus):
    def weights(seed):
        learner, created = build_learner(msgspec.structs.replace(recipe, seed=seed), corpus.tokenizer.size, None)
        assert created == []
        assert learner.parts.keys() == recipe.objectives.keys()
        return learner.state_dict()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    for name in ("encoder.embeddings.words.weight", "objectives.masked_lm.dense.weight"):
        assert not torch.equal(first[name], other[name]), name
