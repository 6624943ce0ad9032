"""Exported models compute what the original does, and are refused with a reason where they cannot."""

import errno
import inspect
import json
from copy import copy
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
import transformers

from unmask.families.checkpoints.hub import CHECK, MANIFEST
from unmask.families.xlnet import XlnetSettings
from unmask.inference import export
from unmask.inference.engines import OPERATOR, OnnxEngine, multiplies_signed_bytes
from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.inference.program import Program
from unmask.model.model import Model
from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.nn.encoders.pooled import Dense
from unmask.support.errors import UserError
from unmask.support.model_card import read_metadata
from unmask.tasks.embedding import Embedding
from unmask.tasks.regression import Regression, logits_of
from unmask.tasks.rows import as_rows, frame_rows
from unmask.training.machine import processor

from .conftest import CPU, MEANS, TEXTS

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnxscript", reason="the extra onnx is not installed")


UINT8, INT8 = 2, 3
"""Types of tensors in ONNX programs."""


def write(model, folder, format="onnx", precision="float32", head=None, target="any"):
    if format == "openvino":
        pytest.importorskip("openvino", reason="the extra openvino is not installed")
        pytest.importorskip("nncf", reason="the extra openvino is not installed")
    samples = frame_rows(model.tokenizer, as_rows(TEXTS), 12).samples
    return export_model(model, Export(format, precision, head, target), folder / "out", samples)


@pytest.mark.parametrize(
    "kind",
    ["classification", pytest.param("token-classification", marks=pytest.mark.exhaustive), "question-answering"],
)
def test_an_exported_model_predicts_what_the_original_does(make, tmp_path, kind):
    model = make(kind)
    manifest = write(model, tmp_path)
    assert 0 < manifest.difference < 1e-4 < manifest.scale
    original, exported = Predictor(model, CPU), load(tmp_path / "out")
    if kind == "question-answering":
        asked = [one.question("who", "the dog near the sea in the garden") for one in (original, exported)]
        one, two = (p.run([q]) for p, q in zip((original, exported), asked, strict=True))
    else:
        one, two = (p.predict(TEXTS) for p in (original, exported))
        assert exported.labels == model.labels
    assert str(one)[:40] == str(two)[:40] and len(one) == len(two)


@pytest.mark.parametrize("dense", [(), (Dense(width=6, activation="tanh"),)])
def test_a_model_of_vectors_embeds_and_compares_after_its_export(make, tmp_path, dense):
    """Its program returns the last layer, from which both are made."""
    encoder, task = make().encoder.eval(), Embedding(length=12, dense=dense, query_prompt="the ", dimensions=5)
    heads = {"embedding": task.build(encoder.head, ()).published()}
    model = Model(encoder, make().tokenizer, heads, (), task, pooling=task.vectors.pooling)
    assert write(model, tmp_path).signature.head == "features"
    original, exported = Predictor(model, CPU), load(tmp_path / "out")
    vectors = [of.embed(TEXTS, prompt_name="query") for of in (original, exported)]
    assert vectors[0].shape == (len(TEXTS), 5)
    np.testing.assert_allclose(*vectors, atol=1e-5)
    one, two = (of.predict(TEXTS, TEXTS[::-1]) for of in (original, exported))
    np.testing.assert_allclose([found.score for found in one], [found.score for found in two], atol=1e-5)
    assert [found.rank for found in one] == [found.rank for found in two]
    (tmp_path / "out/checksums.json").unlink()  # changed on purpose
    config = tmp_path / "out/1_Pooling/config.json"
    config.write_text(config.read_text().replace('mean_tokens": true', 'mean_tokens": false'))
    config.write_text(config.read_text().replace('cls_token": false', 'cls_token": true'))
    assert load(tmp_path / "out").fingerprint() != exported.fingerprint(), "its vectors are others"


def test_openvino_computes_the_same_hidden_states(make, tmp_path):
    model = make()
    write(model, tmp_path, "openvino", head="features")
    one, two = (predictor.features(TEXTS) for predictor in (Predictor(model, CPU), load(tmp_path / "out")))
    torch.testing.assert_close(one.values, two.values, atol=1e-4, rtol=1e-4)
    with pytest.raises(UserError, match="without these hidden states"):
        load(tmp_path / "out").features(TEXTS, layers=[0])
    with pytest.raises(UserError, match="its last layer, without a classification head"):
        load(tmp_path / "out").backend.logits("classification", [])


