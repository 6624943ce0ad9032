"""The routes of the playground: which views models serve, attention, influence, the files of the page, errors."""

import re

import numpy as np
import pytest

from unmask.serving import playground
from unmask.serving.playground import PAGE

pytest.importorskip("httpx", reason="httpx is not installed")
from starlette.testclient import TestClient

TEXT = "the dog sees the cat near the sea"


@pytest.fixture(scope="module")
def client(application):
    with TestClient(application) as client:
        yield client


def refusal(response):
    """Return the message of an error that the user can fix."""
    assert response.status_code == 400
    return response.json()["error"]["message"]


def test_models_name_the_views_that_they_serve(client):
    models = {one["name"]: one for one in client.get("/playground/models").json()["models"]}
    assert {name: one["views"] for name, one in models.items()} == {
        "masked": ["fill", "attention", "compare"],
        "permuted": ["fill", "attention", "compare"],
        "words": ["compare"],
        "classifier": ["label", "attention", "compare"],
        "tagger": ["entities", "attention", "compare"],
        "reader": ["answer", "attention", "compare"],
    }
    assert [one["family"] for one in models.values()] == ["bert", "xlnet", "elmo", "bert", "bert", "bert"]
    assert models["masked"]["size"] == "2 layers, width 32, 4 heads"
    assert models["classifier"]["pairs"] is False


@pytest.mark.parametrize("name", ["masked", "permuted"])
def test_attention_is_that_of_the_predictor(client, predictors, name):
    found = client.post("/playground/attention", json={"model": name, "text": TEXT, "text_b": "a poem"}).json()
    expected = predictors[name].attention(TEXT, "a poem")
    assert np.abs(np.array(found["weights"]) - expected.weights).max() < 6e-5
    assert [token["token"] for token in found["tokens"]] == [token.token for token in expected.tokens]
    first = next(token for token in found["tokens"] if token["text"] == 0)
    assert (first["start"], first["end"]) == (0, 3)


@pytest.mark.parametrize("name", ["masked", "permuted", "words"])
def test_influence_is_that_of_the_predictor(client, predictors, name):
    found = client.post("/playground/influence", json={"model": name, "text": TEXT}).json()
    assert [TEXT[start:end] for start, end in found["words"]] == TEXT.split()
    assert np.abs(np.array(found["change"]) - predictors[name].influence(TEXT).change).max() < 1e-6


def test_errors_explain_themselves(client, monkeypatch):
    def ask(**body):
        return refusal(client.post("/playground/attention", json=body))

    assert "no attention (ELMo" in ask(model="words", text=TEXT)
    assert "no model 'gone'; use one of masked, permuted" in ask(model="gone", text=TEXT)
    assert "no model is named" in ask(text=TEXT)
    assert "not valid: Object missing required field `text`" in ask(model="masked")
    assert "unknown field `layer`" in ask(model="masked", text=TEXT, layer=1)
    assert "remove text_b" in refusal(
        client.post("/playground/influence", json={"model": "masked", "text": TEXT, "text_b": "a"})
    )
    assert "not valid" in refusal(client.post("/playground/influence", content=b"\xff"))
    assert "at most 128" in refusal(client.post("/playground/influence", json={"model": "masked", "text": "a " * 129}))
    monkeypatch.setattr(playground, "MAX_WEIGHTS", 2 * 4 * 30)
    assert "has 10 tokens, but the attention of at most 5 is shown; shorten it" in ask(model="masked", text=TEXT)
    monkeypatch.setattr(playground, "MAX_BODY", 30)
    assert "more than 30 bytes" in ask(model="masked", text=TEXT)


def test_the_page_is_complete_and_refers_to_nothing_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    names = [file.name for file in PAGE.iterdir() if file.name != "index.html"]
    for name in names:
        answer = client.get(f"/playground/{name}")
        assert answer.headers["content-type"].startswith(kinds[name[name.rindex(".") :]])
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]|@import|innerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
        for imported in re.findall(r'from "\./([a-z]+\.js)"', text):
            assert imported in names
    assert not re.search("https?:|style=|onclick", page.text)
    assert set(re.findall(r'"playground/([a-z.]+)"', page.text)) <= set(names)


def test_only_files_of_the_page_are_sent(client):
    for path in ("missing.js", "..%2Fplayground.py", "%2e%2e/playground.py", "__init__.py"):
        assert client.get(f"/playground/{path}").status_code == 404
