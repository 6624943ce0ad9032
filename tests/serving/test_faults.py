"""Refusals: each names the field of the request, and nothing of the command line, the machine or the request."""

import json
import re
from typing import Annotated, Literal

import msgspec
import pytest

from tests.serving.conftest import LIMITS, testclient
from unmask.serving.app import create_app
from unmask.serving.bodies import OpenAIFailure, describe, explain, failure_at, field_of, main_field
from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.pipelines import PIPELINES
from unmask.serving.playground import ENDPOINTS as PLAYGROUND
from unmask.serving.playground import playground_routes
from unmask.serving.rerank import SimilarityRequest
from unmask.serving.types import FeaturesRequest, OpenAIRequest
from unmask.support.messages import in_python, rendered
from unmask.tasks.routes import AnswerRequest, ChooseRequest, PredictRequest, RelateRequest, TagRequest

ROUTES = {endpoint.path: endpoint for endpoint in (*ENDPOINTS, *PIPELINES.values(), *PLAYGROUND)}
MODELS = {
    "/predict": "classes",
    "/answer": "passages",
    "/choose": "choices",
    "/tag": "tags",
    "/relate": "relations",
    "/explain": "classes",
    "/embed_sparse": "sparse",
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), "ranks"),
    "/pipeline/text-classification": "classes",
    "/pipeline/token-classification": "tags",
    "/pipeline/question-answering": "answers",
}
OF_ALL = ("/embed", "/embed_all", "/tokenize", "/decode", "/v1/embeddings", "/similarity", "/features")
"""Routes that both the masked model and the classifier have."""
CANARY = "canary of a client"
"""A text that must not come back; it is no name of a field, which may."""
OF_THE_MACHINE = re.compile(r"--|\.py|/(?!info|openapi|pipeline)[a-z]+/|unmask\.")
"""Flags, files and calls, which clients have no use for."""
LISTS = {
    **{"/answer": "passage", "/choose": "choices", "/v1/embeddings": "input", "/relate": "text"},
    **{"/rerank": "texts", "/v1/rerank": "documents", "/v2/rerank": "documents", "/decode": "ids"},
}
"""Fields that hold texts; of other routes `inputs`."""


@pytest.fixture(scope="module")
def ask(serving):
    """Post a request that is refused, and return the message."""
    service = serving("masked", *dict.fromkeys(MODELS.values()))
    opened = testclient.TestClient(create_app(service, pages=playground_routes(service)), base_url="http://localhost")

    def post(path, body, statuses=(422,)):
        response = opened.post(path, json=body)
        assert response.status_code in statuses, (path, body, response.text)
        kind = failure_at(path)
        body = msgspec.convert(response.json(), kind)
        message = body.error.message if kind is OpenAIFailure else next(iter(msgspec.structs.astuple(body)))
        assert CANARY not in response.text and not OF_THE_MACHINE.search(message.replace("/v1/", "")), message
        return message

    with opened:
        yield post


def example(path):
    """Return a request that is answered by one of the models."""
    return {name: value for name, value in ROUTES[path].example.items() if name != "truncate"}


@pytest.mark.parametrize("path", ROUTES)
def test_a_field_of_another_type_is_named(ask, path):
    for field in msgspec.structs.fields(ROUTES[path].request):
        for value in (1.5, {CANARY: 1}, [[[CANARY]]], [None]):
            assert f"`{field.encode_name}" in ask(path, {**example(path), field.encode_name: value})


@pytest.mark.parametrize("path", ROUTES)
def test_a_field_that_is_missing_is_named(ask, path):
    for field in msgspec.structs.fields(ROUTES[path].request):
        if field.required:
            body = {name: value for name, value in example(path).items() if name != field.encode_name}
            assert f"`{field.encode_name}` is missing" in ask(path, body)


@pytest.mark.parametrize("path", ROUTES)
def test_the_known_fields_are_named_if_one_is_unknown(ask, path):
    messages = [ask(path, {**example(path), CANARY: 1}), ask(path, {**example(path), "no_such_field": 1})]
    for message in messages:
        assert "unknown field; the fields of this route are" in message
        assert all(f"`{field.encode_name}`" in message for field in msgspec.structs.fields(ROUTES[path].request))
    assert messages[1].startswith("`no_such_field`: ")


@pytest.mark.parametrize("path", ROUTES)
def test_a_model_that_is_unknown_or_cannot_do_it_is_named(ask, path):
    assert "`model`" in ask(path, {**example(path), "model": CANARY}, (404,))
    if not path.startswith("/playground") and ROUTES[path].ability not in OF_ALL:
        able = MODELS.get(path, "masked")
        other = next(name for name in ("masked", "classes") if name != able)
        assert "`model`" in ask(path, {**example(path), "model": other})


