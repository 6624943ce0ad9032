"""Reranking and similarity: scores beside those of the predictor, in the shapes of other servers."""

import copy
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference.predictor import Predictor
from unmask.inference.search import embed_side
from unmask.model.model import Model
from unmask.serving.app import create_app, describe
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.tasks.embedding import Embedding
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression
from unmask.training.machine import choose_machine

from .conftest import LIMITS, SHAPE, testclient

QUERY = "where is the dog"
TEXTS = ["the dog is in the house", "a river", "the cat sees a dog near the sea", "rain"]
LONG = "the market " * 30


@pytest.fixture(scope="module")
def predictors(tokenizer):
    """Cross-encoders with and without an activation, and a model of vectors with prompts."""

    def build(task, pooling=None):
        torch.manual_seed(1)
        encoder = SHAPE.build(tokenizer.size)
        head = task.build(encoder.head, ())
        if task.reranks:
            torch.nn.init.normal_(head.out.weight)
        model = Model(encoder, tokenizer, {task.part: head.published()}, (), task, pooling=pooling)
        return Predictor(model, choose_machine("cpu", "float32"))

    prompts = Pooling(query="a poem ", document="the town ", length=16)
    return {
        "vectors": build(Embedding(length=16), prompts),
        "probability": build(Ranking(length=24, activation="sigmoid")),
        "score": build(Ranking(length=24, loss="pairwise", activation="identity")),
        "published": build(Regression(length=24, activation="sigmoid")),
        "tokens": build(LateInteraction(length=24, query_length=8, query_prompt="", document_prompt="")),
    }


@pytest.fixture
def ask(predictors):
    """Posts a request and returns the response; the models are those named."""

    def post(path, *names, status=200, **body):
        meter = Meter()
        served = [Served(name, predictors[name], LIMITS, meter) for name in names or predictors]
        app = create_app(Service(served, LIMITS, meter))
        with testclient.TestClient(app, base_url="http://localhost") as client:
            found = client.post(path, json=body)
        assert found.status_code == status, found.text
        return found.json()

    return post


def pairs(predictors, name):
    return np.array([one.score for one in predictors[name].predict([QUERY] * len(TEXTS), TEXTS)])


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize("name", ["probability", "score", "published"])
def test_scores_of_cross_encoders(ask, predictors, name):
    """Sigmoids of logits, as of Text Embeddings Inference, whatever the activation of the model; sorted."""
    scores = pairs(predictors, name)
    probabilities = sigmoid(scores) if name == "score" else scores
    found = ask("/rerank", name, query=QUERY, texts=TEXTS, return_text=True)
    order = np.argsort(-probabilities)
    assert [one["index"] for one in found] == order.tolist()
    assert [one["score"] for one in found] == pytest.approx(probabilities[order], abs=1e-5)
    assert [one["text"] for one in found] == [TEXTS[index] for index in order]
    raw = ask("/rerank", name, query=QUERY, texts=TEXTS, raw_scores=True, truncate=None)
    logits = np.log(probabilities / (1 - probabilities))
    assert [one["score"] for one in raw] == pytest.approx(logits[order], rel=1e-3)
    assert raw[0].keys() == {"index", "score"}


@pytest.mark.parametrize("name", ["probability", "score", "published"])
def test_raw_scores_of_predictions_are_logits(ask, predictors, name):
    scores = pairs(predictors, name)
    probabilities = sigmoid(scores) if name == "score" else scores
    raw = ask("/predict", name, inputs=[[QUERY, text] for text in TEXTS], raw_scores=True)
    logits = np.log(probabilities / (1 - probabilities))
    assert [one["score"] for (one,) in raw] == pytest.approx(logits, rel=1e-3)
    inputs = [{"text": QUERY, "text_pair": text} for text in TEXTS]
    for function, expected in (("none", logits), ("sigmoid", probabilities)):
        found = ask("/pipeline/text-classification", name, inputs=inputs, parameters={"function_to_apply": function})
        assert [one["score"] for (one,) in found] == pytest.approx(expected, rel=1e-3)


def test_scores_of_models_of_vectors_are_cosines(ask, predictors):
    (query,) = predictors["vectors"].embed([QUERY], prompt_name="query")
    cosines = predictors["vectors"].embed(TEXTS, prompt_name="document") @ query
    for raw in (False, True):
        found = ask("/rerank", "vectors", query=QUERY, texts=TEXTS, raw_scores=raw)
        assert {one["index"]: one["score"] for one in found} == pytest.approx(dict(enumerate(cosines)), abs=1e-5)
        assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)


