from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec.structs import replace as replace_struct

from unmask.data.batches.batch import Sample
from unmask.families.checkpoints.sentence_files import read_pooling
from unmask.families.checkpoints.sentence_modules import Pooling, supported
from unmask.inference.backend import TorchBackend
from unmask.inference.pooling import embed_samples, normalized, pooled
from unmask.inference.predictor import Predictor
from unmask.inference.static import StaticPredictor
from unmask.nn.encoders.pooled import Dense
from unmask.support.errors import InputWarning, UserError
from unmask.tasks.rows import as_rows, frame_rows

from .conftest import CPU, TEXTS


def test_a_vector_is_the_mean_or_that_of_cls():
    rows = np.arange(6.0).reshape(3, 2)
    sample = Sample(key=(), ids=np.zeros(3), positions={"summary": np.array([2])})  # as in XLNet
    assert pooled(rows, sample, "mean").tolist() == [2, 3]
    assert pooled(rows, sample, "cls").tolist() == [4, 5]
    assert normalized(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6, 0.8], [0, 0]]


def test_vectors_are_in_the_order_of_the_texts(make):
    model = make()
    backend, (samples, *_) = TorchBackend(model, CPU), frame_rows(model.tokenizer, as_rows(TEXTS), 32)
    found = embed_samples(backend, model, samples, Pooling(kind="cls"))
    alone = np.concatenate([embed_samples(backend, model, [sample], Pooling(kind="cls")) for sample in samples])
    assert found.shape == (len(TEXTS), model.encoder.width)
    np.testing.assert_allclose(found, alone, atol=1e-6)


def test_models_average_unless_they_state_something_else():
    assert supported(None) == Pooling(kind="mean")
    assert supported(Pooling(kind="cls")).kind == "cls"
    with pytest.raises(UserError, match="need pooling by max_tokens, which is not supported"):
        supported(Pooling(unsupported="pooling by max_tokens"))


def test_a_pooling_that_is_named_changes_nothing_else(make):
    """The prompt, the maximum length and the number of dimensions that the model states were ignored with it."""
    stated = Pooling(kind="mean", length=7, prompt="a ", query="the ", dimensions=5)
    model = replace(make(), task=None, pooling=stated)
    long = [*TEXTS, " ".join(TEXTS)]
    samples, *_ = frame_rows(model.tokenizer, as_rows([f"the {text}" for text in long]), 7)
    expected = embed_samples(TorchBackend(model, CPU), model, samples, Pooling(kind="max"))[:, :5]
    with pytest.warns(InputWarning, match="longer than 7 tokens"):
        found = Predictor(model, CPU).embed(long, pooling="max", prompt_name="query")
    np.testing.assert_allclose(found, normalized(expected), atol=1e-6)
    dense = replace(model, pooling=replace_struct(stated, dense=(Dense(width=8),), normalize=False))
    raw = Predictor(dense, CPU).embed(TEXTS[:1], pooling="cls", prompt_name="document")
    assert raw.shape == (1, 16) and not np.isclose(np.linalg.norm(raw), 1)


def test_prompts_that_are_unknown_are_refused(make):
    """A static encoder took the default prompt for them."""
    model = make()
    static = StaticPredictor(torch.ones(model.tokenizer.size, 4), model.tokenizer, Pooling(query="the "))
    for predictor in (Predictor(replace(model, task=None), CPU), static):
        with pytest.raises(UserError, match="prompt_name"):
            predictor.embed(TEXTS, prompt_name="queries")


@pytest.mark.minilm
def test_a_published_model_states_mean_pooling_of_256_tokens(minilm):
    assert read_pooling(minilm) == Pooling(kind="mean", normalize=True, length=256)
