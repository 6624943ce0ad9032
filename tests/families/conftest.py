"""Checks that a family's models are exported and served, for the tests of families."""

import pytest
import torch

from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.serving.metrics import Meter
from unmask.serving.types import Limits
from unmask.tasks.classification import Classification
from unmask.tasks.rows import as_rows, frame_rows
from unmask.training.machine import choose_machine

TEXTS = ["the dog", "the cat near the sea", "a garden"]


def model_of(settings, tokenizer, task=None, labels=()):
    """Return a random model with a masked-LM head or, for a task, with its head."""
    torch.manual_seed(0)
    encoder = settings.build(tokenizer.size)
    head = OBJECTIVES["masked_lm"]().build(BuildContext(encoder)) if task is None else task.build(encoder.head, labels)
    return Model(encoder, tokenizer, {task.part if task else "masked_lm": head.published()}, labels, task)


def assert_exported(settings, tokenizer, folder):
    """Check that the ONNX program of a classifier computes the same, within 1e-4 of the largest logit."""
    for library in ("onnxruntime", "onnxscript"):
        pytest.importorskip(library, reason="the extra onnx is not installed")
    model = model_of(settings, tokenizer, Classification(length=16), ("bad", "good", "so-so"))
    samples = frame_rows(tokenizer, as_rows(TEXTS), 12).samples
    manifest = export_model(model, Export("onnx", "float32", None, "any"), folder / "exported", samples)
    assert manifest.difference < 1e-4 * max(1, manifest.scale)
    machine = choose_machine("cpu", "float32")
    original, exported = (p.predict(TEXTS) for p in (Predictor(model, machine), load(folder / "exported")))
    assert [row.label for row in original] == [row.label for row in exported]


def assert_served(settings, tokenizer):
    """Check that a masked LM answers a request to fill a mask and one for an embedding."""
    testclient = pytest.importorskip("starlette.testclient", reason="the extra serve is not installed")
    from unmask.serving.app import create_app
    from unmask.serving.served import Served
    from unmask.serving.service import Service

    predictor, limits, meter = (
        Predictor(model_of(settings, tokenizer), choose_machine("cpu", "float32")),
        Limits(),
        Meter(),
    )
    service = Service([Served("model", predictor, limits, meter)], limits, meter)
    with testclient.TestClient(create_app(service), base_url="http://localhost") as client:
        ((mask,),) = client.post(
            "/fill", json={"inputs": f"the {tokenizer.token(tokenizer.mask)} sees", "top": 3}
        ).json()
        assert len(mask["candidates"]) == 3
        (vector,) = client.post("/embed", json={"inputs": ["the dog"]}).json()
        assert len(vector) == settings.width
