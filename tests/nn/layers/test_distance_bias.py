"""Buckets of distances equal those of transformers; biases are the same wherever a distance is the same."""

import copy

import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.plain_attention import AttentionSpec, DistanceBias, buckets

from .conftest import HEADS, tokens_of


def test_buckets_are_those_of_transformers():
    distances = torch.arange(-700, 701)
    assert buckets(distances).equal(MPNetEncoder.relative_position_bucket(distances))
    assert buckets(torch.tensor([0, -1, 1, -7])).tolist() == [0, 1, 17, 7]


def test_biases_depend_on_distances_alone():
    bias = DistanceBias(HEADS)
    tokens, query = tokens_of((9, 9)), torch.zeros(2, HEADS, 9, 8)
    found = bias.bias(query, query, tokens, tokens.groups[0])
    assert found.shape == (1, HEADS, 9, 9)
    assert found[..., 1:, 1:].equal(found[..., :-1, :-1])
    assert found[0, :, 3, 5].equal(bias.weight[18])


def test_layers_share_the_biases_without_owning_them():
    bias = DistanceBias(HEADS)
    spec = AttentionSpec(HEADS, 0.0, bias=bias.bias)
    body = torch.nn.ModuleList([bias, *(SelfAttention(HEADS * 8, spec) for _ in range(2))])
    assert [name for name in body.state_dict() if "qkv" not in name and "out" not in name] == ["0.weight"]
    copied = copy.deepcopy(body)
    assert copied[1].spec.bias.__self__ is copied[0], "a copy reads its own biases"
