"""The layers of a body that are one call compute what each computes by itself, and notice when weights change."""

import copy
import gc

import pytest
import torch
from torch import nn

from unmask.data.batches.batch import collate
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.roformer import RoFormerSettings
from unmask.nn.encoders import transformer
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers import block, fused_attention, linear
from unmask.support import panels

from .test_transformer import VOCABULARY, samples

pytestmark = pytest.mark.skipif(not panels.registers(), reason="there are no products in panels")
SHAPE = {"layers": 4, "width": 64, "heads": 2, "feed_forward": 96, "positions": 256, "init_std": 0.2}
SETTINGS = {
    "bert": BertSettings(**SHAPE),
    "albert": AlbertSettings(**SHAPE),
    "modernbert": ModernBertSettings(**SHAPE, window=4),
    "roformer": RoFormerSettings(**SHAPE),
}
TOKENS = collate(samples((1, 3, 17, 60))).tokens


@pytest.fixture(params=["float32", "bfloat16"])
def dtype(request, monkeypatch):
    """Compute all products in panels, in each type of numbers that can be."""
    dtype = getattr(torch, request.param)
    if not panels.multiplies(dtype):
        pytest.skip("there are no products in panels")
    for module in (linear, fused_attention):
        monkeypatch.setattr(module, "panels_multiply", panels.multiplies)
    return dtype


def build(family, dtype):
    """Return a body for inference."""
    torch.manual_seed(0)
    body = SETTINGS[family].build(VOCABULARY).to(dtype).eval()
    for part in body.modules():
        part.keeps_packed = True
    return body


@pytest.fixture
def calls(monkeypatch):
    """Return a list to which the number of layers of each call is appended."""
    calls, encode = [], panels.encode

    def spy(x, layers, rows=None):
        calls.append(len(layers))
        return encode(x, layers, rows)

    monkeypatch.setattr(panels, "encode", spy)
    return calls


@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Keep(), [4]),
        (Keep(rows=torch.tensor([7, 0, 80])), [4]),
        (Keep(layers=frozenset({0, 1, 3})), [1, 2, 1]),
        (Keep(layers=frozenset({2, 4}), rows=torch.tensor([1])), [2, 2]),
    ],
    ids=["last", "rows", "some layers", "the last layer, too"],
)
@torch.no_grad()
def test_layers_in_one_call_equal_those_one_by_one(family, keep, expected, dtype, calls, monkeypatch):
    body = build(family, dtype)
    found = body(TOKENS, keep)
    assert calls == expected
    monkeypatch.setattr(transformer, "in_one_call", lambda *arguments: None)
    exact = body.double()(TOKENS, keep)
    assert calls == expected, "layer by layer"
    bound = 1e-4 if dtype == torch.float32 else 0.1
    for one, other in [(found.last, exact.last), *((found.layers[n], exact.layers[n]) for n in keep.layers)]:
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)
    assert found.layers.keys() == exact.layers.keys()


@torch.no_grad()
def test_changes_of_weights_are_noticed(dtype, calls):
    body, before = build("bert", dtype), []

    def differs():
        before.append(body(TOKENS).last)
        return not before[-1].equal(before[-2])

    before.append(body(TOKENS).last)
    assert not differs()
    layer = body.blocks[1]
    for in_place in (layer.attention.qkv.weight, layer.attention.out.bias, layer.attention_norm.weight):
        in_place.mul_(1.5).add_(1)
        assert differs()
    layer.feed_forward.up.bias = nn.Parameter(layer.feed_forward.up.bias + 1)  # another parameter
    assert differs()
    for module, name in (
        (layer.feed_forward_norm, "weight"),
        (layer.attention.out, "weight"),
        (layer.attention.out, "bias"),
    ):
        getattr(module, name).data = getattr(module, name).data * 2  # other memory
        gc.collect()
        assert differs()
    assert not differs()
    other = copy.deepcopy(body)
    assert layer.kept is not None and other.blocks[1].kept is None
    for parameter in body.parameters():
        parameter.zero_()
    torch.testing.assert_close(other(TOKENS).last, before[-1], rtol=0, atol=0)
    assert set(calls) == {4}


def test_what_needs_more_is_computed_layer_by_layer(dtype, calls, monkeypatch):
    body = build("bert", dtype)
    body(TOKENS)
    with torch.no_grad():
        body(TOKENS, Keep(scores=frozenset({2})))
        body.train()(TOKENS)
        body.eval()
        seen = []
        hook = body.blocks[2].register_forward_hook(lambda module, inputs, output: seen.append(output))
        body(TOKENS)
        hook.remove()
        monkeypatch.setattr(body.blocks[3].attention, "kernel", fused_attention.fused)
        body(TOKENS)
    assert not calls and len(seen) == 1
    assert block.in_one_call([nn.Identity()], torch.zeros(1, 64), TOKENS) is None
