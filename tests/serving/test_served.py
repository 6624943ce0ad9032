import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tests.serving.conftest import KINDS, LIMITS
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference import fill
from unmask.inference.backend import TorchBackend
from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.inference.static import StaticPredictor
from unmask.model.model import Model, save_model
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import Refusal
from unmask.serving.endpoints import features
from unmask.serving.metrics import Meter
from unmask.serving.playground import AttentionRequest, attention_job, describe
from unmask.serving.run import ModelSource, load_served, share_encoders
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.serving.types import EmbedRequest, FeaturesRequest, FillRequest
from unmask.support.errors import InputWarning, UserError
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.routes import PredictRequest, TagRequest
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
ROUTES = ["/tokenize", "/decode", "/predict", "/explain", "/pipeline/text-classification"]
LONG = "the dog sees the cat " * 20


def refused(function, request):
    with pytest.raises(Refusal) as found:
        function(request)
    return found.value.status


def test_S4_a_long_text_is_refused_or_truncated(serving):
    masked, classes = serving("masked", "classes").models.values()
    for function, kind in ((masked.embed, EmbedRequest), (partial(features, masked), FeaturesRequest)):
        assert refused(function, kind(inputs=LONG)) == 422
        (sample,) = function(kind(inputs=LONG, truncate=True)).samples
        assert len(sample) == 40
    assert refused(classes.ask, PredictRequest(inputs=LONG)) == 422
    assert [len(sample) for sample in classes.ask(PredictRequest(inputs=LONG, truncate=True)).samples] == [16]


@pytest.mark.parametrize("kind", ["vectors", "sparse"])
def test_hidden_states_and_masks_are_of_all_tokens_that_the_encoder_reads(tiny, kind):
    """As in Python, however short the texts are that vectors are made of."""
    model = replace(tiny["masked"], pooling=Pooling(length=16)) if kind == "vectors" else tiny["sparse"]
    served = Served(kind, Predictor(model, CPU), LIMITS, Meter())
    job = features(served, FeaturesRequest(inputs=LONG, truncate=True))
    (found,) = job.read(served.compute(job.head, job.samples))
    expected = served.predictor.features([LONG]).values[:, 0]
    assert len(expected) == 40
    np.testing.assert_allclose(found.values[0], expected, atol=1e-5)
    text = "the dog " * 15 + "[MASK]"
    job = served.fill(FillRequest(inputs=text))
    ((mask,),) = job.read(served.compute(job.head, job.samples))
    (filling,) = served.predictor.fill([text])
    assert [of.piece for of in mask.candidates] == [of.piece for of in filling.masks[0].candidates]


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
    assert (info.routes, info.model_dtype) == (ROUTES, "int8")
    assert describe(served).views == ["label", "audit", "suggest"]
    for route in ("/embed", "/v1/embeddings", "/features", "/playground/influence"):
        with pytest.raises(Refusal, match=f"`model`: this model has no {route}; /info lists"):
            service.find("exported", route)
    service.close()


