"""DeBERTa's distances and convolution, in settings, body and config; what published models do not have is refused."""

import json

import pytest
import safetensors.torch
import torch

from unmask.families.checkpoints import huggingface
from unmask.families.deberta import TERMS, DebertaSettings, read_distances, write_distances
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext

SHAPE = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}
PUBLISHED = {
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "position_buckets": 256,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "hidden_size": 8,
}


def test_all_layers_read_one_table_of_distances():
    state = DebertaSettings(**SHAPE, distances=16, buckets=8).build(20).state_dict()
    assert state["embeddings.distances.table.weight"].shape == (16, 8)
    assert sum("distances" in name for name in state) == 3
    assert not any("positions" in name or "convolution" in name for name in state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": 2}, "buckets must be at least 4"),
        ({"buckets": 64, "distances": 20}, "half of them below distances 20"),
        ({"convolution": 2}, "convolution must be an odd number"),
        ({"convolution": -1}, "convolution must be at least 1"),
        ({"distances": 0}, "distances must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        DebertaSettings(**SHAPE, **change)


def test_published_configs_are_read():
    found = read_distances(PUBLISHED, {"width": 8, "positions": 512})
    assert found == {"distances": 512, "buckets": 256, "normed_distances": True}
    found = read_distances(PUBLISHED | {"conv_kernel_size": 3, "conv_act": "gelu"}, {"width": 8})
    assert (found["convolution"], found["convolution_activation"]) == (3, "gelu")


@pytest.mark.parametrize(
    "change",
    [
        {"relative_attention": False},
        {"share_att_key": False},
        {"position_biased_input": True},
        {"pos_att_type": ["c2p"]},
        {"pos_att_type": None},
        {"embedding_size": 4},
        {"pooler_hidden_size": 4},
        {"pooler_hidden_act": "tanh"},
        {"conv_kernel_size": 3, "conv_act": "mish"},
        {"conv_kernel_size": 3, "conv_groups": 2},
    ],
)
def test_other_bodies_are_refused(change):
    with pytest.raises(TypeError, match=next(iter(set(change) - {"conv_kernel_size"}))):
        read_distances(PUBLISHED | change, {"width": 8})


@pytest.mark.parametrize("more", [{}, {"convolution": 3}, {"buckets": None, "normed_distances": False}])
def test_distances_are_read_as_they_are_written(more):
    settings = DebertaSettings(**SHAPE, **more)
    config = PUBLISHED | {"pos_att_type": TERMS} | write_distances(settings)
    assert DebertaSettings(**SHAPE, **read_distances(config, {"width": 8})) == settings


def test_the_masked_lm_head_is_read_by_its_former_names(tmp_path):
    """Those of the first release, `lm_predictions`."""
    encoder = DebertaSettings(**SHAPE).build(20)
    head = OBJECTIVES["masked_lm"]().build(BuildContext(encoder)).state_dict()
    huggingface.write(tmp_path, encoder, {"masked_lm": {name: value + 1 for name, value in head.items()}})
    names = {"cls.predictions.transform.": "lm_predictions.lm_head.", "cls.predictions.": "lm_predictions.lm_head."}
    tensors = {}
    for name, value in safetensors.torch.load_file(tmp_path / "model.safetensors").items():
        former = next((old + name.removeprefix(now) for now, old in names.items() if name.startswith(now)), name)
        tensors[former] = value
    assert sum("lm_predictions" in name for name in tensors) == 5
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    found = huggingface.read(tmp_path).heads["masked_lm"]
    assert all(torch.equal(found[name], value + 1) for name, value in head.items())
    assert json.loads((tmp_path / "config.json").read_text())["legacy"] is True
