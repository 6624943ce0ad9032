"""NomicBERT: its settings in config.json and files as they are published; parity is tested in parity/test_family.py."""

import json

import pytest
import safetensors.torch
import torch
import transformers

from unmask.families.checkpoints import huggingface
from unmask.families.nomicbert import NomicBertSettings
from unmask.support.errors import UserError

from .conftest import assert_exported, assert_served

SHAPE = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 40}


def test_defaults_are_those_of_transformers(tmp_path):
    transformers.NomicBertConfig().save_pretrained(tmp_path)
    expected = NomicBertSettings(layers=12, width=768, heads=12, feed_forward=3072)
    assert huggingface.read_settings(tmp_path) == expected


def test_the_base_of_rotations_is_read_as_it_is_written(tmp_path):
    settings = NomicBertSettings(**SHAPE, base=500.0)
    huggingface.write(tmp_path, settings.build(20), {})
    assert huggingface.read_settings(tmp_path) == settings
    assert transformers.AutoConfig.from_pretrained(tmp_path).rope_parameters["rope_theta"] == 500


def test_files_have_the_published_names(tmp_path):
    huggingface.write(tmp_path, NomicBertSettings(**SHAPE).build(20), {})
    names = set(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    inside = ("attn.Wqkv", "attn.out_proj", "norm1", "norm2", "mlp.fc11", "mlp.fc12", "mlp.fc2")
    assert {f"encoder.layers.1.{name}.weight" for name in inside} | {"emb_ln.bias"} < names


PUBLISHED = {
    **{"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "vocab_size": 20, "type_vocab_size": 2},
    **{"n_layer": 2, "n_embd": 16, "n_head": 2, "n_inner": 24, "n_positions": 8192, "layer_norm_epsilon": 1e-5},
    **{"activation_function": "swiglu", "causal": False, "parallel_block": False, "prenorm": False},
    **{"rotary_emb_base": 500, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
    **{"rotary_emb_scale_base": None, "rotary_scaling_factor": None, "initializer_range": 0.02, "resid_pdrop": 0.0},
}
"""A config.json with the names of published models."""


def test_published_configs_are_read(tmp_path):
    settings = NomicBertSettings(**SHAPE | {"positions": 8192}, base=500.0, epsilon=1e-5)
    encoder = settings.build(20)
    huggingface.write(tmp_path, encoder, {})
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    found = huggingface.read(tmp_path)
    assert found.settings == settings
    assert all(torch.equal(value, encoder.state_dict()[name]) for name, value in found.encoder.items())
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | {"max_position_embeddings": 2048}))
    assert huggingface.read_settings(tmp_path).positions == 2048, "the names of transformers come first"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("activation_function", "geglu"), ("rotary_emb_fraction", 0.5), ("rotary_emb_interleaved", True)),
        *(("rotary_scaling_factor", 2.0), ("rotary_emb_scale_base", 512), ("prenorm", True), ("causal", True)),
    ],
)
def test_other_bodies_of_the_published_code_are_refused(key, value, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | {key: value}))
    with pytest.raises(UserError, match=rf"config\.json: .*{key}: .* is not supported"):
        huggingface.read_settings(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 6}, "rotary positions require heads of even width, not 3"),
        ({"base": 1.0}, "base must be above 1"),
        ({"segments": 0}, "segments must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NomicBertSettings(**SHAPE | settings)


def test_scaled_rotations_are_refused(tmp_path):
    huggingface.write(tmp_path, NomicBertSettings(**SHAPE).build(20), {})
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="rope_type: 'dynamic' is not supported, only 'default'"):
        huggingface.read(tmp_path)


def test_a_model_is_exported_and_served(tokenizer, tmp_path):
    settings = NomicBertSettings(**SHAPE | {"layers": 1}, init_std=0.3)
    assert_exported(settings, tokenizer, tmp_path)
    assert_served(settings, tokenizer)
