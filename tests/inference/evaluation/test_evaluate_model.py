"""Evaluation by the directory of a model: labeled examples in files or memory, or plain text."""

import pytest

from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.model.model import Model, build_encoder, save_model
from unmask.support.errors import UserError
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
    with pytest.raises(UserError, match="field, documents and strict have no effect"):
        evaluate(classifier, DATA, field="body", device="cpu", precision="float32")
    save_model(tmp_path / "encoder", Model(build_encoder(recipe.encoder, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match="columns, errors have no effect"):
        evaluate(
            tmp_path / "encoder", "a.txt", columns={"text": "a"}, errors="e.html", device="cpu", precision="float32"
        )
    with pytest.raises(UserError, match="is evaluated on files of text"):
        evaluate(tmp_path / "encoder", DATA, device="cpu", precision="float32")
