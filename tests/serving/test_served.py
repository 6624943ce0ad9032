from dataclasses import replace

import numpy as np
import pytest

from tests.serving.conftest import KINDS, LIMITS
from unmask.inference.export import Export, export_model
from unmask.inference.predictor import Predictor, load
from unmask.model.model import Model, save_model
from unmask.serving.app import Service
from unmask.serving.batcher import ComputeJob
from unmask.serving.metrics import Meter
from unmask.serving.playground import describe
from unmask.serving.run import ModelSource, load_served
from unmask.serving.served import Served
from unmask.serving.types import EmbedRequest, FeaturesRequest, Refusal
from unmask.support.errors import UserError
from unmask.tasks.routes import PredictRequest, TagRequest
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
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


def test_a_model_that_was_exported_without_its_head_serves_the_rest(tiny, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    export_model(tiny["classes"], Export("onnx", head="features"), tmp_path / "out")
    (served,) = load_served([ModelSource("exported", str(tmp_path / "out"))], CPU, LIMITS, Meter())
    assert served.has("/embed") and not served.has("/predict")
    assert describe(served).views == ["compare"]


def test_a_model_that_cannot_be_served_is_named(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(ComputeJob, "sound", lambda self, rows: False)
    save_model(tmp_path / "films", tiny["classes"], "card")
    with pytest.raises(UserError, match="films: the model cannot be served: its outputs are not numbers"):
        load_served([ModelSource("films", str(tmp_path / "films"))], CPU, LIMITS, Meter())


def test_a_text_of_several_windows_has_one_answer(client, tiny):
    one = client("windows")
    found = one.post("/predict", json={"inputs": "the dog sees the cat " * 6}).json()
    (expected,) = Predictor(tiny["windows"], CPU).predict(["the dog sees the cat " * 6])
    assert {item["label"]: item["score"] for item in found} == pytest.approx(expected.scores, abs=1e-6)
    raw = one.post("/predict", json={"inputs": "the dog sees the cat " * 6, "raw_scores": True}).json()
    logits = {item["label"]: item["score"] for item in raw}
    assert expected.scores["good"] == pytest.approx(1 / (1 + np.exp(logits["bad"] - logits["good"])), abs=1e-6)
    assert one.post("/predict", json={"inputs": LONG * 2}).status_code == 422, "longer than all windows"


def test_a_text_with_several_labels_shows_which_are_predicted(client, tiny):
    one, text = client("several"), "the dog sees the cat"
    found = one.post("/predict", json={"inputs": text}).json()
    (expected,) = Predictor(tiny["several"], CPU).predict([text])
    assert {item["label"]: item["score"] for item in found} == pytest.approx(expected.scores, abs=1e-6)
    assert {item["label"] for item in found if item["predicted"]} == set(expected.labels)


def test_answers_from_beams_whose_logits_are_infinite(client, tiny):
    asked = {"question": "who", "passage": "the dog sees the cat near the sea"}
    found = client("beams").post("/answer", json=asked).json()
    assert found["answer"] == Predictor(tiny["beams"], CPU).answer(**asked).answer
