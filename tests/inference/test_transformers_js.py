"""Exports to ONNX are laid out as Optimum's, and transformers.js computes them as they are.

For the latter: `npm install --ignore-scripts @huggingface/transformers`, in the folder `node_modules` or NODE_MODULES;
run with --exhaustive.
"""

import json
import os
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from unmask.inference import export
from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor

from .conftest import CPU

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnxscript", reason="the extra onnx is not installed")

TEXT, OTHER, MASKED = "the dog sees the cat", "a garden near the sea", "the [MASK] sees the cat"
SCRIPT = Path(__file__).with_name("transformers_js.mjs")
FLOAT32 = {"dtype": "fp32", "device": "cpu"}
REQUESTS = {
    "classification": ("text-classification", [TEXT], {"top_k": 2}, FLOAT32),
    "large": ("text-classification", [TEXT], {"top_k": 2}, FLOAT32),
    "int8": ("text-classification", [TEXT], {"top_k": 2}, {"dtype": "q8", "device": "cpu"}),
    "token-classification": ("token-classification", [TEXT], {"ignore_labels": []}, FLOAT32),
    "question-answering": ("question-answering", ["who sees", TEXT], {"top_k": 3}, FLOAT32),
    "regression": ("text-ranking", [["the dog", "the dog"], ["a garden", "rain"]], {}, FLOAT32),
    "masked_lm": ("fill-mask", [MASKED], {"top_k": 3}, FLOAT32),
    "features": ("feature-extraction", [[TEXT, OTHER]], {"pooling": "mean", "normalize": True}, FLOAT32),
}
"""Task, inputs, options of the call and of loading, by exported model."""


def outputs(folder):
    """Return the names of the outputs of an exported program."""
    program = import_module("onnx").load(str(folder / "onnx/model.onnx"), load_external_data=False)
    return [output.name for output in program.graph.output]


@pytest.mark.parametrize(
    ("kind", "names"), [("classification", ["logits"]), ("question-answering", ["start_logits", "end_logits"])]
)
def test_files_and_outputs_have_the_names_of_optimum(make, tmp_path, kind, names):
    export_model(make(kind), Export("onnx"), tmp_path / "out")
    assert outputs(tmp_path / "out") == names
    assert [path.name for path in (tmp_path / "out/onnx").iterdir()] == ["model.onnx"]
    assert "onnx/model.onnx" in json.loads((tmp_path / "out/checksums.json").read_text())


def test_an_older_export_is_read(make, tmp_path):
    """Whose program is beside its other files, and has one output."""
    export_model(make(), Export("onnx"), tmp_path / "out")
    (expected,) = load(tmp_path / "out").predict([TEXT])
    (tmp_path / "out/onnx/model.onnx").rename(tmp_path / "out/model.onnx")
    manifest = json.loads((tmp_path / "out/export.json").read_text())
    del manifest["signature"]["outputs"]
    (tmp_path / "out/export.json").write_text(json.dumps(manifest))
    (tmp_path / "out/checksums.json").unlink()
    assert load(tmp_path / "out").predict([TEXT])[0].scores == expected.scores


@pytest.fixture
def exported(make, tmp_path, monkeypatch):
    """The folder of a model of each task, exported; in int8; with its weights beside it; and without a head."""
    for kind in ("classification", "token-classification", "question-answering", "regression"):
        export_model(make(kind), Export("onnx"), tmp_path / kind)
    export_model(make(), Export("onnx", "int8"), tmp_path / "int8")
    for head in ("masked_lm", "features"):
        export_model(make(), Export("onnx", head=head), tmp_path / head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "LARGEST_FILE", 0)
        patch.setattr(export, "trace", export.trace.__wrapped__)
        export_model(make(), Export("onnx"), tmp_path / "large")
    return tmp_path


def compute(folder):
    """Return what transformers.js computes, by exported model."""
    modules = Path(os.environ.get("NODE_MODULES", "node_modules")).resolve()
    if shutil.which("node") is None or not (modules / "@huggingface/transformers").is_dir():
        pytest.skip("node, or the package @huggingface/transformers, is not installed")
    names = ("task", "inputs", "options", "settings")
    asked = [
        {"folder": f"{folder}/", "model": model, **dict(zip(names, request, strict=True))}
        for model, request in REQUESTS.items()
    ]
    environment = {**os.environ, "NODE_MODULES": str(modules)}
    done = subprocess.run(
        ["node", str(SCRIPT)], input=json.dumps(asked), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(REQUESTS, json.loads(done.stdout), strict=True))


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_transformers_js_computes_what_the_models_do(exported, make):
    large = sorted(path.name for path in (exported / "large/onnx").iterdir())
    assert large == ["model.onnx", "model.onnx_data"] and outputs(exported / "features") == ["last_hidden_state"]
    found = compute(exported)
    original = {kind: Predictor(make(kind), CPU) for kind in ("classification", "question-answering", "regression")}
    (expected,) = original["classification"].predict([TEXT])
    for kind, bound in (("classification", 1e-5), ("large", 1e-5), ("int8", 0.1)):
        assert {item["label"]: item["score"] for item in found[kind]} == pytest.approx(expected.scores, abs=bound)
    ((mask,),) = [filling.masks for filling in original["classification"].fill([MASKED], top=3)]
    assert [(item["token_str"], item["score"]) for item in found["masked_lm"]] == [
        (item.token, pytest.approx(item.probability, abs=1e-5)) for item in mask.candidates
    ]
    vectors = original["classification"].embed([TEXT, OTHER])
    np.testing.assert_allclose(found["features"], vectors, atol=1e-5)
    scores = [item.score for item in original["regression"].predict(["the dog", "the dog"], ["a garden", "rain"])]
    assert np.array(found["regression"])[:, 0] == pytest.approx(scores, abs=1e-4)
    assert found["question-answering"][0]["answer"]
    model = make("token-classification")
    framed = model.task.frame(model.tokenizer, model.task.from_texts([TEXT]), model.labels, gold=False)
    (logits,) = Predictor(model, CPU).backend.logits(model.task.part, framed.samples)
    assert [item["entity"] for item in found["token-classification"]] == [model.labels[at] for at in logits.argmax(1)]