@pytest.mark.parametrize(
    ("format", "target"),
    [
        *(("onnx", "any"), ("onnx", "this"), ("openvino", "this")),
        pytest.param("openvino", "any", marks=pytest.mark.exhaustive),  # which "this" tries first
    ],
)
def test_int8_for_any_processor_and_for_this_one(make, tmp_path, format, target):
    model = replace(make(), revision="someone/model@abc", card="---\nlicense: mit\nlanguage: en\n---\n")
    manifest = write(model, tmp_path, format, "int8", target=target)
    assert 0 < manifest.difference < (0.2 if format == "onnx" else 0.4) * manifest.scale
    assert (manifest.target, manifest.processor) == (target, processor())
    card = (tmp_path / "out/README.md").read_text()
    assert processor() in card and ("any processor" in card) == (target == "any")
    assert read_metadata(card) == {
        **{"language": ["en"], "library_name": {"onnx": "transformers.js"}.get(format, format)},
        **{"pipeline_tag": "text-classification", "tags": [format], "base_model": "someone/model"},
        **{"base_model_relation": "quantized", "base_model_license": "mit"},
    }
    if format == "onnx":
        graph = import_module("onnx").load(tmp_path / "out/onnx/model_quantized.onnx").graph
        types = {tensor.name: tensor.data_type for tensor in graph.initializer}
        weights = {types[node.input[1]] for node in graph.node if node.op_type == OPERATOR}
        assert weights == {INT8 if target == "this" and multiplies_signed_bytes() else UINT8}


def test_a_target_without_int8_has_no_effect(make, tmp_path):
    with pytest.raises(UserError, match="the target has no effect in float32"):
        write(make(), tmp_path, target="this")


@pytest.mark.parametrize(("precision", "share"), [("float32", 0.002), ("int8", 0.06)])
def test_outputs_that_differ_from_those_after_the_export_are_refused(make, tmp_path, monkeypatch, precision, share):
    """As on a processor that computes something else."""
    write(make(), tmp_path, precision=precision)
    load(tmp_path / "out")
    real = OnnxEngine.run
    monkeypatch.setattr(OnnxEngine, "run", lambda engine, inputs: (1 + share / 4) * real(engine, inputs))
    load(tmp_path / "out")
    monkeypatch.setattr(OnnxEngine, "run", lambda engine, inputs: (1 + share) * real(engine, inputs))
    with pytest.raises(UserError, match=r"the program's outputs differ by \d.\d % from those on .*target=.any"):
        load(tmp_path / "out")
    monkeypatch.setattr(OnnxEngine, "run", lambda engine, inputs: np.nan * real(engine, inputs))
    with pytest.raises(UserError, match="outputs are not numbers"):
        load(tmp_path / "out")


def test_files_beside_a_program_that_are_not_its_own_are_refused(make, tmp_path):
    write(make("classification"), tmp_path)
    (tmp_path / "out/checksums.json").unlink()
    manifest = tmp_path / "out" / MANIFEST
    content = json.loads(manifest.read_text("utf8"))
    number = len(content["labels"])
    for labels in ([], content["labels"][1:], [*content["labels"], "more"], content["labels"][:1] * number):
        manifest.write_text(json.dumps(content | {"labels": labels}), "utf8")
        with pytest.raises(UserError, match=rf"export.json: labels does not name the {number} labels of the program"):
            load(tmp_path / "out")
    manifest.write_text(json.dumps(content | {"precision": "float16"}), "utf8")
    with pytest.raises(UserError, match=r"export.json: unknown precision 'float16'"):
        load(tmp_path / "out")
    manifest.write_text(json.dumps(content), "utf8")
    load(tmp_path / "out")
    (tmp_path / "out" / CHECK).write_bytes(b"no tensors")
    with pytest.raises(UserError, match=r"check.safetensors: the file is missing or damaged"):
        load(tmp_path / "out")
    (tmp_path / "out" / CHECK).unlink()
    with pytest.raises(UserError, match=r"check.safetensors: the file is missing or damaged"):
        load(tmp_path / "out")