@pytest.mark.parametrize(("similarity", "normalize"), [("dot", False), ("dot", True), ("cosine", False)])
def test_vectors_are_compared_as_the_model_states(ask, predictors, similarity, normalize):
    pooling = Pooling(similarity=similarity, normalize=normalize, length=16)
    model = predictors["vectors"].model
    predictors["stated"] = Predictor(replace(model, task=None, pooling=pooling), choose_machine("cpu", "float32"))
    (query,), texts = (
        embed_side(predictors["stated"], of, name, []) for of, name in (([QUERY], "query"), (TEXTS, "document"))
    )
    found = ask("/rerank", "stated", query=QUERY, texts=TEXTS)
    assert {one["index"]: one["score"] for one in found} == pytest.approx(dict(enumerate(texts @ query)), rel=1e-4)
    (best,) = ask("/v2/rerank", "stated", query=QUERY, documents=TEXTS, top_n=1)["results"]
    assert best["index"] == found[0]["index"]


def test_vectors_that_are_not_compared_by_products_are_not_reranked(ask, predictors):
    """As searches refuse them."""
    pooling = Pooling(similarity="manhattan", length=16)
    model = replace(predictors["vectors"].model, task=None, pooling=pooling)
    predictors["distances"] = Predictor(model, choose_machine("cpu", "float32"))
    body = {"model": "distances", "query": QUERY, "texts": TEXTS}
    assert "this model has no " in ask("/rerank", "distances", **body, status=422)["error"]
    ask("/embed", "distances", inputs=TEXTS)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_cohere_has_the_best_documents(ask, predictors, version):
    probabilities = pairs(predictors, "probability")
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    body = {"model": "probability", "query": QUERY, "documents": documents}
    found = ask(f"/{version}/rerank", **body, top_n=2, return_documents=True)
    order = np.argsort(-probabilities)[:2].tolist()
    assert found["results"] == [
        {
            "index": index,
            "relevance_score": pytest.approx(probabilities[index], abs=1e-5),
            "document": {"text": TEXTS[index]},
        }
        for index in order
    ]
    assert found["model"] == "probability"
    framed = predictors["probability"].task.from_texts([QUERY] * 4, TEXTS)
    samples = predictors["probability"].task.frame(predictors["probability"].model.tokenizer, framed, (), gold=False)
    assert found["usage"] == {"total_tokens": sum(map(len, samples.samples))}
    whole = ask(f"/{version}/rerank", **body)
    assert len(whole["results"]) == 4 and "document" not in whole["results"][0]
    ask(f"/{version}/rerank", **body, top_n=0, status=422)


def test_cohere_truncates_documents(ask):
    body = {"model": "probability", "query": QUERY}
    long = ask("/v2/rerank", **body, documents=[LONG])["results"][0]["relevance_score"]
    assert ask("/v2/rerank", **body, documents=[LONG[:120]])["results"][0]["relevance_score"] == pytest.approx(long)
    few = ask("/v2/rerank", **body, documents=["the market the market the dog"], max_tokens_per_doc=2)
    assert few == ask("/v2/rerank", **body, documents=["the market"])


@pytest.mark.parametrize("name", ["vectors", "probability"])
def test_texts_that_are_too_long_are_truncated_at_either_end(ask, name):
    error = ask("/rerank", name, query=QUERY, texts=[LONG, "a dog"], status=422)["error"]
    assert error.startswith("`texts`: a text is too long; this model reads")
    assert error.endswith('shorten it, or pass `"truncate": true`')
    text = f"a dog {LONG}"
    right, left = (
        ask("/rerank", name, query=QUERY, texts=[text], truncate=True, truncation_direction=end)[0]["score"]
        for end in ("right", "left")
    )
    assert right == pytest.approx(ask("/rerank", name, query=QUERY, texts=[text[:150]], truncate=True)[0]["score"])
    if name == "probability":  # the prompt of vectors is cut, too
        same = ask(
            "/rerank", name, query=QUERY, texts=[LONG[-150:].lstrip()], truncate=True, truncation_direction="left"
        )
        assert left == pytest.approx(same[0]["score"], abs=1e-6)
    assert left != pytest.approx(right, abs=1e-5)


def test_a_cross_encoder_is_preferred(ask, predictors):
    without = ask("/v1/rerank", "vectors", "score", "probability", query=QUERY, documents=TEXTS)
    assert without["model"] == "score"
    assert ask("/v1/rerank", "vectors", query=QUERY, documents=TEXTS)["model"] == "vectors"


def test_similarity_is_the_cosine(ask, predictors):
    inputs = {"source_sentence": QUERY, "sentences": TEXTS}
    for name in (None, "query"):
        vectors = predictors["vectors"].embed([QUERY, *TEXTS], prompt_name=name)
        found = ask("/similarity", "vectors", inputs=inputs, parameters={"prompt_name": name})
        assert found == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-5)
    assert ask("/similarity", "vectors", inputs=inputs, parameters=None) == ask("/similarity", "vectors", inputs=inputs)
    ask("/similarity", "vectors", inputs={"source_sentence": QUERY, "sentences": [LONG]}, status=422)
    parameters = {"truncate": True, "truncation_direction": "left"}
    ask("/similarity", "vectors", inputs={"source_sentence": QUERY, "sentences": [LONG]}, parameters=parameters)


