"""Clients as they are, against a server on a socket: OpenAI's and Hugging Face's; and requests as LangChain makes."""

import base64
import json
import os
import urllib.request

import numpy as np
import pytest

from unmask.inference.predictor import Predictor
from unmask.inference.zero_shot import by_labels
from unmask.serving.guard import Keys
from unmask.training.machine import choose_machine

TEXTS = ["the dog sees the cat", "a garden near the sea"]
KEY = "a-key-of-enough-characters"


@pytest.fixture(scope="module", autouse=True)
def direct():
    """Connect to this machine without a proxy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        yield


@pytest.fixture
def predictor(tiny):
    return lambda kind: Predictor(tiny[kind], choose_machine("cpu", "float32"))


@pytest.fixture
def openai_client(live):
    """OpenAI's client of a server, and its module."""
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with live("masked", "classes", keys=Keys([KEY])) as server:
        address = f"http://127.0.0.1:{server.port}/v1"
        with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
            yield client, openai


def test_openai(openai_client, predictor):
    client, _ = openai_client
    expected = predictor("masked").embed(TEXTS)
    for options in ({}, {"encoding_format": "float"}):  # by default the client asks for base64
        found = client.embeddings.create(model="masked", input=TEXTS, **options)
        np.testing.assert_allclose([item.embedding for item in found.data], expected, atol=1e-6)
    assert found.model == "masked" and found.usage.total_tokens > 4
    models = client.models.list()
    assert [model.id for model in models] == ["masked", "classes"]
    model = client.models.retrieve("classes")
    assert (model.id, model.object, model.owned_by) == ("classes", "model", "unmask") and model.created > 1.7e9


def test_openai_shows_what_is_wrong(openai_client):
    client, openai = openai_client
    with pytest.raises(openai.NotFoundError, match="no such model") as refused:
        client.models.retrieve("nothing")
    assert (refused.value.code, refused.value.param, refused.value.type) == (
        *("model_not_found", "model"),
        "invalid_request_error",
    )
    with pytest.raises(openai.UnprocessableEntityError, match="have 16 dimensions") as refused:
        client.embeddings.create(model="masked", input="a", dimensions=17)
    assert refused.value.param == "dimensions"
    with pytest.raises(openai.UnprocessableEntityError, match="`colour`: unknown field") as refused:
        client.embeddings.create(model="masked", input="a", extra_body={"colour": 1})
    assert refused.value.param == "colour"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="masked", prompt="a")
    with pytest.raises(openai.AuthenticationError, match="API key") as refused:
        client.with_options(api_key="another key of many characters").models.list()
    assert refused.value.code == "invalid_api_key"


@pytest.fixture
def hugging_face(live, monkeypatch):
    """Return Hugging Face's client for a model, or a path, of a server of all models."""
    hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", False
    )  # the client would not connect to this machine either
    with live("classes", "pairs", "masked", "tags", "answers") as server:
        address = f"http://127.0.0.1:{server.port}"
        yield lambda path="": hub.InferenceClient(address + path, provider="hf-inference", timeout=20)


@pytest.mark.parametrize("path", ["", "/models/classes", "/pipeline/text-classification"])
def test_text_classification(hugging_face, predictor, path):
    client, (expected,) = hugging_face(path), predictor("classes").predict(TEXTS[0])
    found = client.text_classification(TEXTS[0])
    assert {item.label: item.score for item in found} == pytest.approx(expected.scores, abs=1e-6)
    assert found[0].label == expected.label and len(client.text_classification(TEXTS[0], top_k=2)) == 2


def test_functions_of_logits(hugging_face):
    client = hugging_face("/models/classes")
    logits, soft, sigmoids, own = (
        {item.label: item.score for item in client.text_classification(TEXTS[0], function_to_apply=function)}
        for function in ("none", "softmax", "sigmoid", None)
    )
    values = np.array(list(logits.values()))
    assert list(soft.values()) == pytest.approx((np.exp(values) / np.exp(values).sum()).tolist(), abs=1e-6)
    assert list(sigmoids.values()) == pytest.approx((1 / (1 + np.exp(-values))).tolist(), abs=1e-6)
    assert own == pytest.approx(soft, abs=1e-6)


