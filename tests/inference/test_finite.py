"""Outputs that are not numbers leave no backend, whoever asks; minus infinity only where a task has it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.families.bert import BertSettings
from unmask.inference.backend import finite
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, build_encoder
from unmask.nn.encoders.pooled import unit_vectors
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.tasks.embedding import Embedding
from unmask.tasks.late_interaction import LateInteraction
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=40)


@pytest.mark.seeds(200)
def test_a_single_bad_value_is_noticed(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, int(rng.integers(1, 4))))
    values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 39)).astype(np.float32)
    values = np.clip(values, np.finfo(np.float32).min, np.finfo(np.float32).max)
    assert finite(values) is values, "also if their sum overflows"
    place = tuple(rng.integers(0, shape))
    for bad in (np.nan, np.inf, -np.inf):
        values[place] = bad
        with pytest.raises(UserError, match="outputs are not numbers"):
            finite(values)
        if bad == -np.inf:
            assert finite(values, infinite=True) is values
        else:
            with pytest.raises(UserError, match="outputs are not numbers"):
                finite(values, infinite=True)
    assert len(finite(np.zeros((0, 3), np.float32))) == 0


@pytest.fixture(params=[1e30, 1e38])
def diverged(request, tokenizer):
    """A model whose weights are finite, but too large."""
    encoder = build_encoder(SHAPE, tokenizer.size)
    head = ClassificationHead(SHAPE.head, 2)
    with torch.no_grad():
        for weight in (*encoder.parameters(), *head.parameters()):
            weight.copy_(torch.randn_like(weight) * request.param)
    return Model(encoder, tokenizer, {"classification": head.state_dict()}, ("neg", "pos"), Classification(length=16))


def test_a_model_that_overflows_has_no_results(diverged, tmp_path):
    predictor = Predictor(diverged, CPU)
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\nThe dog.\tneg\nA cat.\tpos\n")
    for ask in (
        lambda: predictor.predict(["The dog."]),
        lambda: predictor.features(["The dog."]),
        lambda: predictor.embed(["The dog."]),
        lambda: list(predictor.stream(predictor.read(path))),
        lambda: evaluate_task(predictor, path),
        lambda: predictor.influence("The dog sees."),
        lambda: predictor.attention("The dog sees."),
    ):
        with pytest.raises(UserError, match=r"outputs are not numbers.*use another checkpoint"):
            ask()


@pytest.mark.parametrize("task", [Embedding(length=16), LateInteraction(length=16, query_length=12)])
def test_vectors_whose_norms_overflow_are_no_zeros(tokenizer, task):
    """They are numbers, but divided by their norms they would be 0, and each cosine too."""
    encoder = build_encoder(SHAPE, tokenizer.size)
    with torch.no_grad():
        encoder.blocks[-1].feed_forward_norm.weight.fill_(1e22)
    head = task.build(encoder.head, ())
    predictor = Predictor(Model(encoder, tokenizer, {task.part: head.published()}, (), task), CPU)
    assert predictor.features(["The dog."]).values.isfinite().all()
    asks = [lambda: predictor.predict(["The dog."], ["A cat."])]
    asks += [lambda: predictor.embed_tokens(["The dog."])] if task.part == "late_interaction" else []
    for ask in asks:
        with pytest.raises(UserError, match="outputs are not numbers"):
            ask()


@given(arrays(np.float32, (3, 4), elements=st.floats(-(2.0**60), 2.0**60, width=32)))
def test_unit_vectors_are_those_of_torch(vectors):
    vectors = torch.from_numpy(vectors)
    assert torch.equal(unit_vectors(vectors), torch.nn.functional.normalize(vectors, dim=1))


def test_a_bad_vector_of_one_text_is_not_given_for_others(tokenizer):
    """Only the token that one text has is damaged."""
    encoder = build_encoder(SHAPE, tokenizer.size)
    model = Model(encoder, tokenizer)
    with torch.no_grad():
        encoder.embeddings.words.weight[tokenizer.encode("dog")[0]] = 3e38
    predictor = Predictor(replace(model), CPU)
    assert np.isfinite(predictor.embed(["a cat"])).all()
    with pytest.raises(UserError, match="outputs are not numbers"):
        predictor.embed(["a cat", "dog"])
