"""The torch backend: logits and hidden states per sample, computed without a second copy of the weights."""

import numpy as np
import pytest
import torch
from torch import nn

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.inference.backend import BATCH_TOKENS, TorchBackend, inference_copy
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.support.errors import UserError

from .conftest import BF16, CPU, TEXTS


def framed(tokenizer):
    frame = Frame.of(tokenizer)
    return [frame.wrap(tokenizer.encode(text)) for text in TEXTS]


def test_float32_on_the_same_device_holds_no_second_copy_of_the_weights(make):
    model = make()
    shared = {one.data_ptr() for one in model.encoder.parameters()}
    assert {one.data_ptr() for one in TorchBackend(model, CPU).encoder.parameters()} == shared
    own = list(TorchBackend(model, BF16).encoder.parameters())
    assert {one.dtype for one in own} == {torch.bfloat16} and shared.isdisjoint(one.data_ptr() for one in own)


def test_a_missing_head_is_reported(make):
    model = make()
    with pytest.raises(UserError, match="this model has no classification head"):
        Predictor(Model(model.encoder, model.tokenizer, {}, model.labels, model.task), CPU).predict("a")


def test_an_inference_copy_is_in_evaluation_mode_and_leaves_the_module_as_it_is():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    same, half = inference_copy(module, CPU), inference_copy(module, BF16)
    assert module.training and not same.training and not half.training
    assert [value.data_ptr() for value in same.state_dict().values()] == [
        value.data_ptr() for value in module.state_dict().values()
    ]
    assert {value.dtype for value in half.state_dict().values()} == {torch.bfloat16, torch.int64}, "counters stay int64"
    assert {value.dtype for value in module.parameters()} == {torch.float32}


@pytest.mark.parametrize("machine", [CPU, BF16], ids=["float32", "bf16"])
def test_logits_are_float32_and_in_the_order_of_the_samples(make, tokenizer, monkeypatch, machine):
    backend, samples = TorchBackend(make(), machine), framed(tokenizer)
    together = backend.logits("classification", samples)
    assert backend.precision == machine.precision
    assert [(rows.shape, rows.dtype) for rows in together] == [((1, 2), np.float32)] * len(samples)
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 1)  # each sample is a batch
    for rows, sample in zip(together, samples, strict=True):
        np.testing.assert_allclose(backend.logits("classification", [sample])[0], rows, rtol=0, atol=0.02)


def test_layers_of_all_tokens_of_some_positions_and_pooled(make, tokenizer):
    backend, samples = TorchBackend(make(), CPU), framed(tokenizer)
    rows = dict(backend.layers(samples, (1, 0)))
    first = dict(backend.layers(samples, (1,), at="summary"))
    pooled = dict(backend.layers(samples, (1,), at="summary", pooled=True))
    for number, sample in enumerate(samples):
        with torch.no_grad():
            last = backend.encoder(collate([sample]).tokens).last
            expected = backend.encoder.pooler(last[:1]).numpy()
        assert rows[number].shape == (len(sample), 2, 16)
        np.testing.assert_allclose(rows[number][:, 0], last.numpy(), rtol=0, atol=1e-5)
        np.testing.assert_allclose(first[number], rows[number][:1, :1], rtol=0, atol=1e-6)
        np.testing.assert_allclose(pooled[number][:, 0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("machine", [CPU, BF16], ids=["float32", "bf16"])
def test_a_text_alone_gets_the_logits_of_a_batch_also_by_onednn(make, tokenizer, with_onednn, machine):
    samples = framed(tokenizer)
    exact = inference_copy(make().encoder, CPU)
    backend = TorchBackend(make(), machine)
    for sample in (*samples, samples[0]):  # the second time with the matrices that were kept
        tokens = collate([sample]).tokens
        expected = exact(tokens).last.detach()  # with gradient: by the kernels for batches
        with torch.inference_mode():
            found = backend.encoder(tokens).last.float()
        assert float((found - expected).norm() / expected.norm()) < (1e-5 if machine is CPU else 0.05)
