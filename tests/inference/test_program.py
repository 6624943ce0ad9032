"""A program computes on padded tensors what the backend computes on ragged batches."""

import json

import numpy as np
import pytest
import torch

from unmask.data.batches.frame import Frame
from unmask.families import FAMILIES
from unmask.inference.backend import TorchBackend
from unmask.inference.program import FEATURES, ProgramSignature, build_program, default_head, probes
from unmask.model.model import Model, build_encoder
from unmask.support.durable import refuse_filled
from unmask.support.errors import UserError

from .conftest import CPU, MEANS, SETTINGS


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("classification", SETTINGS),
        ("classification", MEANS),
        ("regression", SETTINGS),
        ("token-classification", SETTINGS),
        ("question-answering", SETTINGS),
    ],
)
def test_a_program_ignores_padding(make, kind, settings):
    model = make(kind, settings=settings)
    backend = TorchBackend(model, CPU)
    program, signature = build_program(model, backend, default_head(model))
    assert signature.head == model.task.part
    samples = [sample for sample in probes(model, signature) if len(sample) + 3 <= model.encoder.longest]
    for sample, expected in zip(samples, backend.logits(signature.head, samples), strict=True):
        ids = torch.zeros(2, len(sample) + 3, dtype=torch.int64)
        segments, real = ids.clone(), ids.clone()
        for one, given in ((ids, sample.ids), (segments, sample.segments), (real, np.ones(len(sample)))):
            one[0, : len(sample)] = torch.from_numpy(np.asarray(given, np.int64))
        real[1] = 1
        with torch.no_grad():
            outputs = program(ids, real, segments)
        found = torch.stack(outputs, -1)[0] if isinstance(outputs, tuple) else outputs[0]
        found = found[None] if signature.per_text else found[: len(sample)]
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("kind", sorted(FAMILIES.keys() - {"elmo"}))
def test_the_inputs_are_those_that_the_saved_tokenizer_gives(tokenizer, tmp_path, kind):
    inner = {} if kind == "gpt" else {"feed_forward": 16}
    settings = FAMILIES[kind].settings(layers=1, width=16, heads=2, positions=32, **inner)
    model = Model(build_encoder(settings, tokenizer.size), tokenizer, {})
    program, _ = build_program(model, TorchBackend(model, CPU), FEATURES)
    model.tokenizer.save(tmp_path, summary=settings.summary, segments=settings.segments > 1)
    assert {*program.inputs} == {*json.loads((tmp_path / "tokenizer_config.json").read_text())["model_input_names"]}
    ids = torch.arange(14).view(2, 7)
    expected = program(ids, torch.ones_like(ids), torch.zeros_like(ids))
    torch.testing.assert_close(program(ids, torch.ones_like(ids)), expected)


def test_without_a_task_the_masked_lm_head_or_the_last_layer_is_exported(make):
    model = make()
    object.__setattr__(model, "task", None)
    assert default_head(model) == "masked_lm"
    object.__setattr__(model, "heads", {})
    assert default_head(model) == FEATURES


def test_probes_are_texts_and_pairs_of_each_length(make):
    lengths = [len(sample) for sample in probes(make(), ProgramSignature(FEATURES, ""))]
    pair = Frame.of(make().tokenizer).wrap([5], [5])
    assert lengths[8:] == [max(length, len(pair)) for length in lengths[:8]]  # a token of each text at least
    assert max(lengths) == make().encoder.longest


def test_a_filled_directory_is_refused(tmp_path):
    refuse_filled(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not empty"):
        refuse_filled(tmp_path)
