"""The backend of exported models: ragged batches are padded for the engine, and its rows mapped back."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open

from unmask.inference.exported import (
    MANIFEST,
    ExportedBackend,
    ExportManifest,
    check_outputs,
    is_exported,
    load_exported,
    open_exported,
    write_check,
)
from unmask.inference.predictor import Predictor
from unmask.inference.program import FEATURES, ProgramSignature, probes
from unmask.support.errors import UserError
from unmask.tasks.regression import Regression
from unmask.tasks.rows import as_rows
from unmask.training.runs.display import Display


class Echo:
    """An engine whose output are the ids, the mask and the segments of each token, or of each first token."""

    def __init__(self, per_text):
        self.per_text = per_text

    def run(self, inputs):
        found = np.stack([inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids")], -1)
        assert (found[..., 0][found[..., 1] == 0] == 0).all()
        return found[:, 0] if self.per_text else found


def backend(signature):
    return ExportedBackend(Echo(signature.per_text), signature, "float32", 2, Display(quiet=True))


def test_each_token_gets_its_own_row(make):
    samples = probes(make(), signature := ProgramSignature("masked_lm", "masked"))
    for sample, rows in zip(samples, backend(signature).logits("masked_lm", samples), strict=True):
        assert rows[:, 0].tolist() == sample.ids.tolist() and (rows[:, 1] == 1).all()
        (alone,) = backend(signature).logits("masked_lm", [sample])
        assert alone.dtype == np.float32 and np.array_equal(alone, rows)


def test_each_text_gets_its_own_row(make):
    samples = probes(make(), signature := ProgramSignature("classification", "summary"))
    for sample, rows in zip(samples, backend(signature).logits("classification", samples), strict=True):
        assert rows.tolist() == [[sample.ids[0], 1, sample.segments[0]]]
        assert np.array_equal(backend(signature).logits("classification", [sample])[0], rows)


def test_outputs_that_are_all_0_are_compared_too(make, tmp_path):
    class Constant(Echo):
        value = 0.0

        def run(self, inputs):
            return np.full((len(inputs["input_ids"]), 2), self.value)

    model, signature = make(), ProgramSignature("regression", "summary")
    program = replace(backend(signature), engine=Constant(per_text=True))
    manifest = ExportManifest("onnx", "float32", signature, model.tokenizer.size)
    write_check(tmp_path, model, program)
    check_outputs(tmp_path, manifest, model, program)
    Constant.value = 1.0
    with pytest.raises(UserError, match="the program's outputs differ"):
        check_outputs(tmp_path, manifest, model, program)


def test_only_the_last_layer_is_there(make):
    samples = probes(make(), signature := ProgramSignature(FEATURES, ""))
    for number, rows in backend(signature).layers(samples, [2]):
        assert rows[:, 0, 0].tolist() == samples[number].ids.tolist()
    with pytest.raises(UserError, match=r"with its last layer, without these .* or ask for the last layer only \(-1\)"):
        backend(signature).layers(samples, [1])
    head = ProgramSignature("classification", "summary")
    with pytest.raises(UserError, match=r'its classification head, without these .*, or export that with head="feat'):
        backend(head).layers(samples, [2])
    with pytest.raises(UserError, match=r"hidden states; use the model that it was exported from$"):
        backend(head).layers(samples, [1])


def test_features_are_written_where_the_program_yields_the_last_layer(make, tmp_path):
    engine = backend(ProgramSignature(FEATURES, "")).engine
    made = make()
    echo = ExportedBackend(engine, ProgramSignature(FEATURES, ""), "int8", 1, Display(quiet=True), "0123")
    object.__setattr__(made.encoder, "width", 3)  # that of the echo
    Predictor(made, backend=echo).write_features(as_rows(["the dog", "a cat"]), [-1], tmp_path / "features.safetensors")
    with safe_open(tmp_path / "features.safetensors", framework="np") as file:
        assert file.metadata()["model"] == "0123" and file.metadata()["precision"] == "int8"
        ids = file.get_tensor("values")[:, 0, 0]
    tokenizer = made.tokenizer
    expected = [tokenizer.cls, *tokenizer.encode("the dog"), tokenizer.sep]
    assert ids[: len(expected)].tolist() == expected


def test_a_damaged_manifest_is_refused(tmp_path):
    assert not is_exported(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    assert is_exported(tmp_path)
    with pytest.raises(UserError, match="the file is damaged"):
        load_exported(tmp_path)


def test_a_program_that_applies_the_sigmoid_itself_is_refused(tmp_path):
    """Those of earlier versions did; here it would be applied twice. Programs of the last layer have none."""
    task, words = Regression(length=12, activation="sigmoid"), ("regression", "summary", ("logits",))
    for signature in (ProgramSignature(*words), ProgramSignature(*words, activation="sigmoid")):
        manifest = ExportManifest("onnx", "float32", signature, 10, task=task)
        message = "the program is of an earlier version" if not signature.activation else "config.json"
        with pytest.raises(UserError, match=message):
            open_exported(tmp_path, manifest)
    with pytest.raises(UserError, match=r"config\.json"):
        open_exported(tmp_path, ExportManifest("onnx", "float32", ProgramSignature(FEATURES, ""), 10, task=task))
