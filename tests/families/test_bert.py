"""BERT's settings and body."""

import pytest

from unmask.families.bert import BertSettings
from unmask.nn.encoders.encoder import BOTH_SIDES, POOLER, SEPARATE_LAYERS

SHAPE = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_the_body_has_the_shape_of_the_settings():
    body = BertSettings(**SHAPE, segments=3).build(20)
    shapes = {name: tuple(value.shape) for name, value in body.state_dict().items()}
    assert shapes["embeddings.words.weight"] == (20, 8)
    assert shapes["embeddings.positions.weight"] == (12, 8)
    assert shapes["embeddings.segments.weight"] == (3, 8)
    assert shapes["blocks.1.feed_forward.up.weight"] == (16, 8)
    assert shapes["pooler.weight"] == (8, 8)
    assert not any("project" in name for name in shapes)
    assert (body.longest, body.num_layers, body.vocabulary) == (12, 2, 20)
    assert body.provides >= {BOTH_SIDES, POOLER, SEPARATE_LAYERS}


def test_weights_are_drawn_with_the_given_standard_deviation_and_truncated():
    body = BertSettings(layers=1, width=64, heads=2, feed_forward=256, init_std=0.1).build(500)
    weight = body.state_dict()["embeddings.words.weight"]
    assert weight.std().item() == pytest.approx(0.088, rel=0.02), "0.88 of that of the normal distribution"
    assert weight.abs().max() <= 0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feed_forward": 0}, "feed_forward must be at least 1"),
        ({"segments": 0}, "segments must be at least 1"),
        ({"epsilon": 0.0}, "epsilon must lie between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BertSettings(**SHAPE | settings)