def test_a_model_that_was_exported_without_its_head_serves_the_rest(tiny, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    export_model(tiny["classes"], Export("onnx", head="features"), tmp_path / "out")
    (served,) = load_served([ModelSource("exported", str(tmp_path / "out"))], CPU, LIMITS, Meter())
    assert served.has("/embed") and not served.has("/predict")
    assert describe(served).views == ["compare"]
    with pytest.raises(Refusal, match="`model`: attention is computed by the weights of a model, which"):
        attention_job(served, AttentionRequest(inputs="the dog"))
    with pytest.raises(UserError, match="attention is computed by the weights of a model, which an exported one"):
        served.predictor.attention("the dog")
    model = replace(served.model, task=LateInteraction(length=16, query_length=8))
    tokens = Served("tokens", Predictor(model, backend=served.predictor.backend), LIMITS, Meter())
    assert not any(map(tokens.has, ("/embed", "/similarity", "/rerank", "/embed_all"))), "without their projection"
    assert tokens.has("/features")


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


def test_the_product_of_masks_and_vocabulary_is_bounded(client, tiny):
    """200 requests around the limits: what is answered is within them, and what is refused is not."""
    size = tiny["masked"].tokenizer.size
    limits = replace(LIMITS, logits=30 * size, candidates=60)
    one, rng, statuses = client("masked", limits=limits), np.random.default_rng(0), set()
    for _ in range(200):
        texts = ["[MASK] " * int(rng.integers(1, 12)) + "dog" for _ in range(rng.integers(1, 8))]
        top, masks = int(rng.integers(1, 8)), sum(text.count("[MASK]") for text in texts)
        found = one.post("/fill", json={"inputs": texts, "top": top})
        allowed = masks * size <= limits.logits and masks * top <= limits.candidates
        assert found.status_code == (200 if allowed else 413)
        assert allowed or f"`inputs`: {masks} masks" in found.json()["error"]
        statuses.add((found.status_code, masks * top > limits.candidates))
    assert len(statuses) == 3, "both limits are met"


def test_a_fill_is_the_same_in_blocks(client, tiny, monkeypatch):
    texts = ["the [MASK] sees the [MASK]", "[MASK]", "a [MASK] cat"]
    expected = client("masked").post("/fill", json={"inputs": texts}).json()
    blocks = []
    real = TorchBackend.logits

    def logits(self, head, samples):
        blocks.append(len(samples))
        return real(self, head, samples)

    monkeypatch.setattr(TorchBackend, "logits", logits)
    monkeypatch.setattr(fill, "MAX_LOGITS", 3 * tiny["masked"].tokenizer.size)
    found = client("masked").post("/fill", json={"inputs": texts}).json()
    assert blocks == [2, 1]
    for text, other in zip(found, expected, strict=True):
        for mask, same in zip(text, other, strict=True):
            assert [one["piece"] for one in mask["candidates"]] == [one["piece"] for one in same["candidates"]]
            assert [one["probability"] for one in mask["candidates"]] == pytest.approx(
                [one["probability"] for one in same["candidates"]], rel=1e-4
            )


def test_the_product_of_targets_and_labels_is_bounded(client, tiny):
    one = client("classes", "tags", limits=replace(LIMITS, logits=12))
    for count in range(1, 8):
        found = one.post("/predict", json={"inputs": [["the dog"]] * count, "model": "classes"})
        assert found.status_code == (200 if 3 * count <= 12 else 413)
    route = tiny["tags"].task.route.path
    assert one.post(route, json={"inputs": "dog " * 4, "model": "tags"}).status_code == 200
    assert one.post(route, json={"inputs": "dog " * 5, "model": "tags"}).status_code == 413


def test_hidden_states_do_not_leave_the_batch(serving):
    """What waits until all texts of a request are computed is a vector for each, not the states of its tokens."""
    (served,) = serving("masked").models.values()
    job = served.embed(EmbedRequest(inputs=["the dog sees the cat", "dog"]))
    assert [rows.shape for rows in served.compute(job.head, job.samples)] == [(16,), (16,)]
    other = served.embed(EmbedRequest(inputs="dog"))
    assert job.head == other.head, "both are computed together"
    first, second = (served.fill(FillRequest(inputs="[MASK]", top=2)) for _ in range(2))
    assert first.head == second.head
    assert [rows.shape for rows in served.compute(first.head, first.samples)] == [(1, 2, 2)]


@pytest.mark.parametrize("normalize", [False, True])
def test_a_static_encoder_is_served_without_its_special_tokens(tokenizer, normalize):
    """Those of published ones have vectors; truncation does not count them, either."""
    table = torch.randn(tokenizer.size, 8, generator=torch.Generator().manual_seed(0))
    predictor = StaticPredictor(table, tokenizer, Pooling(normalize=normalize, length=4), CPU)
    shared = share_encoders([predictor, StaticPredictor(table.clone(), tokenizer, Pooling(normalize=normalize), CPU)])
    assert [type(each) for each in shared] == [StaticPredictor] * 2
    served = Served("static", shared[0], LIMITS, Meter())
    served.warm_up()
    views = describe(served)
    assert (views.family, views.size) == ("static", f"{tokenizer.size} tokens of width 8")
    texts = ["the dog", "sea", "the dog sees a cat", "dog cat sea dog"]
    assert refused(served.embed, EmbedRequest(inputs=texts)) == 422
    job = served.embed(EmbedRequest(inputs=texts, truncate=True, normalize=normalize))
    vectors = job.read(served.compute(job.head, job.samples))
    ids = [tokenizer.encode(text)[:4] for text in texts]
    means = np.stack([table[torch.from_numpy(each).long()].mean(0).numpy() for each in ids])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True) if normalize else means
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # that texts are truncated
        np.testing.assert_allclose(vectors, predictor.embed(texts), atol=1e-6)
