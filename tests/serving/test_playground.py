"""The routes of the playground: which views models serve, attention, influence, the files of the page, errors."""

import re

import numpy as np
import pytest
from starlette.testclient import TestClient

from unmask.serving import playground as module
from unmask.serving.app import create_app
from unmask.serving.guard import Keys
from unmask.serving.playground import PAGE, playground_routes, public_paths

TEXT = "the dog sees the cat near the sea"


@pytest.fixture(scope="module")
def client(playground):
    app = create_app(playground, pages=playground_routes(playground), public=public_paths())
    return TestClient(app, base_url="http://localhost")


def refusal(response, status=422):
    """Return the message of a refusal."""
    assert response.status_code == status
    return response.json()["error"]


def test_models_name_the_views_that_they_serve(client):
    models = {one["name"]: one for one in client.get("/playground/models").json()["models"]}
    assert {name: one["views"] for name, one in models.items()} == {
        "masked": ["fill", "attention", "compare"],
        "permuted": ["fill", "attention", "compare"],
        "words": ["compare"],
        "classifier": ["label", "audit", "suggest", "attention", "compare"],
        "several": ["label", "audit", "suggest", "attention", "compare"],
        "tagger": ["entities", "attention", "compare"],
        "relater": ["relations", "attention", "compare"],
        "reader": ["answer", "attention", "compare"],
        "quac": ["answer", "attention", "compare"],
        "coqa": ["answer", "attention", "compare"],
        "hotpotqa": ["answer", "attention", "compare"],
        "chooser": ["choose", "attention", "compare"],
        "ranker": ["label", "search", "attention", "compare"],
        "vectors": ["search", "similarity", "attention", "compare"],
        "late": ["search", "attention", "compare"],
    }
    assert [one["family"] for one in models.values()] == ["bert", "xlnet", "elmo", *["bert"] * 12]
    assert models["masked"]["size"] == "2 layers, width 32, 4 heads"
    assert models["classifier"]["pairs"] is False
    assert {name: one["labels"] for name, one in models.items() if one["labels"]} == {
        "classifier": ["bad", "good"],
        "several": ["animal", "plant", "sea"],
    }
    assert (models["several"]["several"], models["several"]["threshold"]) == (True, [0.4, 0.5, 0.6])
    assert (models["classifier"]["several"], models["classifier"]["threshold"]) == (False, None)
    assert {name: one["types"] for name, one in models.items() if one["types"]} == {
        "tagger": ["ANIMAL", "PLANT", "SEA"]
    }
    assert {name: one["history"] for name, one in models.items() if one["history"] is not None} == {
        "quac": 2,
        "coqa": 2,
    }
    assert [name for name, one in models.items() if one["passages"]] == ["hotpotqa"]


@pytest.mark.parametrize("name", ["masked", "permuted"])
def test_attention_is_that_of_the_predictor(client, predictors, name):
    found = client.post("/playground/attention", json={"model": name, "inputs": [TEXT, "a poem"]}).json()
    expected = predictors[name].attention(TEXT, "a poem")
    assert np.abs(np.array(found["weights"]) - expected.weights).max() < 6e-5
    assert [token["token"] for token in found["tokens"]] == [token.token for token in expected.tokens]
    first = next(token for token in found["tokens"] if token["text"] == 0)
    assert (first["start"], first["end"]) == (0, 3)


@pytest.mark.parametrize("name", ["masked", "permuted", "words"])
def test_influence_is_that_of_the_predictor(client, predictors, name):
    found = client.post("/playground/influence", json={"model": name, "inputs": TEXT}).json()
    assert [TEXT[start:end] for start, end in found["words"]] == TEXT.split()
    assert np.abs(np.array(found["change"]) - predictors[name].influence(TEXT).change).max() < 1e-6


def test_refusals_explain_themselves(client, monkeypatch):
    def ask(path="attention", status=422, **body):
        return refusal(client.post(f"/playground/{path}", json=body), status)

    assert "has no attention" in ask(model="words", inputs=TEXT)
    assert "no such model" in ask(model="gone", inputs=TEXT, status=404)
    assert "`inputs` is missing" in ask(model="masked")
    assert "unknown field" in ask(inputs=TEXT, layer=1)
    assert "too many" in ask(inputs=[TEXT, TEXT, TEXT])
    assert "is empty" in ask(inputs=[TEXT, " "])
    assert "more tokens than the model reads" in ask(inputs="dog " * 200)
    assert "more than 100,000 characters" in ask(inputs="a" * 100_001, status=413)
    assert "fewer than two words" in ask("influence", inputs="dog")
    assert "at most 128 words is measured; shorten the text, which has 129" in ask(
        "influence", inputs="a " * 129, status=413
    )
    monkeypatch.setattr(module, "MAX_WEIGHTS", 2 * 4 * 30)
    assert "at most 5 tokens is shown; shorten the text, which has 10" in ask(inputs=TEXT, status=413)


def test_only_the_page_needs_no_key(playground):
    key = "0123456789abcdef"
    app = create_app(playground, keys=Keys([key]), pages=playground_routes(playground), public=public_paths())
    client = TestClient(app, base_url="http://localhost")
    assert {client.get(path).status_code for path in public_paths()} == {200}
    assert client.get("/playground/models").status_code == 401
    assert client.post("/playground/influence", json={"inputs": TEXT}).status_code == 401
    assert client.get("/playground/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


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
    for path in ("missing.js", "index.html", "..%2Fplayground.py", "%2e%2e/playground.py", "__init__.py"):
        assert client.get(f"/playground/{path}").status_code == 404
