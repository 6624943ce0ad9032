"""ELMo's settings, initial weights and directories."""

import json
import math

import pytest
import torch

from unmask.data.tokenizers.word_level import train_words
from unmask.families.elmo import ElmoSettings
from unmask.model.model import Model, load_model, save_model
from unmask.support.errors import UserError

SMALL = {"layers": 2, "width": 12, "cells": 10, "characters": 4, "filters": ((1, 4), (2, 8))}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"width": 13}, "width 13 must be even"),
        ({"filters": ()}, "filters must have 1 to 1000 convolutions"),
        ({"filters": ((0, 4),)}, "a filter's size must be at least 1"),
        ({"filters": ((51, 4),)}, "a filter's size must be at most 50"),
        ({"highways": 1001}, "highways must not be negative, and at most 1000"),
        ({"cells": 0}, "cells must be at least 1"),
        ({"highways": -1}, "highways must not be negative"),
        ({"clip": 0.0}, "clip must be above 0"),
    ],
)
def test_impossible_settings_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        ElmoSettings(**SMALL | settings)


@torch.no_grad()
def test_initial_weights_are_those_of_bilm_tf():
    torch.manual_seed(0)
    settings = ElmoSettings(layers=2, width=256, cells=512, filters=((1, 16), (3, 64)), highways=1)
    body = settings.build(10)
    words, layer = body.characters, body.backward_lm[1]
    assert words.characters.weight.abs().max() <= 1
    assert words.characters.weight.std() == pytest.approx(1 / math.sqrt(3), rel=0.05)
    assert words.filters[1].weight.abs().max() <= 0.05
    assert (words.highways[0].gate.bias == -2).all()
    assert not words.highways[0].transform.bias.any()
    assert words.highways[0].gate.weight.std() == pytest.approx(80**-0.5, rel=0.05)
    assert words.project.weight.std() == pytest.approx(80**-0.5, rel=0.05)
    assert layer.input.bias.view(4, -1).mean(1).tolist() == [0, 1, 0, 0]
    assert layer.recurrent.weight.abs().max() == pytest.approx((6 / (2 * 128 + 4 * 512)) ** 0.5, rel=0.01)
    tanh = ElmoSettings(layers=1, width=256, cells=4, filters=((1, 16), (3, 64)), activation="tanh").build(10)
    assert tanh.characters.filters[1].weight.std() == pytest.approx(48**-0.5, rel=0.1)


def test_a_directory(tmp_path):
    tokenizer = train_words(["the cat sat on the mat"], size=20)
    body = ElmoSettings(**SMALL, clip=None, residual=False, activation="tanh", dropout=0.2).build(tokenizer.size)
    save_model(
        tmp_path,
        Model(
            body,
            tokenizer,
            {"classification": {"out.weight": torch.ones(2, 12), "out.bias": torch.zeros(2)}},
            ("a", "b"),
        ),
        "card",
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("elmo", ["ElmoForSequenceClassification"])
    loaded = load_model(tmp_path)
    assert loaded.encoder.settings == body.settings
    assert loaded.heads.keys() == {"classification"}
    for name, value in body.state_dict().items():
        assert torch.equal(loaded.encoder.state_dict()[name], value)
    (tmp_path / "config.json").write_text(json.dumps(config | {"cell_size": 11}))
    with pytest.raises(UserError, match=r"model\.safetensors: tensor .* has shape .* but config\.json implies"):
        load_model(tmp_path)