def test_what_cannot_be_reranked_is_refused(ask, client):
    for name in ("vectors", "tokens"):
        error = ask("/rerank", name, query=LONG, texts=TEXTS, status=422)["error"]
        assert error.startswith("`query`: a text is too long"), "not texts, the larger field"
        error = ask("/rerank", name, query="dog", texts=[*TEXTS, LONG], status=422)["error"]
        assert error.startswith("`texts`: a text is too long")
    for body, status, message in (
        ({"query": "", "texts": TEXTS}, 422, "query: a text is empty"),
        ({"query": QUERY, "texts": ["a", " "]}, 422, "texts: a text is empty"),
        ({"query": QUERY, "texts": []}, 422, "there is no text to compare"),
        ({"query": QUERY, "texts": ["a"] * 9}, 413, "texts: more than 8 inputs"),
        ({"query": QUERY}, 422, "texts is missing"),
        ({"query": QUERY, "texts": TEXTS, "top_n": 3}, 422, "unknown field"),
        ({"query": QUERY, "texts": TEXTS, "truncation_direction": "up"}, 422, "truncation_direction: expected"),
    ):
        error = ask("/rerank", "probability", status=status, **body)["error"]
        assert message in error.replace("`", ""), (body, error)
    assert len(ask("/rerank", "probability", query=QUERY, texts=["a"] * 8)) == 8
    one = client("classes", "pairs", "masked", "windows")
    for path, body in {
        "/rerank": {"query": QUERY, "texts": TEXTS},
        "/v2/rerank": {"query": QUERY, "documents": TEXTS},
    }.items():
        found = one.post(path, json=body)
        assert found.status_code == 422 and "no model of this server has /rerank; /info lists" in found.text
    labels = one.post("/rerank", json={"model": "pairs", "query": QUERY, "texts": TEXTS}).json()["error"]
    assert "`model`: this model has no /rerank; it gives pairs [query, text] labels, at /predict" in labels


def test_probabilities_of_extreme_scores_are_numbers(predictors, monkeypatch):
    from unmask.serving.rerank import RerankRequest, rerank

    for name in ("probability", "score", "published"):
        served = Served(name, predictors[name], LIMITS, Meter())
        for raw in (False, True):
            job = rerank(served, RerankRequest(query="a", texts=["b", "c", "d", "e"], raw_scores=raw))
            found = job.read([np.array([[value]], np.float32) for value in (-800.0, 0.0, 40.0, 800.0)])
            assert [one.index for one in found] == [3, 2, 1, 0], "also where both sigmoids are 1"
            assert all(math.isfinite(one.score) for one in found)
            msgspec.json.encode(found)


@pytest.mark.parametrize("path", ["/embed", "/similarity", "/rerank", "/v1/embeddings"])
def test_vectors_whose_norms_overflow_are_not_zeros(predictors, path, capsys):
    """As in Python (tests/inference/test_finite.py): they are numbers, but divided by their norms they would be 0."""
    model = predictors["vectors"].model
    encoder = copy.deepcopy(model.encoder)
    with torch.no_grad():
        encoder.blocks[-1].feed_forward_norm.weight.fill_(1e22)
    served = Served(
        "huge", Predictor(replace(model, encoder=encoder), choose_machine("cpu", "float32")), LIMITS, Meter()
    )
    body = {
        "/embed": {"inputs": TEXTS},
        "/similarity": {"inputs": {"source_sentence": QUERY, "sentences": TEXTS}},
        "/rerank": {"query": QUERY, "texts": TEXTS},
        "/v1/embeddings": {"input": TEXTS},
    }[path]
    with testclient.TestClient(create_app(Service([served], LIMITS, Meter())), base_url="http://localhost") as client:
        found = client.post(path, json=body)
        assert found.status_code == 424 and "computing failed" in found.text
        if path == "/embed":
            vectors = np.array(client.post(path, json={**body, "normalize": False}).json())
            assert 1e20 < np.abs(vectors).max() < np.inf
    assert "FloatingPointError" in capsys.readouterr().err


def test_models_are_described_as_rerankers(predictors):
    served = [Served(name, predictors[name], LIMITS, Meter()) for name in ("probability", "vectors", "published")]
    service = Service(served, LIMITS, Meter())
    first, second, third = map(service.describe, served)
    assert first.model_type == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/predict"} <= set(first.routes)
    assert "/rerank" in second.routes and "/predict" not in second.routes
    assert "/rerank" in third.routes


def test_the_shapes_are_those_of_text_embeddings_inference():
    """The fields of its OpenAPI description, version 1.7."""
    schemas = describe()["components"]["schemas"]
    expected = {
        "RerankRequest": "query raw_scores return_text texts truncate truncation_direction",
        "Rank": "index score text",
        "SimilarityRequest": "inputs parameters",
        "SimilarityInputs": "sentences source_sentence",
        "SimilarityParameters": "prompt_name truncate truncation_direction",
    }
    for name, fields in expected.items():
        assert sorted(schemas[name]["properties"].keys() - {"model"}) == fields.split(), name
    assert schemas["RerankRequest"]["required"] == ["query", "texts"]
    assert schemas["Rank"]["required"] == ["index", "score"]
