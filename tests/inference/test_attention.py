"""Attention is read from a copy of the encoder: rows sum to 1, and causal heads see no later token."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.tokenizers.word_level import train_words
from unmask.families.albert import AlbertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.influence import attention_obstacle, read_attention
from unmask.inference.pooling import frame_tokens
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.support.errors import UserError

from .conftest import CPU

SHAPE = {"layers": 3, "width": 16, "heads": 2, "positions": 64, "init_std": 0.3}
INNER = {"feed_forward": 32}


def test_a_predictor_returns_tokens_and_the_weights_of_each_head(make):
    model = make()
    attention = Predictor(model, CPU).attention("the dog", "a cat")
    count = len(attention.tokens)
    assert attention.weights.shape == (1, 2, count, count)
    assert attention.weights.dtype == np.float32
    assert np.allclose(attention.weights.sum(-1), 1, atol=1e-5)
    assert attention.weights.std() > 0.01
    assert all(module.training for module in model.encoder.modules()), "the model is not changed"


def test_the_weights_are_those_that_compute_the_output(make, tokenizer):
    encoder = make().encoder.eval()
    sample, _ = frame_tokens(tokenizer, ["the dog sees the cat"], 32)
    weights = torch.from_numpy(read_attention(encoder, sample)[0])  # of the first layer
    found = []
    attention = encoder.blocks[0].attention
    attention.qkv.register_forward_hook(lambda module, given, out: found.append(out[: len(sample)]))
    attention.out.register_forward_pre_hook(lambda module, given: found.append(given[0][: len(sample)]))
    encoder(collate([sample.named((0,))]).tokens)
    values = found[0].view(len(sample), 3, 2, 8)[:, 2]  # (tokens, heads, head width)
    attended = torch.einsum("hqk,khw->qhw", weights, values).reshape(len(sample), -1)
    assert torch.allclose(attended, found[1], atol=1e-5)


def test_causal_heads_see_no_later_token(tokenizer):
    weights = read_attention(GptSettings(**SHAPE).build(tokenizer.size), frame_tokens(tokenizer, ["the dog"], 9)[0])
    assert weights.shape[:2] == (3, 2)
    assert np.abs(np.triu(weights, 1)).max() == 0
    assert np.allclose(weights.sum(-1), 1, atol=1e-5)


def test_shared_layers_are_read_once_per_layer(tokenizer):
    encoder = AlbertSettings(**SHAPE, **INNER, embedding=8).build(tokenizer.size)
    weights = read_attention(encoder, frame_tokens(tokenizer, ["the dog sees"], 9)[0])
    assert weights.shape[:2] == (3, 2)
    assert not np.allclose(weights[0], weights[1])


def test_windows_are_refused(tokenizer):
    encoder = XlnetSettings(**SHAPE, **INNER, memory=4, window=4).build(tokenizer.size)
    assert read_attention(encoder, frame_tokens(tokenizer, ["dog"], 9)[0]).shape == (3, 2, 3, 3)
    with pytest.raises(UserError, match="5 tokens in windows"):
        read_attention(encoder, frame_tokens(tokenizer, ["the dog sees"], 9)[0])


def test_elmo_has_no_attention():
    words = train_words(["the dog sees the cat"], size=20)
    elmo = ElmoSettings(width=8, cells=8, filters=((1, 4), (2, 4)), characters=4).build(words.size)
    assert attention_obstacle(elmo)
    predictor = Predictor(Model(elmo, words), CPU)
    with pytest.raises(UserError, match="has no attention"):
        predictor.attention("the dog")
    assert predictor.influence("the dog sees").change.shape == (3, 3)
