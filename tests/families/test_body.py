"""Settings that all families share: sizes are checked, and defaults follow from each other."""

import msgspec
import pytest

from unmask.families.bert import BertSettings
from unmask.families.body import MAX_LAYERS, MAX_SIZE, BodySettings, check_size, check_small
from unmask.nn.layers.block import Sizes
from unmask.support.plugins import missing_members

SHAPE = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_sizes_are_at_least_1_and_at_most_the_largest():
    check_size("width", 1)
    check_size("width", MAX_SIZE)
    with pytest.raises(ValueError, match=r"^width must be at least 1$"):
        check_size("width", 0)
    with pytest.raises(ValueError, match=r"^width must be at most 16,777,216, not 16777217$"):
        check_size("width", MAX_SIZE + 1)


@pytest.mark.parametrize("value", [0, 1, -0.5, float("nan"), float("inf")])
def test_what_must_lie_between_0_and_1(value):
    check_small("epsilon", 1e-12)
    with pytest.raises(ValueError, match="epsilon must lie between 0 and 1"):
        check_small("epsilon", value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": MAX_LAYERS + 1}, "layers must be at most 1000"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"positions": 0}, "positions must be at least 1"),
        ({"heads": 3}, "width 8 must be a multiple of heads 3"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"dropout": 1.0}, r"dropout and head_dropout must lie in \[0, 1\)"),
        ({"head_dropout": -0.1}, r"dropout and head_dropout must lie in \[0, 1\)"),
        ({"init_std": 0.0}, "init_std must lie between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BertSettings(**SHAPE | settings)


def test_dropout_before_the_last_layer_is_that_of_the_body_unless_set():
    assert BertSettings(**SHAPE, dropout=0.3).before_last == 0.3
    assert BertSettings(**SHAPE, dropout=0.3, head_dropout=0.0).before_last == 0.0


def test_defaults_of_a_family_that_defines_nothing():
    class Plain(BodySettings, frozen=True, kw_only=True, tag="plain"):
        pass

    plain = Plain(layers=2, width=8)
    assert (plain.segments, plain.provides, plain.mismatch(7)) == (0, frozenset(), "")
    assert (plain.shape, plain.pretraining) == ("2 layers, width 8", "first")
    assert missing_members(Plain) == ["Plain.build", "Plain.head"]
    assert msgspec.to_builtins(plain)["kind"] == "plain"


def test_the_size_is_described_with_heads():
    assert BertSettings(**SHAPE).shape == "2 layers, width 8, 2 heads"


def test_layers_have_their_own_sublayers_by_default():
    settings = BertSettings(**SHAPE)
    blocks = settings.blocks()
    assert len(blocks) == 2 and blocks[0].attention is not blocks[1].attention
    assert settings.block(0, Sizes(width=4, heads=1, inner=6)).feed_forward.up.weight.shape == (6, 4)
