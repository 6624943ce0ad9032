"""What encoders have in common: initial weights, requested inner results and defaults."""

import pytest
import torch
from torch import nn

from unmask.encoders.encoder import NOTHING, Encoder, HeadSpec, Initializer, Keep
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings

SETTINGS = BertSettings(layers=3, width=48, heads=4, feed_forward=96, positions=256, init_std=0.2)
VOCABULARY = 500


def test_same_seed_same_weights():
    def build(seed):
        torch.manual_seed(seed)
        return SETTINGS.build(VOCABULARY).state_dict()

    first, again, other = build(1), build(1), build(2)
    for name, value in first.items():
        assert torch.equal(value, again[name])
        constant = name.endswith("bias") or "norm" in name
        assert torch.equal(value, other[name]) == constant, name


def test_the_initial_distribution_is_truncated_at_two_standard_deviations():
    encoder = BertSettings(layers=1, width=256, heads=4, feed_forward=1024).build(4000)
    for name, value in encoder.state_dict().items():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(value, torch.full_like(value, float("norm.weight" in name))), name
        else:
            assert value.abs().max() <= 0.04
            count = value.numel()
            assert abs(value.mean()) < 4 * 0.02 / count**0.5
            # the variance of a normal variable truncated at two sigma is 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737
            assert value.std() == pytest.approx(0.02 * 0.7737**0.5, rel=4 / count**0.5)


def test_gpts_initial_distribution_is_not_truncated():
    encoder = GptSettings(layers=1, width=256, heads=4).build(4000)
    for name in ("embeddings.words.weight", "blocks.0.feed_forward.up.weight"):
        value = encoder.state_dict()[name]
        assert value.std() == pytest.approx(0.02, rel=4 / value.numel() ** 0.5)
        assert (value.abs() > 0.04).float().mean() == pytest.approx(0.0455, abs=0.002)


@pytest.mark.parametrize("truncated", [False, True])
def test_an_initializer_sets_all_kinds_of_weights(truncated):
    module = nn.ModuleDict({"words": nn.Embedding(300, 32), "dense": nn.Linear(32, 300), "norm": nn.LayerNorm(32)})
    for parameter in module.parameters():
        nn.init.constant_(parameter, 7)
    Initializer(std=0.5, truncated=truncated)(module)
    for name in ("words", "dense"):
        weight = module[name].weight
        assert weight.std().item() == pytest.approx(0.5 * (0.7737**0.5 if truncated else 1), rel=0.04)
        assert (weight.abs().max().item() <= 1.0) is truncated
    assert not module["dense"].bias.any()
    assert (module["norm"].weight == 1).all()
    assert not module["norm"].bias.any()


def test_requests_are_combined():
    first, second = Keep(layers=frozenset({0, 2})), Keep(layers=frozenset({2}), scores=frozenset({1}))
    assert first | second == Keep(layers=frozenset({0, 2}), scores=frozenset({1}))
    assert first | NOTHING == first


class Identity(Encoder):
    """An encoder that implements nothing."""

    width, num_layers, vocabulary, longest, head = 8, 3, 10, 5, HeadSpec(8)


def test_defaults_are_those_of_an_encoder_without_capabilities():
    encoder, other = Identity(), Identity()
    assert (encoder.gives, encoder.chosen, encoder.settings, encoder.recompute) == (frozenset(), None, None, False)
    assert encoder.reads == (3,)
    assert encoder.over(other) is other
    assert encoder.own_state() == {}
    for unimplemented in (lambda: encoder.layer_groups, lambda: encoder(None), lambda: encoder.forward_flops(None)):
        with pytest.raises(NotImplementedError):
            unimplemented()
