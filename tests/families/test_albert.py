"""ALBERT's shared layers and projected embeddings, in the body and in directories."""

import pytest
import torch

from unmask.families.albert import (
    ALBERT,
    PROJECT,
    WORDS,
    AlbertSettings,
    from_hf,
    read_groups,
    stored_layers,
    to_hf,
    write_groups,
)
from unmask.nn.encoders.encoder import SEPARATE_LAYERS

SHAPE = {"layers": 3, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}
ATTENTION, FEED_FORWARD, NORMS = 4 * (8 * 8 + 8), 2 * 8 * 16 + 16 + 8, 2 * 2 * 8


@pytest.mark.parametrize(
    ("shared", "numbers"),
    [
        ("all", ATTENTION + FEED_FORWARD + NORMS),
        ("attention", ATTENTION + 3 * (FEED_FORWARD + NORMS) - 2 * 16),
        ("feed_forward", FEED_FORWARD + 3 * (ATTENTION + NORMS) - 2 * 16),
        ("none", 3 * (ATTENTION + FEED_FORWARD + NORMS)),
    ],
)
def test_shared_sublayers_are_stored_once(shared, numbers):
    """A sublayer is shared together with its LayerNorm."""
    settings = AlbertSettings(**SHAPE, shared=shared)
    body = settings.build(20)
    found = {value for name, value in body.named_parameters() if name.startswith("blocks.")}
    assert sum(value.numel() for value in found) == numbers
    assert body.num_layers == 3
    assert (SEPARATE_LAYERS in settings.provides) == (shared == "none")


def test_narrow_embeddings_are_projected():
    shapes = {
        name: tuple(value.shape) for name, value in AlbertSettings(**SHAPE, embedding=4).build(20).state_dict().items()
    }
    assert (shapes["embeddings.words.weight"], shapes["embeddings.project.weight"]) == ((20, 4), (8, 4))
    with pytest.raises(ValueError, match="embedding must be at least 1"):
        AlbertSettings(**SHAPE, embedding=0)


def test_a_body_without_projection_is_stored_with_the_identity():
    settings = AlbertSettings(**SHAPE)
    state = settings.build(20).state_dict()
    tensors = ALBERT.format.stored(settings, state)
    assert tensors[f"{PROJECT}.weight"].equal(torch.eye(8))
    assert not tensors[f"{PROJECT}.bias"].any()
    narrow = AlbertSettings(**SHAPE, embedding=4)
    assert to_hf(narrow, {WORDS: tensors[WORDS]}) == {WORDS: tensors[WORDS]}
    read = AlbertSettings(**SHAPE, embedding=8)
    again, others = from_hf(read, tensors)
    assert again == settings
    assert others.keys() == tensors.keys() - {f"{PROJECT}.weight", f"{PROJECT}.bias"}
    for changes in ({f"{PROJECT}.bias": torch.ones(8)}, {f"{PROJECT}.weight": torch.eye(8).flip(0)}):
        assert from_hf(read, tensors | changes) == (read, tensors | changes)


@pytest.mark.parametrize("shared", ["all", "attention", "feed_forward", "none"])
def test_groups_are_read_as_they_are_written(shared):
    settings = AlbertSettings(**SHAPE, shared=shared, embedding=4)
    config = write_groups(settings)
    assert config["num_hidden_groups"] == stored_layers(settings) == (1 if shared == "all" else 3)
    assert config["embedding_size"] == 4
    assert read_groups(config, {"layers": 3}) == {"shared": shared}


@pytest.mark.parametrize("config", [{"num_hidden_groups": 2}, {"inner_group_num": 2}])
def test_other_groups_are_refused(config):
    with pytest.raises(TypeError, match="several groups of layers, or several layers per group"):
        read_groups(config, {"layers": 3})
