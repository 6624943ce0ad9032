"""EuroBERT: its settings in config.json, pooling and grouped queries; parity is tested in parity/test_family.py."""

import json

import pytest
import torch
import transformers

from unmask.families.checkpoints import huggingface
from unmask.families.eurobert import EuroBertSettings
from unmask.nn.encoders.encoder import NARROW_BLOCKS
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead

from .conftest import assert_exported, assert_served

SHAPE = {"layers": 2, "width": 16, "heads": 4, "feed_forward": 24, "positions": 40}


def test_published_configs_are_read(tmp_path):
    """Those of EuroBERT-210m and 610m, of which the base of the rotations is at the top."""
    published = {
        **{"architectures": ["EuroBertForMaskedLM"], "model_type": "eurobert", "vocab_size": 128256},
        **{"hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 18, "num_key_value_heads": 6},
        **{"intermediate_size": 4096, "hidden_act": "silu", "rope_theta": 250000, "rms_norm_eps": 1e-05},
        **{"tie_word_embeddings": False, "mlp_bias": False, "attention_bias": False, "attention_dropout": 0.0},
    }
    (tmp_path / "config.json").write_text(json.dumps(published))
    expected = EuroBertSettings(layers=26, width=1152, heads=18, key_heads=6, feed_forward=4096)
    assert huggingface.read_settings(tmp_path) == expected
    del published["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(published))
    base = transformers.AutoConfig.from_pretrained(tmp_path).rope_parameters["rope_theta"]
    assert huggingface.read_settings(tmp_path).base == base != expected.base


def test_settings_are_read_as_they_are_written(tmp_path):
    settings = EuroBertSettings(**SHAPE, key_heads=2, base=500.0, classifier_pooling="bos", dropout=0.2)
    huggingface.write(tmp_path, settings.build(20), {})
    assert huggingface.read_settings(tmp_path) == settings
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.num_key_value_heads, config.classifier_pooling, config.attention_dropout) == (2, "bos", 0.2)
    assert not config.tie_word_embeddings and config.rope_parameters["rope_theta"] == 500


def test_a_classifier_that_averages_late_is_refused(tmp_path):
    """Published models have no classifier; the key is then read as the mean."""
    settings = EuroBertSettings(**SHAPE)
    for heads in ({}, {"classification": ClassificationHead(settings.head, 2).state_dict()}):
        huggingface.write(tmp_path, settings.build(20), heads)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"classifier_pooling": "late"}))
        if not heads:
            assert huggingface.read(tmp_path).settings == settings
            continue
        with pytest.raises(UserError, match="classifier_pooling: 'late' is not supported"):
            huggingface.read(tmp_path)


@pytest.mark.parametrize("key", ["tie_word_embeddings", "mlp_bias", "attention_bias"])
def test_what_is_not_supported_is_refused(key, tmp_path):
    huggingface.write(tmp_path, EuroBertSettings(**SHAPE).build(20), {})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: True}))
    with pytest.raises(UserError, match=f"{key}: True is not supported, only False"):
        huggingface.read(tmp_path)


@pytest.mark.parametrize(("key_heads", "message"), [(3, "multiple of key_heads 3"), (0, "multiple of key_heads 0")])
def test_settings_out_of_range_are_refused(key_heads, message):
    with pytest.raises(ValueError, match=message):
        EuroBertSettings(**SHAPE, key_heads=key_heads)


def test_the_masked_lm_head_is_a_linear_layer_of_its_own():
    body = EuroBertSettings(**SHAPE).build(20)
    head = OBJECTIVES["masked_lm"]().build(BuildContext(body))
    assert {name: tuple(value.shape) for name, value in head.state_dict().items()} == {"decoder.weight": (20, 16)}
    assert NARROW_BLOCKS not in body.provides


def test_heads_of_a_group_have_the_same_keys_and_values():
    layer = EuroBertSettings(**SHAPE, key_heads=2).build(20).blocks[0].attention.qkv
    query, key, value = layer(torch.randn(5, 16)).view(5, 3, 4, 4).unbind(1)  # (tokens, heads, head width) each
    for part in (key, value):
        assert part[:, 0].equal(part[:, 1]) and part[:, 2].equal(part[:, 3])
        assert not part[:, 1].equal(part[:, 2])
    assert not query[:, 0].equal(query[:, 1])


def test_a_model_is_exported_and_served(tokenizer, tmp_path):
    settings = EuroBertSettings(**SHAPE | {"layers": 1}, key_heads=2, init_std=0.3)
    assert_exported(settings, tokenizer, tmp_path)
    assert_served(settings, tokenizer)