@pytest.mark.parametrize("path", ROUTES)
def test_texts_that_are_empty_too_long_or_too_many_are_named(ask, path):
    field = LISTS.get(path, "inputs")
    single = path in ("/choose", "/relate", "/playground/influence")
    if field == "ids" or ("inputs" in example(path) and isinstance(example(path)["inputs"], dict)):
        return
    for text in ("", " ", "dog " * 1000):
        value = [text, "a"] if path == "/choose" else text
        assert f"`{field}" in ask(path, {**example(path), field: value}, (422, 413))
    if not single:
        assert f"`{field}" in ask(path, {**example(path), field: []})
        assert f"`{field}" in ask(path, {**example(path), field: ["", "a"]})
    if path != "/playground/influence":
        texts = [["a"]] * (LIMITS.inputs + 1) if path == "/predict" else ["a"] * (LIMITS.inputs + 1)
        assert f"`{field}" in ask(path, {**example(path), field: texts}, (413, 422))


def test_what_a_model_does_not_have_is_named(ask):
    assert "`layers`" in ask("/features", {"inputs": "the dog", "layers": [77]})
    assert "`dimensions`" in ask("/embed", {"inputs": "the dog", "dimensions": 17})
    assert "`dimensions`" in ask("/v1/embeddings", {"input": "the dog", "dimensions": 17})
    assert "`inputs`" in ask("/fill", {"inputs": f"no {CANARY} here"})
    assert "`inputs`" in ask("/predict", {"inputs": [["a"], ["a", "b"]]})
    assert "`input`" in ask("/v1/embeddings", {"input": [10**6]})
    assert "`question`" in ask("/choose", {"passage": "a", "choices": ["a", "b"], "question": " "})


def test_truncation_is_proposed_where_a_route_has_it(ask):
    long = "dog " * 300
    assert '`"truncate": true`' in ask("/embed", {"inputs": long})
    assert '`"truncate": true`' in ask("/predict", {"inputs": long})
    assert "truncate" not in ask("/v1/embeddings", {"input": long})


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (TagRequest, {"inputs": ["a", 1]}, "inputs[1]: expected a string"),
        (AnswerRequest, {"question": "a", "passage": "b", "history": [["a"]]}, "history[0]: expected a list of 2: "),
        (OpenAIRequest, {"input": "a", "encoding_format": "c"}, 'encoding_format: expected "base64" or "float"'),
        (FeaturesRequest, {"inputs": "a", "layers": [1, 2000]}, "layers[1]: expected a whole number from -1000 to "),
        (ChooseRequest, {"passage": "a", "choices": ["b"]}, "choices: expected a list of at least 2 in which each"),
        (PredictRequest, {"inputs": [["a", 1]]}, "inputs[0][1]: expected a string"),
        (
            RelateRequest,
            {"text": "a", "spans": [{"start": 0}] * 2},
            "spans[0].end is missing",
        ),
        (RelateRequest, {"text": "a", "spans": [1, 2]}, "spans[0]: expected an object of start, end, label"),
        (
            SimilarityRequest,
            {"inputs": {"source_sentence": "a", "sentences": ["b"], "top_k": 1}},
            "inputs.top_k: unknown field; the fields of inputs are source_sentence, sentences",
        ),
        (
            SimilarityRequest,
            {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {"truncate": "no"}},
            "parameters.truncate: expected true or false or null",
        ),
        (TagRequest, [], "the body is not a JSON object"),
    ],
)
def test_a_message_has_the_place_and_what_is_expected(kind, body, message):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(body), type=kind)
    assert rendered(explain(kind, json.dumps(body).encode()), in_python).startswith(message)


def test_types_are_described():
    assert describe(str | list[str] | None) == "a string or a list in which each item is a string or null"
    assert describe(dict[str, float]) == "an object in which each value is a number"
    assert describe(Annotated[str, msgspec.Meta(max_length=5)]) == "a string of at most 5 characters"
    assert describe(Literal["a"] | bool) == '"a" or true or false'


def test_fields_are_found_by_their_texts():
    request = AnswerRequest(question="q", passage={"title": "p"}, history=[("who?", "")])
    assert "passage" in field_of(request, ["title"]) and "history" in field_of(request, ["who?"])
    assert "question" in field_of(request, ["none of them"])
    assert "passage" in main_field(request)
    similarity = msgspec.convert({"inputs": {"source_sentence": "a", "sentences": ["b"]}}, SimilarityRequest)
    assert "inputs" in field_of(similarity, ["b"])
    assert "input" in main_field(OpenAIRequest(input=[[5]] * 9, encoding_format="base64"))
