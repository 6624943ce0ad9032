"""Evaluation by the directory of a model: labeled examples in files or memory, or plain text."""

import json

import pytest

from unmask.inference.evaluation import evaluate_model
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.model.model import Model, build_encoder, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
DATA = {"text": ["the dog", "the cat", "a river"], "label": ["yes", "no", "yes"]}


@pytest.fixture
def classifier(tmp_path, recipe, tokenizer):
    heads = {"classification": ClassificationHead(recipe.encoder.head, 2).state_dict()}
    model = Model(
        build_encoder(recipe.encoder, tokenizer.size), tokenizer, heads, ("no", "yes"), Classification(length=16)
    )
    save_model(tmp_path / "classifier", model, "")
    return tmp_path / "classifier"


def test_examples_in_memory_are_scored_like_those_of_a_file(classifier, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "\n".join(map(",".join, zip(*DATA.values(), strict=True))))
    page = tmp_path / "errors.html"
    result = evaluate(classifier, DATA, against=classifier, errors=page, device="cpu", precision="float32", quiet=True)
    assert result["metrics"] == evaluate(classifier, path, device="cpu", precision="float32", quiet=True)["metrics"]
    assert result["examples"] == 3
    assert result["against"]["differences"]["accuracy"]["difference"] == 0
    assert "&lt;dict&gt;" in page.read_text()


def test_options_without_effect_are_refused(classifier, tmp_path, recipe, tokenizer):
    with pytest.raises(UserError, match="field has no effect"):
        evaluate(classifier, DATA, field="body", device="cpu", precision="float32")
    save_model(tmp_path / "encoder", Model(build_encoder(recipe.encoder, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match="columns, errors have no effect"):
        evaluate(
            tmp_path / "encoder", "a.txt", columns={"text": "a"}, errors="e.html", device="cpu", precision="float32"
        )
    with pytest.raises(UserError, match="is evaluated on files of text"):
        evaluate(tmp_path / "encoder", DATA, device="cpu", precision="float32")


HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.fixture
def language_model(tmp_path, recipe, tokenizer):
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()}
    save_model(tmp_path / "bert", Model(encoder, tokenizer, heads), "")
    return tmp_path / "bert"


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    pair = {"sentence_good": "the dog sees a cat", "sentence_bad": "the dog see a cat", "UID": "x", "field": "y"}
    path.write_text("\n".join(json.dumps(pair | {"sentence_good": f"{word} dog"}) for word in ("a", "the", "one")))
    return path


def test_suites_score_a_language_model(language_model, pairs, text_file):
    result = evaluate(language_model, pairs, suite="blimp", limit=2, **HERE)
    assert (result["task"], result["examples"]) == ("blimp", 2)
    assert result["scored_by"] == "pseudo-log-likelihood, PLL-original"
    assert result["notes"][:2] == [result["scored_by"], "at most the first 2 pairs of each paradigm"]
    result = evaluate(language_model, text_file, suite="bits", limit=3, **HERE)
    assert (result["task"], result["examples"]) == ("bits", 3)
    assert result["scored_by"] == "pseudo-log-likelihood, PLL-word-l2r"
    assert 0 < result["metrics"]["bits_per_character"] < result["metrics"]["bits_per_token"]
    original = evaluate(language_model, text_file, suite="bits", limit=3, pll="original", **HERE)
    assert original["scored_by"] == "pseudo-log-likelihood, PLL-original"


def test_notes_name_parameters_as_they_are_shown(language_model, text_file, monkeypatch):
    noted = {"task": "bits", "metrics": {}, "notes": [f"pass {argument('encoding', 'cp1252')}"]}
    monkeypatch.setattr(evaluate_model, "evaluate_bits", lambda *given: noted)
    assert evaluate(language_model, text_file, suite="bits", **HERE)["notes"][-1] == 'pass encoding="cp1252"'


def test_suites_refuse_what_has_no_effect(language_model, classifier, pairs):
    for other, message in (
        ({"limit": 3}, "limit has no effect without suite"),
        ({"suite": "blimp", "limit": 0}, "limit=0: not a whole number of 1 or more"),
        ({"suite": "glue"}, 'suite="glue": unknown; choose one of blimp, bits'),
        ({"suite": "blimp", "pll": "x"}, 'pll="x": unknown'),
        ({"suite": "blimp", "format": "tsv", "metrics": "f1"}, 'format, metrics have no effect: suite="blimp" scores'),
        ({"suite": "blimp", "field": "body"}, "field has no effect: BLiMP"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate(language_model, pairs, **other, **HERE)
    with pytest.raises(UserError, match="the model is fine-tuned"):
        evaluate(classifier, pairs, suite="blimp", **HERE)
    with pytest.raises(UserError, match='suite="bits" reads files'):
        evaluate(language_model, DATA, suite="bits", **HERE)
