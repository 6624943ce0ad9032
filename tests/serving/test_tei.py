"""The routes of Text Embeddings Inference: what they do, and the names and types of its OpenAPI description, 1.9.3."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from unmask.inference.predictor import Predictor
from unmask.serving.bodies import Refusal
from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.guard import Keys
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.serving.types import Limits
from unmask.tasks.embedding import Embedding
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
INPUT = "string|[integer]|[string]|[[integer]]"
READING = {"truncate": "boolean|null", "truncation_direction": "direction"}
EMBED_ALL = {"inputs": INPUT, "prompt_name": "prompt|null", **READING}
EMBED = {**EMBED_ALL, "normalize": "boolean", "dimensions": "integer|null"}
REQUESTS = {
    "/decode": {"ids": "[integer]|[[integer]]", "skip_special_tokens": "boolean"},
    "/embed": EMBED,
    "/embed_all": EMBED_ALL,
    "/embed_sparse": EMBED_ALL,
    "/predict": {"inputs": "string|[string]|[[string]]", "raw_scores": "boolean", **READING},
    "/rerank": {
        **{"query": "string", "texts": "[string]", "raw_scores": "boolean", "return_text": "boolean"},
        **READING,
    },
    "/similarity": {
        "inputs": {"source_sentence": "string", "sentences": "[string]"},
        "parameters": {"prompt_name": "prompt|null", **READING},
    },
    "/tokenize": {"inputs": "string|[string]", "add_special_tokens": "boolean", "prompt_name": "prompt|null"},
    "/v1/embeddings": {
        **{"input": INPUT, "dimensions": "integer|null", "encoding_format": "encoding"},
        **{"model": "string|null", "user": "string|null"},
    },
}
"""Fields and their types, by route."""
SCORED, USAGE = {"score": "number", "label": "string"}, {"prompt_tokens": "integer", "total_tokens": "integer"}
VECTOR = {"object": "string", "embedding": "[number]|string", "index": "integer"}
RESPONSES = {
    "/decode": "[string]",
    "/embed": "[[number]]",
    "/embed_all": "[[[number]]]",
    "/embed_sparse": [[{"index": "integer", "value": "number"}]],
    "/predict": [SCORED],
    "/rerank": [{"index": "integer", "score": "number"}],
    "/similarity": "[number]",
    "/tokenize": [
        [
            {
                **{"id": "integer", "text": "string", "special": "boolean"},
                **{"start": "integer|null", "stop": "integer|null"},
            }
        ]
    ],
    "/v1/embeddings": {"object": "string", "data": [VECTOR], "model": "string", "usage": USAGE},
}
COUNTS = ("concurrent_requests", "input_length", "batch_tokens", "client_batch_size")
INFO = {
    **{"model_id": "string", "model_sha": "string|null", "model_dtype": "string", "served_model_name": "string"},
    **{f"max_{name}": "integer" for name in COUNTS},
    **{"max_batch_requests": "integer|null", "auto_truncate": "boolean", "tokenization_workers": "integer"},
    **{"version": "string", "sha": "string|null", "docker_label": "string|null"},
}
SAMPLES = {
    **{"string": ["a dog"], "integer": [5], "boolean": [True, False], "null": [None], "prompt": ["query"]},
    **{"direction": ["left", "right", "Left", "Right"], "encoding": ["float", "base64"]},
}
TYPES = {"string": str, "integer": int, "boolean": bool, "null": type(None), "number": (int, float)}
MODELS = {"/predict": "classes", "/rerank": "ranks"}


def samples(kind):
    """Return values of a type."""
    if isinstance(kind, dict):
        return [{name: values[number % len(values)] for name, values in fields(kind).items()} for number in range(4)]
    return [value for choice in kind.split("|") for value in of_one(choice)]


def of_one(kind):
    return [[value] for value in of_one(kind[1:-1])] if kind.startswith("[") else SAMPLES[kind]


def fields(kinds):
    return {name: samples(kind) for name, kind in kinds.items()}


def is_of(value, kind):
    """Return whether a value is of a type."""
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(name in value and is_of(value[name], of) for name, of in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(is_of(item, kind[0]) for item in value)
    if "|" in kind:
        return any(is_of(value, choice) for choice in kind.split("|"))
    if kind.startswith("["):
        return isinstance(value, list) and all(is_of(item, kind[1:-1]) for item in value)
    return isinstance(value, TYPES[kind])


@pytest.mark.parametrize("path", REQUESTS)
def test_the_fields_of_requests_have_its_names_and_types(path):
    (endpoint,) = [endpoint for endpoint in ENDPOINTS if endpoint.path == path]
    known = {field.encode_name: field for field in msgspec.structs.fields(endpoint.request)}
    assert known.keys() - {"model"} == REQUESTS[path].keys() - {"model"}
    for name, values in fields(REQUESTS[path]).items():
        for value in values:
            msgspec.json.decode(msgspec.json.encode(value), type=known[name].type)


@pytest.mark.parametrize("path", RESPONSES)
def test_responses_have_its_names_and_types(client, path):
    (endpoint,) = [endpoint for endpoint in ENDPOINTS if endpoint.path == path]
    found = client("masked", "classes", "ranks", "sparse").post(path, json=endpoint.example)
    assert found.status_code == 200 and is_of(found.json(), RESPONSES[path]), found.text


def test_the_description_of_the_server_has_its_fields(client):
    info = client("masked", "classes").get("/info").json()
    assert is_of(info, INFO)
    assert info["model_type"] == {"embedding": {"pooling": "mean"}} and info["served_model_name"] == "masked"
    assert client("sparse").get("/info").json()["model_type"] == {"embedding": {"pooling": "splade"}}


def test_a_model_of_vectors_says_how_they_are_pooled(tiny):
    model = replace(tiny["masked"], heads={}, task=Embedding(length=16, pooling="cls"))
    service = Service([Served("vectors", Predictor(model, CPU), Limits(), Meter())], Limits(), Meter())
    info = service.describe(service.find("vectors", "/embed"))
    assert info.model_type == {"embedding": {"pooling": "cls"}}


def test_errors_have_the_shape_of_the_api_of_their_route(client):
    one = client("masked", "ranks", keys=Keys(["a-key-of-enough-characters"]))
    assert one.post("/embed", json={}).json().keys() == {"error", "error_type"}
    assert one.post("/v1/embeddings", json={}).json()["error"].keys() == {"message", "type", "param", "code"}
    assert one.post("/v2/rerank", json={}).json().keys() == {"message"}
    assert one.get("/v1/models").json()["error"]["code"] == "invalid_api_key"
    assert one.post("/", json={"inputs": "a dog"}).status_code == 401, "the page at / needs no key, but its model does"


@pytest.mark.parametrize("special", [True, False])
def test_tokens_have_offsets_in_bytes(client, tokenizer, special):
    text = "the döctor sees — a garden"
    (tokens,) = client("masked").post("/tokenize", json={"inputs": text, "add_special_tokens": special}).json()
    inner = [token for token in tokens if not token["special"]]
    assert [token["id"] for token in inner] == tokenizer.encode(text).tolist()
    assert len(tokens) - len(inner) == 2 * special
    for token in inner:
        assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]
    if special:
        assert tokens[0] == {"id": tokenizer.cls, "text": "[CLS]", "special": True, "start": None, "stop": None}


def test_ids_are_decoded(client, tokenizer):
    one, ids = client("masked"), [token["id"] for token in tokens_of(client, "the dog sees")]
    assert one.post("/decode", json={"ids": ids}).json() == ["the dog sees"]
    assert one.post("/decode", json={"ids": [ids, ids[1:2]]}).json() == ["the dog sees", "the"]
    (whole,) = one.post("/decode", json={"ids": ids, "skip_special_tokens": False}).json()
    assert whole == tokenizer.decode(ids) and whole.startswith("[CLS]")
    for bad in ([], [[]], [tokenizer.size], [-1], [1, [2]]):
        assert one.post("/decode", json={"ids": bad}).status_code == 422, bad
    assert one.post("/decode", json={"ids": [5] * 401}).status_code == 413


def tokens_of(client, text, kind="masked"):
    (tokens,) = client(kind).post("/tokenize", json={"inputs": text}).json()
    return tokens


def test_the_vectors_of_all_tokens(client, tiny):
    (found,) = client("masked").post("/embed_all", json={"inputs": "the dog sees"}).json()
    expected = Predictor(tiny["masked"], CPU).features(["the dog sees"])
    np.testing.assert_allclose(found, expected.values[:, 0].numpy(), atol=1e-6)


def test_token_ids_are_texts_that_were_tokenized(client):
    one, ids = client("masked"), [token["id"] for token in tokens_of(client, "the dog sees")]
    expected = one.post("/embed", json={"inputs": "the dog sees"}).json()
    for given in (ids, [ids], [ids, ids]):
        found = one.post("/embed", json={"inputs": given}).json()
        np.testing.assert_allclose(found, expected * len(found), atol=1e-6)
    error = one.post("/embed", json={"inputs": ids[1:]}).json()["error"]
    assert error.startswith("`inputs`: token ids need the special tokens, as /tokenize returns them")
    assert "`prompt_name`" in one.post("/embed", json={"inputs": ids, "prompt_name": "query"}).json()["error"]


def test_sparse_vectors_are_of_texts_or_token_ids(client):
    """The model reads 16 tokens, two special ones among them."""
    one, long = client("sparse"), " ".join(["the dog sees a cat near the sea"] * 3)
    ids = [token["id"] for token in tokens_of(client, "the dog sees", "sparse")]
    expected = one.post("/embed_sparse", json={"inputs": "the dog sees"}).json()
    found = one.post("/embed_sparse", json={"inputs": [ids, ids], "truncate": None}).json()
    assert [{of["index"] for of in values} for values in found] == 2 * [{of["index"] for of in expected[0]}]
    assert one.post("/embed_sparse", json={"inputs": long}).status_code == 422
    kept = {"left": long.split()[-14:], "right": long.split()[:14]}
    for direction, words in kept.items():
        asked = {"inputs": long, "truncate": True, "truncation_direction": direction}
        answer = one.post("/embed_sparse", json=asked).json()
        assert answer == one.post("/embed_sparse", json={"inputs": " ".join(words)}).json()
    assert one.post("/embed_sparse", json={"inputs": ids[1:]}).status_code == 422


def test_texts_are_truncated_at_either_end(client):
    one, words = (
        client("masked", "classes", "pairs", "windows"),
        ["the", "dog", "sees", "a", "cat", "near", "the", "sea"],
    )
    long = " ".join(words * 8)

    def ask(path, **body):
        found = one.post(path, json={"truncate": True, **body})
        assert found.status_code == 200, found.text
        return found.json()

    kept = " ".join((words * 8)[-38:])  # each word is a token, and the model reads 40
    assert ask("/embed", inputs=long, truncation_direction="left") == [
        pytest.approx(ask("/embed", inputs=kept)[0], abs=1e-6)
    ]
    assert ask("/embed", inputs=long) != ask("/embed", inputs=long, truncation_direction="Left")
    left = ask("/predict", inputs=long, truncation_direction="left", raw_scores=True)
    assert left == same(ask("/predict", inputs=" ".join((words * 8)[-14:]), raw_scores=True))
    pair = ask("/predict", inputs=[long, "rain"], truncation_direction="left", raw_scores=True, model="pairs")
    shorter = [" ".join((words * 8)[-12:]), "rain"]
    assert pair == same(ask("/predict", inputs=shorter, raw_scores=True, model="pairs"))
    assert ask("/predict", inputs="the dog", truncation_direction="left") == same(ask("/predict", inputs="the dog"))
    error = one.post(
        "/predict", json={"inputs": long, "truncate": True, "truncation_direction": "left"} | {"model": "windows"}
    )
    assert error.status_code == 422 and "`truncation_direction`" in error.json()["error"]


def same(scored):
    return [{**item, "score": pytest.approx(item["score"], abs=1e-5)} for item in scored]


def test_words_beyond_a_vocabulary_of_elmo_have_the_id_of_unknown_ones(predictors):
    """Their own ids are known to one process alone; by that of all unknown ones no text is read, or it is another."""
    served, jobs = Served("words", predictors["words"], Limits(), Meter()), {of.path: of for of in ENDPOINTS}

    def job(path, **body):
        return jobs[path].job(served, msgspec.convert(body, jobs[path].request))

    found = job("/tokenize", inputs=["the dog sees a Zürich", "the dog"]).read([])
    ids = [[token.id for token in tokens] for tokens in found]
    assert all(0 <= id < served.tokenizer.size for of in ids for id in of)
    assert (ids[0][-2], found[0][-2].text) == (served.tokenizer.unk, "Zürich")
    fields = {"/embed": "inputs", "/embed_all": "inputs", "/v1/embeddings": "input", "/decode": "ids"}
    for path, field in fields.items():
        with pytest.raises(Refusal, match="is the token id of all unknown words; pass texts"):
            job(path, **{field: ids[0]})
    known, text = (job("/embed", inputs=inputs).samples[0].ids for inputs in ([ids[1]], "the dog"))
    assert known.tolist() == text.tolist()
