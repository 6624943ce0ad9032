"""Names in the directories of a family."""

from dataclasses import replace

import pytest
import torch

from unmask.families import FAMILIES, family_of
from unmask.families.albert import ALBERT, AlbertSettings
from unmask.families.bert import BERT, BertSettings
from unmask.families.format import architectures
from unmask.families.gpt import GPT, GptSettings

SHAPE = {"layers": 2, "width": 8, "heads": 2, "positions": 12}
BODY = BertSettings(**SHAPE, feed_forward=16)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_is_found_by_its_kind_and_by_its_settings(kind):
    family = FAMILIES[kind]
    assert family.kind == kind
    given = {**SHAPE, "feed_forward": 16, "cells": 4, "filters": ((1, 4),)}
    own = {name: value for name, value in given.items() if name in family.settings.__struct_fields__}
    assert family_of(family.settings(**own)) is family


@pytest.mark.parametrize("kind", FAMILIES)
def test_classifiers_of_texts_have_one_name_whatever_they_decide(kind):
    heads = FAMILIES[kind].format.heads
    names = [heads[head]["out"] for head in ("classification", "multi_label", "regression") if head in heads]
    assert len(names) > 1 and len(set(names)) == 1


def test_every_tensor_of_the_body_but_the_pooler_has_a_name():
    names = {name: BERT.format.names(name) for name in BODY.build(10).state_dict()}
    assert {name for name, theirs in names.items() if not theirs} == {"pooler.weight", "pooler.bias"}
    assert names["embeddings.norm.bias"] == ("embeddings.LayerNorm.bias",)
    assert names["blocks.1.attention.qkv.weight"] == tuple(
        f"encoder.layer.1.attention.self.{part}.weight" for part in ("query", "key", "value")
    )
    assert names["blocks.0.feed_forward.down.bias"] == ("encoder.layer.0.output.dense.bias",)
    assert BERT.format.names("blocks.0.feed_forward.downs.bias") == (), "only whole parts of a name count"
    assert BERT.format.layer == "encoder.layer.{}"


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_is_stored_is_loaded_again(kind):
    family = FAMILIES[kind]
    given = {**SHAPE, "feed_forward": 16, "cells": 4, "filters": ((1, 4),), "convolution": 3}
    shape = {name: value for name, value in given.items() if name in family.settings.__struct_fields__}
    settings = family.settings(**shape)
    state = settings.build(10).state_dict()
    tensors = family.format.stored(settings, state)
    assert all(name.startswith(family.format.beginnings) for name in tensors)
    again, loaded = family.format.loaded(settings, dict(tensors), state)
    assert again == settings
    assert loaded.keys() == {name for name in state if not name.startswith("pooler.")}
    assert all(value.equal(state[name]) for name, value in loaded.items())


def test_shared_sublayers_are_stored_in_each_layer_and_must_not_differ():
    settings = AlbertSettings(**SHAPE, feed_forward=16, shared="attention")
    state = settings.build(10).state_dict()
    tensors = ALBERT.format.stored(settings, state)
    layers = ("encoder.albert_layer_groups.0.albert_layers.0.", "encoder.albert_layer_groups.1.albert_layers.0.")
    first, second = ({name[len(layer) :] for name in tensors if name.startswith(layer)} for layer in layers)
    assert first == second
    assert tensors[f"{layers[0]}attention.key.weight"].equal(tensors[f"{layers[1]}attention.key.weight"])
    assert not tensors[f"{layers[0]}ffn.weight"].equal(tensors[f"{layers[1]}ffn.weight"])
    with pytest.raises(ValueError, match=r"1\.albert_layers\.0\.attention\.key\.bias differs between layers"):
        ALBERT.format.loaded(settings, {**tensors, f"{layers[1]}attention.key.bias": torch.ones(8)}, state)


def test_gpts_matrices_of_layers_are_transposed():
    settings = GptSettings(**SHAPE)
    state = settings.build(10).state_dict()
    tensors = GPT.format.stored(settings, state)
    assert tensors["h.0.attn.c_attn.weight"].equal(state["blocks.0.attention.qkv.weight"].t())
    assert tensors["h.1.ln_1.weight"].equal(state["blocks.1.attention_norm.weight"])
    assert tensors["tokens_embed.weight"].equal(state["embeddings.words.weight"])
    assert GPT.format.words == "tokens_embed.weight"


def test_architectures_by_heads():
    found = architectures("Bert", masked_lm__next_sentence="ForPreTraining")
    assert found[()] == "BertModel"
    assert found["masked_lm", "next_sentence"] == "BertForPreTraining"
    assert found[("classification",)] == found[("regression",)] == "BertForSequenceClassification"


def test_a_tensor_that_the_names_do_not_reach_is_refused():
    """A file with it is complete, but `read` takes from the file only what `tensors` and `optional` name."""
    state = BODY.build(10).state_dict()
    tensors = BERT.format.stored(BODY, state)
    assert BERT.format.loaded(BODY, tensors, state)[1].keys() == {name for name in state if "pooler" not in name}
    del tensors["encoder.layer.1.output.LayerNorm.bias"]
    with pytest.raises(ValueError, match=r"nothing is read for blocks\.1\.feed_forward_norm\.bias: name what"):
        BERT.format.loaded(BODY, tensors, state)
    optional = replace(BERT.format, optional=("encoder.layer.1.output.LayerNorm.bias",))
    assert "blocks.1.feed_forward_norm.bias" not in optional.loaded(BODY, tensors, state)[1]
