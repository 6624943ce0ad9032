import base64
import json
import struct
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.serving.conftest import FAST, LIMITS
from unmask.inference.predictor import Predictor
from unmask.support.errors import InputWarning
from unmask.training.machine import choose_machine


def post(client, path, status=200, **body):
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


def test_embeddings_are_those_of_text_embeddings_inference_and_of_openai(client):
    one = client("masked")
    vectors = np.array(post(one, "/embed", inputs=["the dog", "a garden"]))
    assert vectors.shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.linalg.norm(post(one, "/embed", inputs="the dog", normalize=False)) != pytest.approx(1, abs=1e-3)
    found = post(one, "/v1/embeddings", input=["the dog", "a garden"], model="masked")
    assert [item["index"] for item in found["data"]] == [0, 1]
    np.testing.assert_allclose([item["embedding"] for item in found["data"]], vectors, atol=1e-6)
    assert found["object"] == "list" and found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 4
    coded = post(one, "/v1/embeddings", input="the dog", encoding_format="base64")["data"][0]["embedding"]
    np.testing.assert_allclose(struct.unpack("<16f", base64.b64decode(coded)), vectors[0], atol=1e-6)


def test_token_ids_and_dimensions(client, tokenizer):
    one = client("masked")
    ids = [token["id"] for token in post(one, "/tokenize", inputs="the dog")[0]]
    expected = post(one, "/embed", inputs="the dog")[0]
    for given in (ids, [ids]):
        assert post(one, "/v1/embeddings", input=given)["data"][0]["embedding"] == pytest.approx(expected, abs=1e-6)
    short = post(one, "/embed", inputs="the dog", dimensions=4)[0]
    assert short == pytest.approx((np.array(expected[:4]) / np.linalg.norm(expected[:4])).tolist(), abs=1e-6)
    post(one, "/embed", 422, inputs="the dog", dimensions=17)
    for bad in ([tokenizer.size], [-1], [[]], [], ["a", 1], [["a"]], [ids, "a"]):
        post(one, "/v1/embeddings", 422, input=bad)


def test_predictions_have_the_format_of_text_embeddings_inference(client):
    one = client("classes", "pairs", "number")
    single = post(one, "/predict", inputs="the dog")
    assert [set(item) for item in single] == [{"score", "label"}] * 3
    assert {item["label"] for item in single} == {"bad", "good", "so-so"}
    scores = [item["score"] for item in single]
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)
    batch = post(one, "/predict", inputs=[["the dog"], ["a garden"]])
    assert batch[0] == [{**item, "score": pytest.approx(item["score"], abs=1e-6)} for item in single]
    raw = {item["label"]: item["score"] for item in post(one, "/predict", inputs="the dog", raw_scores=True)}
    logits = np.array([raw[item["label"]] for item in single])
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), scores, atol=1e-6)
    assert len(post(one, "/predict", inputs=["the dog", "a cat"], model="pairs")) == 2
    assert post(one, "/predict", inputs="the dog", model="number")[0]["label"] == "score"
    for bad in (["a", "b", "c"], [["a"], "b"], [["a", "b", "c"]], [[]], [], [["a"], ["a", "b"]]):
        post(one, "/predict", 422, inputs=bad)
    post(one, "/predict", 422, inputs="one text", model="pairs")


def test_entities_answers_masks_and_features(client):
    one = client()
    (entities,) = post(one, "/tag", inputs=["the dog sees the cat near the sea under a tree after the rain"])
    assert all(set(item) == {"label", "start", "end", "text", "probability"} for item in entities)
    found = post(one, "/answer", question="who?", passage="the dog sees the cat")
    assert found["answer"] in "the dog sees the cat" and found["nbest"]
    ((mask,),) = post(one, "/fill", inputs="the [MASK] sees", top=3)
    assert mask["position"] == 4 and len(mask["candidates"]) == 3
    (features,) = post(one, "/features", inputs="the dog", layers=[0, -1])
    assert np.array(features["values"]).shape == (2, len(features["word_ids"]), 16)
    assert features["word_ids"][0] == features["word_ids"][-1] == -1


