"""What encoders have in common: initial weights, requested inner results and defaults."""

import numpy as np
import pytest
import torch
from torch import nn

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.nn.encoders.encoder import NOTHING, Encoder, HeadSpec, Initializer, Keep, text_vectors, token_vectors

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


def test_matrices_added_to_the_residual_stream_are_scaled_down():
    for settings, inside in (
        (SETTINGS, "blocks.1.feed_forward.down blocks.1.attention.out"),
        (ModernBertSettings(layers=3, width=48, heads=4, feed_forward=96), "blocks.2.feed_forward.down"),
    ):
        body = settings.build(VOCABULARY)
        Initializer(0.1, truncated=False, sublayers=16)(body)
        for name, value in body.named_parameters():
            if value.ndim == 2:
                added = name.endswith(("feed_forward.down.weight", "attention.out.weight"))
                assert value.std().item() == pytest.approx(0.025 if added else 0.1, rel=0.1), name
        assert all(f"{name}.weight" in body.state_dict() for name in inside.split())


def test_vectors_of_texts_and_tokens_are_those_that_heads_read():
    samples = [
        Frame(2, 3).wrap(np.arange(5, 5 + length)).add(positions={"some": np.array([1, 2])}) for length in (4, 2)
    ]
    batch = collate(samples)
    for pooling in ("cls", "mean"):
        settings = ModernBertSettings(layers=1, width=8, heads=2, feed_forward=16, classifier_pooling=pooling)
        body = settings.build(20)
        last = body(batch.tokens).last
        expected = [rows.mean(0) if pooling == "mean" else rows[0] for rows in last.split([4, 6])]
        torch.testing.assert_close(text_vectors(body, last, batch), torch.stack(expected))
        torch.testing.assert_close(token_vectors(body, last, batch, "some"), body.pooler(last[[1, 2, 5, 6]]))
        body.provides = frozenset()
        assert token_vectors(body, last, batch, "some").equal(last[[1, 2, 5, 6]])
    bert = SETTINGS.build(20)
    last = bert(batch.tokens).last
    assert text_vectors(bert, last, batch).equal(last[[0, 4]])
    assert token_vectors(bert, last, batch, "some").equal(last[[1, 2, 5, 6]])


def test_requests_are_combined():
    first, second = Keep(layers=frozenset({0, 2})), Keep(layers=frozenset({2}), scores=frozenset({1}))
    assert first | second == Keep(layers=frozenset({0, 2}), scores=frozenset({1}))
    assert first | NOTHING == first


class Identity(Encoder):
    """An encoder that implements nothing."""

    width, num_layers, vocabulary, longest, head = 8, 3, 10, 5, HeadSpec(8)


def test_defaults_are_those_of_an_encoder_without_capabilities():
    encoder, other = Identity(), Identity()
    assert (encoder.provides, encoder.chosen, encoder.settings, encoder.recompute) == (frozenset(), None, None, False)
    assert encoder.reads == (3,)
    assert encoder.over(other) is other
    assert encoder.own_state() == {}
    for unimplemented in (lambda: encoder.layer_groups, lambda: encoder(None)):
        with pytest.raises(NotImplementedError):
            unimplemented()
