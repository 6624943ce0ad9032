from dataclasses import replace

import numpy as np
import pytest

from tests.serving.conftest import KINDS, LIMITS
from unmask.inference.export import Export, export_model
from unmask.inference.predictor import load
from unmask.model.model import Model
from unmask.serving.app import Service
from unmask.serving.metrics import Meter
from unmask.serving.playground import describe
from unmask.serving.served import Served
from unmask.serving.types import EmbedRequest, FeaturesRequest, Refusal
from unmask.support.errors import UserError
from unmask.tasks.routes import PredictRequest, TagRequest

LONG = "the dog sees the cat " * 20


def refused(function, request):
    with pytest.raises(Refusal) as found:
        function(request)
    return found.value.status


def test_S4_a_long_text_is_refused_or_truncated(serving):
    masked, classes = serving("masked", "classes").models.values()
    for function, kind in ((masked.embed, EmbedRequest), (masked.features, FeaturesRequest)):
        assert refused(function, kind(inputs=LONG)) == 422
        (sample,) = function(kind(inputs=LONG, truncate=True)).samples
        assert len(sample) == 40
    assert refused(classes.ask, PredictRequest(inputs=LONG)) == 422
    assert [len(sample) for sample in classes.ask(PredictRequest(inputs=LONG, truncate=True)).samples] == [16]


def test_S4_a_text_of_exactly_the_maximum_is_not_refused(serving, tokenizer):
    masked, classes = serving("masked", "classes").models.values()
    text = " ".join(["dog"] * 14)
    assert len(tokenizer.encode(text)) == 14
    assert len(classes.ask(PredictRequest(inputs=text)).samples[0]) == 16
    assert refused(classes.ask, PredictRequest(inputs=text + " dog")) == 422
    assert len(masked.embed(EmbedRequest(inputs=" ".join(["dog"] * 38))).samples[0]) == 40
    assert refused(masked.embed, EmbedRequest(inputs=" ".join(["dog"] * 39))) == 422


@pytest.mark.parametrize("method", ["encode_many", "encode", "encode_words", "encode_offsets_many"])
def test_S4_characters_are_counted_before_they_are_tokenized(serving, method, monkeypatch):
    models = serving("masked", "classes", "tags").models
    seen = []
    for served in models.values():
        real = getattr(served.tokenizer, method)
        monkeypatch.setattr(served.tokenizer, method, lambda texts, real=real: seen.extend(texts) or real(texts))
    huge = "a" * (LIMITS.characters + 1)
    assert refused(models["masked"].embed, EmbedRequest(inputs=huge)) == 422
    assert refused(models["classes"].ask, PredictRequest(inputs=[[huge]])) == 422
    assert refused(models["tags"].ask, TagRequest(inputs=["a", huge])) == 422
    assert not seen
    models["masked"].embed(EmbedRequest(inputs=huge, truncate=True))
    models["classes"].ask(PredictRequest(inputs=huge, truncate=True))
    assert all(len(text) <= LIMITS.characters for text in seen)


def test_S5_windows_count_as_tokens(serving):
    (tags,) = serving("tags").models.values()
    assert len(tags.ask(TagRequest(inputs=LONG)).samples) > 5
    (tags,) = serving("tags", limits=replace(LIMITS, request_tokens=50)).models.values()
    assert refused(tags.ask, TagRequest(inputs=LONG)) == 413


def test_the_longest_text_fits_into_a_batch(serving):
    (masked,) = serving("masked", limits=replace(LIMITS, batch_tokens=20)).models.values()
    assert masked.longest == 20
    assert refused(masked.embed, EmbedRequest(inputs=LONG)) == 422


def test_embeddings_are_means_of_the_last_layer(serving):
    (masked,) = serving("masked").models.values()
    job = masked.embed(EmbedRequest(inputs=["the dog", "a garden"], normalize=False))
    vectors = job.read(masked.compute(job.head, job.samples))
    found = masked.predictor.features(["the dog", "a garden"])
    for index, vector in enumerate(vectors):
        rows = found.values[found.offsets[index] : found.offsets[index + 1], 0].numpy()
        np.testing.assert_allclose(vector, rows.mean(0), atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "masked"])
def test_a_damaged_head_is_noticed_at_the_start(serving, tiny, monkeypatch, kind):
    (whole, masked) = serving(kind, "masked").models.values()
    whole.warm_up()
    masked.warm_up()
    (damaged,) = serving(kind).models.values()
    part = tiny[kind].task.part
    monkeypatch.setattr(damaged.predictor.backend, "model", Model(**{**vars(tiny[kind]), "heads": {part: {}}}))
    with pytest.raises(UserError, match=f"{part} head is missing"):
        damaged.warm_up()


def test_a_model_that_was_exported_with_its_head_answers_the_routes_of_that_head(tiny, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    export_model(tiny["classes"], Export("onnx", "int8"), tmp_path / "out")
    meter = Meter()
    served = Served("exported", load(tmp_path / "out"), LIMITS, meter)
    served.warm_up()
    service = Service([served], LIMITS, meter)
    (info,) = [service.describe(one) for one in service.models.values()]
    assert (info.routes, info.model_dtype) == (["/predict"], "int8")
    assert describe(served).views == ["label"]
    for route in ("/embed", "/v1/embeddings", "/features", "/playground/influence"):
        with pytest.raises(Refusal, match="this model cannot do this"):
            service.find("exported", route)
    service.close()