def test_dialogues_have_a_history(client, tiny):
    one, predictor = client("turns", "answers"), Predictor(tiny["turns"], choose_machine("cpu", "float32"))
    asked = {"question": "is it near?", "passage": "the dog sees the cat near the sea"}
    history = [["who?", "the dog"], ["where?", ""]]
    found = post(one, "/answer", **asked, history=history)
    with pytest.warns(InputWarning, match="without an answer"):
        expected = predictor.answer(**asked, history=[tuple(turn) for turn in history])
    assert found["nbest"] == [
        {**item, "probability": pytest.approx(item["probability"], abs=1e-5)}
        for item in msgspec.to_builtins(expected.nbest)
    ]
    assert found["probability"] != pytest.approx(post(one, "/answer", **asked)["probability"], abs=1e-4)
    post(one, "/answer", 422, **asked, history=[["only a question"]])
    assert "reads no history" in post(one, "/answer", 422, **asked, history=history, model="answers")["error"]


def test_offsets_among_several_passages_refer_to_the_response(client):
    one = client("passages")
    passages = {"the dog": "The dog sees the cat. The cat sees the sea.", "1": "The garden is near the sea."}
    for given in (passages, list(passages.values())):
        found = post(one, "/answer", question="who?", passage=given)
        texts = [found["passage"][item["start"] : item["end"]] for item in found["sentences"]]
        assert sorted(texts) == ["The cat sees the sea.", "The dog sees the cat.", "The garden is near the sea."]
        spans = [item for item in found["nbest"] if item["start"] is not None]
        assert spans and all(found["passage"][item["start"] : item["end"]] == item["answer"] for item in spans)
    post(one, "/answer", 422, question="who?", passage=[])