@pytest.mark.parametrize("path", ["/models/masked", "/pipeline/fill-mask", "/models/masked/pipeline/fill-mask"])
def test_fill_mask(hugging_face, predictor, path):
    text = "the [MASK] sees the cat"
    ((mask,),) = [filling.masks for filling in predictor("masked").fill([text], top=3)]
    found = hugging_face(path).fill_mask(text, top_k=3)
    assert [item.token_str for item in found] == [candidate.token for candidate in mask.candidates]
    assert [item.score for item in found] == pytest.approx([item.probability for item in mask.candidates], abs=1e-6)
    assert len(hugging_face(path).fill_mask(text)) == 5
    among = hugging_face(path).fill_mask(text, targets=["sea", "garden"])
    assert {item.token_str for item in among} == {"sea", "garden"} and among[0].score >= among[1].score
    two = hugging_face(path).fill_mask("the [MASK] sees the [MASK]", top_k=2)
    assert [len(candidates) for candidates in two] == [2, 2], "a list for each mask"


@pytest.mark.parametrize("path", ["/models/masked", "/pipeline/zero-shot-classification"])
def test_zero_shot_classification(hugging_face, predictor, path):
    labels = ["dog", "garden", "sea"]
    found = hugging_face(path).zero_shot_classification(TEXTS[0], labels)
    (expected,) = by_labels(predictor("masked"), labels).predict([TEXTS[0]])
    assert [item.score for item in found] == pytest.approx(sorted(expected.scores.values(), reverse=True), abs=1e-6)
    assert {item.label: item.score for item in found} == pytest.approx(expected.scores, abs=1e-6)
    own = hugging_face(path).zero_shot_classification(TEXTS[0], labels, hypothesis_template="the {} sees")
    assert {item.label: item.score for item in own} != pytest.approx(expected.scores, abs=1e-3)
    for options, message in (
        ({"multi_label": True}, "several labels of a text need a model of entailment"),
        ({"hypothesis_template": "none"}, "a template with one {}"),
        ({"candidate_labels": ["dog", "Dog"]}, "at least two different labels"),
        ({"candidate_labels": ["dog"]}, "parameters.candidate_labels"),
        ({"candidate_labels": [f"dog {number}" for number in range(9)]}, "more than 8 labels"),
        ({"candidate_labels": ["dog", " "]}, "a text is empty"),
    ):
        given = {"candidate_labels": labels, **options}
        assert message in refused(hugging_face(path).zero_shot_classification, TEXTS[0], **given)
    assert "a text is too long" in refused(hugging_face(path).zero_shot_classification, "dog " * 60, labels)


def test_token_classification(hugging_face, predictor):
    entities = predictor("tags").tag(TEXTS[0]).entities
    for options in ({}, {"aggregation_strategy": "simple"}):
        found = hugging_face("/models/tags").token_classification(TEXTS[0], **options)
        assert [(item.entity_group, item.word, item.start, item.end) for item in found] == [
            (entity.label, entity.text, entity.start, entity.end) for entity in entities
        ]
        assert [item.score for item in found] == pytest.approx([entity.probability for entity in entities], abs=1e-6)
    assert hugging_face("/models/tags").token_classification(TEXTS[0], ignore_labels=["X"]) == []
    error = refused(hugging_face("/models/tags").token_classification, TEXTS[0], aggregation_strategy="max")
    assert '`parameters.aggregation_strategy`: expected "first" or "simple" or null' in error
    error = refused(hugging_face("/models/tags").token_classification, TEXTS[0], stride=3)
    assert "`parameters.stride`: unknown field" in error


