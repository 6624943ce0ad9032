"""XLNet's settings, initial weights and directories."""

import json

import pytest
import torch

from unmask.families.checkpoints import huggingface
from unmask.families.checkpoints.check import body_on_meta
from unmask.families.xlnet import ONLY, XlnetSettings
from unmask.nn.encoders.encoder import CARRY
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides

SHAPE = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"memory": -1}, "memory must be between 0 and"),
        ({"width": 15, "heads": 3}, "width 15 must be even: distances are pairs of sine and cosine"),
        ({"initial_offsets": (-1, 0, 1)}, "initial_offsets has 3 offsets, but a layer has only 2 heads"),
        ({"window": 8}, "window has no effect without memory"),
        ({"window": 0, "memory": 4}, "window must be at least 1"),
        ({"feed_forward": 0}, "feed_forward must be at least 1"),
        ({"epsilon": 0.0}, "epsilon must lie between 0 and 1"),
    ],
)
def test_impossible_settings_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        XlnetSettings(**SHAPE | settings)


def test_all_weights_are_drawn_from_one_distribution():
    """The reference code draws all of them, with the biases of the queries, with a standard deviation of 0.02."""
    body = XlnetSettings(**SHAPE | {"width": 256, "layers": 1}).build(100)
    for name, weight in body.state_dict().items():
        if "norm.weight" in name:
            assert (weight == 1).all()
        elif name.endswith("bias") and "attention." not in name:
            assert not weight.any()
        else:
            assert weight.std() == pytest.approx(0.02, rel=0.2), name


def test_memory_makes_it_a_body_that_carries_state():
    assert CARRY in XlnetSettings(**SHAPE, memory=4).provides
    assert CARRY not in XlnetSettings(**SHAPE).provides
    with pytest.raises(UserError, match="encoder needs contiguous streams, which nothing in this recipe provides"):
        read_recipe("bert-tiny", parse_overrides(["encoder.kind=xlnet", "encoder.memory=8"]))
    alone = ["encoder.kind=xlnet", "layout.kind=document_sentences", "objective.next_sentence=false"]
    assert not read_recipe("bert-tiny", parse_overrides(alone)).encoder.memory, "a masked LM needs no streams"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            ["encoder.memory=200"],
            "encoder.memory 200 exceeds the windows of 128 tokens: decrease it, or increase layout.",
        ),
        (["layout.reuse=124"], "layout.reuse 124 is too long for a window of 128 tokens with two segments"),
        (["layout.reuse=200"], "it must be between 1 and 123"),
        (
            ["masking.context=70"],
            r"not every part of a sample \(64 and 64 tokens\) of length 128 has a token to predict",
        ),
        (["layout.streams=8"], "a step reads one window of each of the 8 layout.streams: pass .*batch.sequences.: 8"),
        (["masking.kind=token"], "objective.permutation_lm needs 'targets' labels, .*masking.kind.: .permutation"),
        (
            ["encoder.kind=roformer"],
            "objective.permutation_lm needs a second stream of queries, .*encoder.kind.: .xlnet",
        ),
    ],
)
def test_recipes_that_do_not_fit_are_refused(settings, reason):
    with pytest.raises(UserError, match=f"recipe xlnet-mini: .*{reason}"):
        read_recipe("xlnet-mini", parse_overrides(settings))


@pytest.fixture
def directory(tmp_path):
    settings = XlnetSettings(**SHAPE, memory=6, window=9, positions=99)
    huggingface.write(tmp_path, settings.build(20), {})
    return tmp_path


def test_a_body_is_read_as_it_was_written(directory):
    found = huggingface.read(directory)
    assert found.settings == XlnetSettings(**SHAPE, memory=6, window=9, positions=99)
    body = body_on_meta(found.settings, found.vocabulary)
    shapes = {name: value.shape for name, value in body.state_dict().items() if not name.startswith("pooler.")}
    assert {name: value.shape for name, value in found.encoder.items()} == shapes


def test_published_directories_have_no_memory_and_no_limit(directory):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config |= {"mem_len": None, "reuse_len": None, "bi_data": False, "summary_last_dropout": 0.1}
    del config["unmask_positions"], config["unmask_window"]
    path.write_text(json.dumps(config))
    settings = huggingface.read(directory).settings
    assert (settings.memory, settings.positions) == (0, 65_536)


@pytest.mark.parametrize(
    ("key", "value"),
    [("attn_type", "uni"), ("clamp_len", 400), ("same_length", True), ("summary_type", "first"), ("untie_r", False)],
)
def test_other_kinds_of_bodies_are_refused(directory, key, value):
    assert key in ONLY
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UserError, match=f"not a valid config of a xlnet model: {key}: {value!r} is not supported"):
        huggingface.read(directory)


def test_local_starts_differ_from_others_in_the_first_heads_alone():
    weights = []
    for offsets in ((), (-1,)):
        torch.manual_seed(0)
        weights.append(XlnetSettings(**SHAPE, initial_offsets=offsets).build(20).state_dict())
    changed = {name for name, value in weights[0].items() if not torch.equal(value, weights[1][name])}
    assert changed == {f"blocks.{n}.attention.{part}" for n in (0, 1) for part in ("distance.weight", "distance_bias")}
    for name in changed:
        before, after = (one[name].view(2, 8, -1) for one in weights)
        assert torch.equal(before[1], after[1])
