"""A model's fingerprint tells models apart by any of their weights."""

from dataclasses import replace

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.model import Model
from unmask.training.machine import choose_machine

SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=16)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    heads = {"masked_lm": {"dense.weight": torch.randn(16, 16)}, "classification": {"scale": torch.tensor(1.0)}}
    return Model(SHAPE.build(tokenizer.size), tokenizer, heads)


def changed(model, head, name):
    """The same model but for one number of a head."""
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
    Predictor(model, choose_machine("cpu", "bf16")).features("the dog")
    assert model.fingerprint() == before