def test_a_wrong_program_is_not_kept(make, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "BOUNDS", {"float32": 0.0})
    with pytest.raises(UserError, match="differs from the original by"):
        write(make(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Export("onnx", "bf16"), "does not compute in bf16"),
        (Export("openvino", "int8"), "calibrated by real texts"),
        (Export("onnx", "float32", "nothing"), "no nothing head"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(make, tmp_path, wanted, message):
    with pytest.raises(UserError, match=message):
        export_model(make(), wanted, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_program_is_refused(make, tmp_path):
    write(make(), tmp_path)
    path = tmp_path / "out/onnx/model.onnx"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged or was changed"):
        load(tmp_path / "out")


@pytest.mark.parametrize(
    "kind", ["difference", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("linear", "average"))]
)
def test_the_program_of_a_downstream_model_is_right_or_refused(make, tmp_path, kind):
    model = make(downstream=DownstreamSettings(kind=kind, layers=(-1, -2)))
    assert write(model, tmp_path).difference < 1e-4


def test_a_recurrent_downstream_model_is_refused_and_its_encoder_is_exported(make, tmp_path):
    model = make(downstream=DownstreamSettings(kind="rnn", layers=(-1,)))
    with pytest.raises(UserError, match=r'kind rnn cannot be exported: .*; export the hidden states: head="features"$'):
        write(model, tmp_path)
    assert write(model, tmp_path, head="features").difference < 1e-4


@pytest.mark.parametrize("format", ["onnx", pytest.param("openvino", marks=pytest.mark.exhaustive)])
def test_means_of_texts_are_exported(make, tmp_path, format):
    manifest = write(make(settings=MEANS), tmp_path, format)
    assert manifest.difference < 1e-4 < manifest.scale
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS)
    assert {*load(tmp_path / "out").backend.engine.names} == {*given}  # no segment ids


def test_the_tokenizer_beside_a_program_pads_where_it_may(make, tmp_path):
    """At the end, also of an XLNet, whose tokenizer otherwise pads texts at their beginning."""
    model = make(settings=XlnetSettings(layers=1, width=16, heads=2, feed_forward=32, init_std=0.3))
    model = replace(model, tokenizer=copy(model.tokenizer))
    model.tokenizer.summary = "last"
    write(model, tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    padded = words(TEXTS, padding=True, return_tensors="np")
    engine = OnnxEngine(tmp_path / "out/onnx/model.onnx", 1, "float32")
    logits = engine.run({name: np.asarray(padded[name], np.int64) for name in engine.names})
    samples = model.task.frame(model.tokenizer, as_rows(TEXTS), model.labels, gold=False).samples
    expected = Predictor(model, CPU).backend.logits("classification", samples)
    np.testing.assert_allclose(logits, np.concatenate(expected), atol=1e-5)


def test_the_program_of_a_cross_encoder_with_a_sigmoid_returns_logits(make, tmp_path):
    """As other programs expect; here the sigmoid follows, of a text alone and in a batch."""
    model = make("regression")
    model = replace(model, task=Regression(length=12, activation="sigmoid"))
    write(model, tmp_path)
    exported, original = load(tmp_path / "out"), Predictor(model, CPU)
    expected = np.array([score.score for score in original.predict(TEXTS)])
    assert (expected > 0).all() and (expected < 1).all()
    np.testing.assert_allclose([score.score for score in exported.predict(TEXTS)], expected, atol=1e-5)
    np.testing.assert_allclose([exported.predict(text)[0].score for text in TEXTS], expected, atol=1e-5)
    (sample,) = model.task.frame(model.tokenizer, as_rows(TEXTS[:1]), (), gold=False).samples
    inputs = {"input_ids": sample.ids, "attention_mask": np.ones(len(sample)), "token_type_ids": sample.segments}
    engine = OnnxEngine(tmp_path / "out/onnx/model.onnx", 1, "float32")
    logits = engine.run({name: np.asarray(values, np.int64)[None] for name, values in inputs.items()})
    np.testing.assert_allclose(logits.item(), logits_of(expected[0]), atol=1e-4)


def test_E5_a_full_disk_is_not_taken_for_what_cannot_be_exported(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("failed to export") from error

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(OSError, match="No space left"):
        inspect.unwrap(export.trace)(Program(torch.nn.Linear(1, 1), None), tmp_path / "model.onnx", ["out"])
