"""The route /explain: what words contribute to a prediction, as from Python, and within the limits of the server."""

from dataclasses import replace

import msgspec
import pytest

from tests.serving.conftest import LIMITS
from unmask.inference.predictor import Predictor
from unmask.training.machine import choose_machine

TEXT = "the dog sees the cat near the sea"


def ask(client, status=200, **body):
    found = client.post("/explain", json=body)
    assert found.status_code == status, found.text
    return found.json() if status == 200 else found.json()["error"]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("classes", TEXT),
        ("pairs", ["the dog", "sees the cat"]),
        ("number", TEXT),
        ("several", TEXT),
        ("tags", TEXT),
        ("tags", f"{TEXT} {TEXT} {TEXT}"),  # in windows
        ("windows", "the dog"),
    ],
)
def test_explanations_are_those_of_the_predictor(client, tiny, kind, inputs):
    predictor = Predictor(tiny[kind], choose_machine("cpu", "float32"))
    texts = [inputs] if isinstance(inputs, str) else inputs
    (prediction,) = predictor.predict(*([text] for text in texts), explain="occlusion")
    found = ask(client(kind, limits=replace(LIMITS, request_tokens=4000)), inputs=inputs)
    expected = msgspec.to_builtins(prediction.explanations)
    assert expected
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert {name: value for name, value in ours.items() if name not in ("words", "value")} == {
            name: value for name, value in theirs.items() if name not in ("words", "value")
        }
        assert ours["value"] == pytest.approx(theirs["value"], abs=1e-4)
        for word, other in zip(ours["words"], theirs["words"], strict=True):
            assert word.pop("contribution") == pytest.approx(other.pop("contribution"), abs=1e-4)
            assert word == other


def test_what_is_too_long_or_not_explained_is_refused(client):
    assert "a text is too long" in ask(client("classes"), 422, inputs="the dog " * 9)
    assert "several windows" in ask(client("windows"), 422, inputs="the dog " * 9)
    assert "a single one, or the reverse" in ask(client("pairs"), 422, inputs="the dog")
    for kind in ("masked", "answers", "spans"):
        assert "this model has no /explain" in ask(client(kind), 422, inputs=TEXT, model=kind)


def test_words_tokens_and_scores_are_bounded(client):
    few = client("classes", limits=replace(LIMITS, words=7))
    assert "`inputs`: 8 words, more than 7 that can be explained" in ask(few, 413, inputs=TEXT)
    assert ask(few, inputs="the dog sees the cat near the")
    scores = client("classes", limits=replace(LIMITS, logits=26))  # 9 copies × 3 labels
    assert "`inputs`: more than 26 scores" in ask(scores, 413, inputs=TEXT)
    tokens = client("classes", limits=replace(LIMITS, request_tokens=89))  # 9 copies of 10 tokens
    assert "too long to be read once without each word" in ask(tokens, 413, inputs=TEXT)