def test_choices_have_probabilities(client, tiny):
    one, predictor = client("choices"), Predictor(tiny["choices"], choose_machine("cpu", "float32"))
    asked = {"passage": "the dog sees the cat", "choices": ["the dog", "a garden", "rain"], "question": "who?"}
    found, expected = post(one, "/choose", **asked), predictor.choose(**asked)
    assert (found["choice"], found["text"]) == (expected.choice, expected.text)
    assert found["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    assert sum(found["probabilities"]) == pytest.approx(1) and "cut" not in found
    assert post(one, "/choose", **asked | {"passage": "the dog " * 20})["cut"]
    for bad in ({"choices": ["one"]}, {"choices": ["a", " "]}, {"passage": ""}, {"question": " "}):
        post(one, "/choose", 422, **asked | bad)
    post(one, "/choose", 413, **asked | {"choices": ["a"] * 9})
    post(client("masked"), "/choose", 422, **asked)


def test_models_are_chosen_by_name_or_by_what_they_can_do(client):
    one = client("masked", "classes")
    info = one.get("/info").json()
    assert [item["model_id"] for item in info["models"]] == ["masked", "classes"]
    assert info["models"][1]["model_type"]["classifier"]["id2label"] == {"0": "bad", "1": "good", "2": "so-so"}
    assert "/fill" in info["models"][0]["routes"] and "/fill" not in info["models"][1]["routes"]
    post(one, "/predict", inputs="the dog")
    post(one, "/predict", 422, inputs="the dog", model="masked")
    post(one, "/tag", 422, inputs="the dog")


@pytest.mark.parametrize("name", ["../classes", "/etc/passwd", "nothing", "classes/", ".", "classes\n"])
def test_S14_the_name_of_a_model_is_no_path(client, name):
    found = post(client("classes"), "/predict", 404, inputs="the dog", model=name)
    assert found == {"error": "`model`: there is no such model; /info lists the models", "error_type": "NotFound"}


BAD = {
    "deep": (b"[" * 15_000, 400),
    "deep field": (b'{"inputs": ' + b"[" * 15_000, 400),
    "nan": (b'{"inputs": NaN}', 400),
    "infinity": (b'{"inputs": "a", "dimensions": 1e999}', 400),
    "empty": (b"", 400),
    "not UTF-8": (b'{"inputs": "\xff"}', 400),
    "surrogate": (b'{"inputs": "\\ud800"}', 400),
    "an array": (b"[]", 422),
    "no field": (b"{}", 422),
    "null": (b'{"inputs": null}', 422),
    "number": (b'{"inputs": 1}', 422),
    "mixed": (b'{"inputs": ["a", 1]}', 422),
    "unknown field": (b'{"inputs": "a", "secret": 1}', 422),
    "empty text": (b'{"inputs": " "}', 422),
    "no text": (b'{"inputs": []}', 422),
    "a huge number": (b'{"inputs": "a", "dimensions": ' + b"9" * 5000 + b"}", 422),
}


@pytest.mark.parametrize("case", BAD)
def test_S3_bad_json_is_refused(client, case):
    body, status = BAD[case]
    found = client("masked").post("/embed", content=body, headers={"content-type": "application/json"})
    assert found.status_code in ((status, 422) if status == 400 else (status,)), found.text
    assert set(found.json()) == {"error", "error_type"}


def test_other_methods_types_and_routes_are_refused(client):
    one = client("masked")
    assert one.get("/embed").status_code == 405
    assert one.get("/nothing").json()["error_type"] == "NotFound"
    form = one.post("/embed", content=b'{"inputs": "a"}', headers={"content-type": "text/plain"})
    assert form.status_code == 415, "pages of other sites can send this without asking"


def test_S5_texts_over_the_budgets_are_refused(client):
    one = client("masked", "tags", "answers")
    post(one, "/embed", 413, inputs=["a"] * 9)
    post(one, "/v1/embeddings", 413, input=[[5]] * 9)
    post(one, "/tag", 413, inputs=["the dog sees the cat " * 30] * 4)
    post(one, "/answer", 413, question="who?", passage=["the dog sees the cat " * 90])
    post(client("masked", limits=replace(LIMITS, values=100)), "/features", 413, inputs="the dog sees", layers=[0, 1])


def test_S10_a_text_has_the_same_result_alone_and_among_others(client):
    one = client("classes", "masked")
    texts = ["the dog", "the cat sees the garden near the sea", "a", "poem " * 5, "the doctor opens"]
    for path in ("/embed", "/predict"):
        inputs = texts if path == "/embed" else [[text] for text in texts]
        together = post(one, path, inputs=inputs)
        for text, expected in zip(texts, together, strict=True):
            found = post(one, path, inputs=text)
            if path == "/embed":
                np.testing.assert_allclose(found[0], expected, atol=1e-5)
            else:
                assert [item["label"] for item in found] == [item["label"] for item in expected]
                np.testing.assert_allclose(*[[item["score"] for item in one] for one in (found, expected)], atol=1e-5)


def test_S15_errors_contain_nothing_of_the_request_or_the_machine(client):
    one = client()
    for path, body in {
        "/fill": {"inputs": "secret words"},
        "/embed": {"inputs": "secret " * 300},
        "/answer": {"question": "secret", "passage": {"secret": "x", "title": "y"}},
        "/features": {"inputs": "secret", "layers": [77]},
        "/choose": {"passage": "secret", "choices": ["secret"]},
        "/predict": {"inputs": "a", "a secret": "b", "other": "secret"},
        "/v1/embeddings": {"input": "a", "encoding_format": "secret"},
    }.items():
        found = json.dumps(post(one, path, 422, **body))
        assert "secret" not in found and "/work" not in found and "Traceback" not in found
    assert "secret" not in one.get("/secret").text


def test_what_takes_too_long_is_refused(client, serving, monkeypatch):
    from unmask.serving.served import Served

    compute = Served.compute
    monkeypatch.setattr(Served, "compute", lambda *arguments: time.sleep(0.3) or compute(*arguments))
    found = client("masked", limits=replace(LIMITS, seconds=0.05)).post("/embed", json={"inputs": "the dog"})
    assert found.status_code == 503 and found.headers["retry-after"] == "1"


def test_S7_a_client_that_leaves_frees_its_slot(live, http, monkeypatch):
    from unmask.serving.served import Served

    computed = []
    compute = Served.compute

    def slow(served, head, samples):
        computed.append(len(samples))
        time.sleep(0.2)
        return compute(served, head, samples)

    monkeypatch.setattr(Served, "compute", slow)
    with live("masked", limits=replace(FAST, batch_tokens=8, requests=3)) as server:
        connections = [server.connect() for _ in range(3)]
        for connection in connections:
            connection.sendall(http("/embed", {"inputs": ["the dog sees the cat"] * 5}))
        time.sleep(0.1)
        assert b"429" in server.ask(http("/embed", {"inputs": "the dog"})).split(b"\r\n")[0]
        for connection in connections:
            connection.close()
        time.sleep(0.3)
        assert b"200" in server.ask(http("/embed", {"inputs": "the dog"})).split(b"\r\n")[0]
        assert b"unmask_disconnects_total 3.0" in server.service.meter.text()
    assert sum(computed) <= 5, "15 samples were asked for by clients that left"
