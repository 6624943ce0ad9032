"""Models: fingerprints differ by any weight, heads are loaded into objectives."""

from dataclasses import replace

import msgspec
import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.training.machine import Machine

SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=16)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    heads = {"masked_lm": {"dense.weight": torch.randn(16, 16)}, "classification": {"scale": torch.tensor(1.0)}}
    return Model(SHAPE.build(tokenizer.size), tokenizer, heads)


def changed(model, head, name):
    """Return the model with one number of a head changed."""
    value = model.heads[head][name].clone()
    value.view(-1)[-1] += 1e-3
    return replace(model, heads={**model.heads, head: {**model.heads[head], name: value}})


def test_models_that_differ_in_a_head_have_different_fingerprints(model):
    found = {
        model.fingerprint(),
        changed(model, "masked_lm", "dense.weight").fingerprint(),
        changed(model, "classification", "scale").fingerprint(),
        replace(model, heads={"masked_lm": model.heads["masked_lm"]}).fingerprint(),
        replace(model, heads={"another": model.heads["masked_lm"]}).fingerprint(),
    }
    assert len(found) == 5


def test_models_that_differ_in_the_encoder_have_different_fingerprints(model):
    before = model.fingerprint()
    assert model.fingerprint() == before
    with torch.no_grad():
        model.encoder.words.weight[3, 0] += 1e-3
    assert model.fingerprint() != before


def test_models_that_frame_pairs_differently_have_different_fingerprints(model):
    twice, unmarked = (model.tokenizer.framed_as(model.tokenizer) for _ in range(2))
    twice.ends_twice, unmarked.segments = True, False
    assert len({replace(model, tokenizer=words).fingerprint() for words in (model.tokenizer, twice, unmarked)}) == 3
    alike = replace(model, encoder=msgspec.structs.replace(SHAPE, segments=1).build(model.tokenizer.size))
    assert replace(alike, tokenizer=unmarked).fingerprint() == alike.fingerprint(), "it reads no segment ids"


def test_the_order_and_the_layout_of_tensors_do_not_matter(model):
    weight = model.heads["masked_lm"]["dense.weight"]
    others = {"classification": model.heads["classification"], "masked_lm": {"dense.weight": weight.T.contiguous().T}}
    assert replace(model, heads=others).fingerprint() == model.fingerprint()
    turned = {**model.heads, "masked_lm": {"dense.weight": weight.T}}
    assert replace(model, heads=turned).fingerprint() != model.fingerprint()


def test_a_model_in_bf16_has_a_fingerprint_of_its_own(model):
    before = model.fingerprint()
    model.encoder.to(torch.bfloat16)
    assert model.fingerprint() != before


def test_a_pipeline_in_bf16_leaves_the_model_as_it_was_given(model):
    before = model.fingerprint()
    Predictor(model, Machine(torch.device("cpu"), "bf16")).features("the dog")
    assert model.fingerprint() == before


@pytest.fixture
def saved(model, tmp_path):
    save_model(tmp_path / "saved", replace(model, heads={}), "card")
    return tmp_path / "saved"


def test_random_weights_need_a_vocabulary():
    with pytest.raises(UserError, match="random:bert-mini needs a vocabulary; pass tokenizer=DIR"):
        load_model("random:bert-mini")


def test_a_model_has_its_own_tokenizer(saved):
    with pytest.raises(UserError, match="tokenizer has no effect: the model has its own; omit it"):
        load_model(saved, tokenizer=saved)


def test_dropout_is_replaced_everywhere_or_except_in_heads(saved):
    assert load_model(saved, dropout=0.25).encoder.settings.before_last == 0.25
    kept = load_model(saved, dropout=0.25, keep_head_dropout=True).encoder.settings
    assert (kept.dropout, kept.before_last) == (0.25, 0.1)


def test_an_encoder_depends_on_its_seed_alone():
    first = build_encoder(SHAPE, 20, seed=1).state_dict()
    torch.rand(1)
    again, other = build_encoder(SHAPE, 20, seed=1).state_dict(), build_encoder(SHAPE, 20, seed=2).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["pooler.weight"], other["pooler.weight"])


def test_tensors_of_a_head_must_all_be_there(model):
    objective = OBJECTIVES["masked_lm"]().build(BuildContext(model.encoder))
    assert replace(model, heads={}).take("masked_lm", objective) == ["the masked_lm head"]
    with pytest.raises(UserError, match="bias of the masked_lm head is missing; use the objective's settings of the"):
        model.take("masked_lm", objective)
    heads = {"masked_lm": objective.state_dict() | {"bias": torch.ones(3)}}
    with pytest.raises(UserError, match=r"bias of the masked_lm head has shape \(3,\), but its settings imply"):
        replace(model, heads=heads).take("masked_lm", objective)
    heads = {"masked_lm": {name: torch.ones_like(value) for name, value in objective.state_dict().items()}}
    assert replace(model, heads=heads).take("masked_lm", objective) == []
    assert all(bool((value == 1).all()) for value in objective.parameters())
