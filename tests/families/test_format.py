"""Names in the directories of a family."""

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
    known = BODY.build(10).state_dict()
    names = dict(BERT.format.tensors(BODY, known))
    assert names.keys() == {name for name in known if not name.startswith("pooler.")}
    assert names["embeddings.norm.bias"] == ("embeddings.LayerNorm.bias",)
    assert names["blocks.1.attention.qkv.weight"] == tuple(
        f"encoder.layer.1.attention.self.{part}.weight" for part in ("query", "key", "value")
    )
    assert names["blocks.0.feed_forward.down.bias"] == ("encoder.layer.0.output.dense.bias",)
    assert "embeddings.segments.weight" not in dict(
        BERT.format.tensors(BODY, known.keys() - {"embeddings.segments.weight"})
    )


def test_shared_sublayers_come_once_for_each_stored_layer():
    settings = AlbertSettings(**SHAPE, feed_forward=16, shared="attention")
    assert ALBERT.format.count_layers(settings) == 2
    ours = [name for name, _ in ALBERT.format.tensors(settings, settings.build(10).state_dict())]
    assert ours.count("blocks.0.attention.qkv.weight") == 2
    assert ours.count("blocks.0.feed_forward.up.weight") == ours.count("blocks.1.feed_forward.up.weight") == 1


def test_only_matrices_of_layers_are_transposed_and_only_where_the_family_stores_them_so():
    matrix, own = torch.arange(6.0).view(2, 3), GptSettings(**SHAPE)
    kept = ("blocks.0.attention.qkv.bias", "blocks.0.attention_norm.weight", "embeddings.words.weight")
    for form, name, expected in (
        (GPT.format, "blocks.0.attention.qkv.weight", matrix.t()),
        *((GPT.format, name, matrix) for name in kept),
        (BERT.format, "blocks.0.attention.qkv.weight", matrix),
    ):
        assert torch.equal(form.stored(own, name, matrix), expected)
        assert torch.equal(form.loaded(name, expected), matrix)
    assert GPT.format.words == "tokens_embed.weight"
    assert GPT.format.count_layers(GptSettings(**SHAPE)) == 2


def test_architectures_by_heads():
    found = architectures("Bert", masked_lm__next_sentence="ForPreTraining")
    assert found[()] == "BertModel"
    assert found["masked_lm", "next_sentence"] == "BertForPreTraining"
    assert found[("classification",)] == found[("regression",)] == "BertForSequenceClassification"
