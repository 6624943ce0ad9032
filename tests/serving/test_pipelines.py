"""The pipelines: beside those of transformers, and which of them a request without a name asks for."""

from dataclasses import replace

import msgspec
import pytest

from unmask.inference.predictor import Predictor
from unmask.model.model import save_model
from unmask.serving.app import create_app
from unmask.serving.metrics import Meter
from unmask.serving.pipelines import PIPELINES
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.training.machine import choose_machine

from .conftest import LIMITS, testclient

TEXT, OTHER = "the dog sees the cat", "a garden near the sea"


@pytest.fixture(scope="module")
def pipelines(tiny, tmp_path_factory):
    """Return a pipeline of transformers with a model, or that of a kind."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

    def make(task, model, **options):
        folder = tmp_path_factory.mktemp("models") / "model"
        save_model(folder, tiny[model] if isinstance(model, str) else model, "card")
        return transformers.pipeline(task, model=str(folder), tokenizer=str(folder), device="cpu", **options)

    return make


@pytest.mark.slow
def test_fill_mask_is_that_of_transformers(client, pipelines):
    theirs, one = pipelines("fill-mask", "masked"), client("masked")
    for text in ("the [MASK] sees", "[MASK] garden"):
        found = one.post("/pipeline/fill-mask", json={"inputs": text}).json()
        for ours, item in zip(found, theirs(text), strict=True):
            assert ours == {**item, "score": pytest.approx(item["score"], abs=1e-6)}
    targets = ["garden", "sea", "The", "the", "##s"]  # two are the same token
    for top in (2, 9):
        parameters = {"targets": targets, "top_k": top}
        found = one.post("/pipeline/fill-mask", json={"inputs": text, "parameters": parameters}).json()
        for ours, item in zip(found, theirs(text, **parameters), strict=True):
            assert ours == {**item, "score": pytest.approx(item["score"], abs=1e-6)}
    text = "the [MASK] sees the [MASK]"
    found = one.post("/pipeline/fill-mask", json={"inputs": [text], "parameters": {"top_k": 2}}).json()
    for ours, items in zip(found[0], theirs(text, top_k=2), strict=True):
        assert [item["token"] for item in ours] == [item["token"] for item in items]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["none", "softmax", "sigmoid", None])
def test_text_classification_is_that_of_transformers(client, pipelines, function):
    theirs, one = pipelines("text-classification", "classes"), client("classes")
    body = {"inputs": [TEXT, OTHER], "parameters": {"top_k": 3, "function_to_apply": function}}
    found = one.post("/pipeline/text-classification", json=body).json()
    expected = theirs([TEXT, OTHER], top_k=3, function_to_apply=function)
    for ours, items in zip(found, expected, strict=True):
        assert [item["label"] for item in ours] == [item["label"] for item in items]
        assert [item["score"] for item in ours] == pytest.approx([item["score"] for item in items], abs=1e-5)


@pytest.mark.slow
def test_entities_are_those_of_transformers(client, pipelines):
    theirs, one = pipelines("token-classification", "tags", aggregation_strategy="first"), client("tags")
    found = one.post("/pipeline/token-classification", json={"inputs": TEXT}).json()
    expected = [(item["entity_group"], item["start"], item["end"]) for item in theirs(TEXT)]
    assert expected == [(item["entity_group"], item["start"], item["end"]) for item in found]


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_zero_shot_classification_is_that_of_transformers(tiny, pipelines, several):
    model = replace(tiny["pairs"], labels=("contradiction", "entailment"))
    theirs, labels = pipelines("zero-shot-classification", model), ["dog", "garden", "sea"]
    options = {"hypothesis_template": "the {} sees", "multi_label": several}
    served = Served("entailment", Predictor(model, choose_machine("cpu", "float32")), LIMITS, Meter())
    with testclient.TestClient(create_app(Service([served], LIMITS, Meter())), base_url="http://localhost") as one:
        body = {"inputs": [TEXT, OTHER], "parameters": {"candidate_labels": labels, **options}}
        found = one.post("/", json=body).json()
        alone = one.post("/pipeline/zero-shot-classification", json={**body, "inputs": TEXT}).json()
    for ours, expected in zip(found, theirs([TEXT, OTHER], labels, **options), strict=True):
        assert [item["label"] for item in ours] == expected["labels"]
        assert [item["score"] for item in ours] == pytest.approx(expected["scores"], abs=1e-5)
    assert [item["label"] for item in alone] == [item["label"] for item in found[0]], "a text alone has no list around"


def test_pairs_and_several_texts(client):
    one = client("classes", "pairs", "tags")

    def ask(model, inputs):
        found = one.post(f"/models/{model}", json={"inputs": inputs, "parameters": {}})
        assert found.status_code == 200, found.text
        return found.json()

    pair = {"text": TEXT, "text_pair": OTHER}
    assert [len(labels) for labels in ask("pairs", [pair, pair])] == [2, 2]
    assert ask("pairs", pair)[0] == [
        {**item, "score": pytest.approx(item["score"], abs=1e-6)} for item in ask("pairs", [pair])[0]
    ]
    assert len(ask("classes", [TEXT, {"text": OTHER}])) == 2
    several = one.post("/models/classes", json={"inputs": [TEXT, OTHER]})
    assert several.json() == ask("classes", [TEXT, OTHER]), "two texts are a pair at / alone"
    assert len(ask("tags", [TEXT, OTHER])) == 2


BODIES = {
    "rerank": ({"query": TEXT, "texts": [OTHER]}, "/rerank"),
    "similarity": ({"inputs": {"source_sentence": TEXT, "sentences": [OTHER]}}, "/pipeline/sentence-similarity"),
    "question": ({"inputs": {"question": TEXT, "context": OTHER}, "parameters": {}}, "/pipeline/question-answering"),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("first", ["masked", "classes"])
def test_fields_decide_what_is_asked_for(client, first, body):
    sent, path = BODIES[body]
    one = client(first, "ranks", "answers")
    assert one.post("/", json=sent).json() == one.post(path, json=sent).json()


@pytest.mark.parametrize(
    ("first", "body", "path"),
    [
        ("classes", {"inputs": TEXT}, "/predict"),
        ("classes", {"inputs": TEXT, "parameters": {"top_k": 1}}, "/pipeline/text-classification"),
        ("masked", {"inputs": TEXT}, "/pipeline/feature-extraction"),
        ("masked", {"inputs": "the [MASK]", "parameters": {}}, "/pipeline/fill-mask"),
        ("tags", {"inputs": TEXT}, "/pipeline/token-classification"),
    ],
)
def test_or_what_the_first_model_is_for(client, first, body, path):
    one = client(first, "number", "masked")
    found = one.post("/", json=body)
    assert found.status_code == 200 and found.json() == one.post(path, json={**body, "model": first}).json()


def test_what_has_no_pipeline_is_refused(client):
    one = client("choices", "masked")
    found = one.post("/", json={"inputs": TEXT})
    assert found.status_code == 422 and "this model has no pipeline" in found.json()["error"]
    found = one.post("/models/masked", json={"inputs": TEXT, "model": "choices"})
    assert found.status_code == 422 and "`model`: the path names another model" in found.json()["error"]
    assert one.post("/", content=b"[", headers={"content-type": "application/json"}).status_code in (400, 422)
    assert one.post("/models/choices", content=b"a").status_code == 415


def test_an_answer_may_be_none(client, tiny):
    """With `handle_impossible_answer`, "" competes; without it, the best span is the answer."""
    one, asked = client("beams"), {"question": "who", "context": f"{TEXT} near the sea"}
    for value in (True, False):
        body = {"inputs": asked, "parameters": {"handle_impossible_answer": value, "top_k": 5}}
        found = one.post("/pipeline/question-answering", json=body).json()
        assert ("" in {item["answer"] for item in found}) == value
        assert all(item["answer"] == asked["context"][item["start"] : item["end"]] for item in found)
    own = one.post("/pipeline/question-answering", json={"inputs": asked}).json()
    expected = one.post("/answer", json={"question": asked["question"], "passage": asked["context"]}).json()
    assert own["answer"] == expected["answer"]


@pytest.mark.parametrize("name", PIPELINES)
def test_examples_are_requests(name):
    endpoint = PIPELINES[name]
    assert msgspec.convert(endpoint.example, endpoint.request).model is None