def test_question_answering(hugging_face, predictor):
    asked = {"question": "who sees?", "context": TEXTS[0]}
    expected = predictor("answers").answer(asked["question"], asked["context"])
    for path in ("", "/models/answers", "/pipeline/question-answering"):
        found = hugging_face(path).question_answering(**asked)
        assert (found.answer, found.start, found.end) == (expected.answer, expected.start, expected.end)
        assert found.score == pytest.approx(expected.probability, abs=1e-6)
    several = hugging_face().question_answering(**asked, top_k=3)
    assert [item.answer for item in several] == [span.answer for span in expected.nbest[:3]]


def test_vectors_and_similarity(hugging_face, predictor):
    vectors = predictor("masked").embed(TEXTS)
    for path in ("/models/masked", "/models/masked/pipeline/feature-extraction"):
        client = hugging_face(path)
        np.testing.assert_allclose(client.feature_extraction(TEXTS), vectors, atol=1e-6)  # what LangChain asks, too
        np.testing.assert_allclose(client.feature_extraction(TEXTS[0], truncate=True), vectors[:1], atol=1e-6)
    found = hugging_face("/models/masked").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    assert found == pytest.approx([1, float(vectors[0] @ vectors[1])], abs=1e-5)


def test_the_state_of_a_model_and_errors(hugging_face):
    client = hugging_face("/models/tags")
    assert client.health_check() and client.get_endpoint_info()["model_id"] == "tags"
    assert hugging_face().get_endpoint_info()["model_id"] == "classes"
    assert not hugging_face("/models/nothing").health_check()
    assert "there is no such model" in refused(hugging_face("/models/nothing").text_classification, "a")
    assert "no mask" in refused(hugging_face("/models/masked").fill_mask, "a text without one")
    assert "this model has no /fill; models that have it: masked" in refused(
        hugging_face("/models/tags/pipeline/fill-mask").fill_mask, "[MASK]"
    )
    assert "fill-mask" in refused(hugging_face("/models/masked/pipeline/poetry").fill_mask, "[MASK]")


def refused(function, *arguments, **options):
    """Return the message of the error that a client raises."""
    hub = pytest.importorskip("huggingface_hub")
    with pytest.raises(hub.errors.HfHubHTTPError) as error:
        function(*arguments, **options)
    return str(error.value)


def test_requests_of_langchain(live, predictor):
    """What langchain-openai, langchain-huggingface, langchain-community and LiteLLM send for `embed_documents`."""
    vectors = predictor("masked").embed(TEXTS)
    with live("masked") as server:

        def post(path, body):
            address, headers = f"http://127.0.0.1:{server.port}{path}", {"Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers)) as answer:
                return json.load(answer)

        found = post("/v1/embeddings", {"input": TEXTS, "model": "masked", "encoding_format": "base64"})["data"]
        decoded = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in found]
        np.testing.assert_allclose(decoded, vectors, atol=1e-6)
        unset = {"encoding_format": None, "dimensions": None, "user": None}  # as LiteLLM, which sends what is not set
        found = post("/v1/embeddings", {"input": TEXTS, "model": "masked", **unset})["data"]
        np.testing.assert_allclose([item["embedding"] for item in found], vectors, atol=1e-6)
        np.testing.assert_allclose(post("/", {"inputs": TEXTS}), vectors, atol=1e-6)
        options = {"wait_for_model": True, "use_cache": True}
        found = post("/pipeline/feature-extraction", {"inputs": TEXTS, "options": options})
        np.testing.assert_allclose(found, vectors, atol=1e-6)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed"])
def test_token_ids_of_other_vocabularies_are_refused(client, tokenizer, path):
    """LangChain sends those of OpenAI's models by default, most of which are also ids of the model, of other words."""
    one, field = client("masked"), "input" if path.startswith("/v1") else "inputs"
    rng = np.random.default_rng(0)
    for length in (1, 2, 5, 20):
        answer = one.post(path, json={field: rng.integers(tokenizer.size, size=(3, length)).tolist()})
        assert answer.status_code == 422 and "check_embedding_ctx_length=False" in answer.text
