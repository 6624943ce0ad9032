"""Pairs of texts and scores on the command line: fine-tune, evaluate, compare, predict; and user errors."""

import json

import numpy as np
import pytest

from unmask.model.model import Model, build_encoder, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides
from unmask.tasks.classification import Classification, ClassificationHead

from .conftest import run, sets

NLI = ("entailment", "neutral", "contradiction")


def nli(rng, number, unlabelled=()):
    """Return pairs in the JSON Lines format of SNLI, some without a gold label."""
    made = []
    for index in range(number):
        gold = "-" if index in unlabelled else NLI[rng.integers(3)]
        first, second = rng.choice(["The dog sees", "A cat likes", "The teacher finds"], 2)
        pair = {"gold_label": gold, "sentence1": f"{first} the sea.", "sentence2": f"{second} a {gold} house."}
        made.append(json.dumps({"annotator_labels": [gold], **pair, "pairID": str(index)}))
    return "\n".join(made) + "\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory, tokenizer):
    """A model whose labels are not in alphabetical order, and two classifiers and a regression fine-tuned from it."""
    here, rng = tmp_path_factory.mktemp("pairs"), np.random.default_rng(0)
    (here / "train.jsonl").write_text(nli(rng, 60, unlabelled=(3, 5)))
    (here / "test.jsonl").write_text(nli(rng, 30, unlabelled=(0,)))
    sts = [
        f"{rng.integers(26) / 5}\tThe dog sees the cat.\tThe {word} sees it."
        for word in ("dog", "sea")
        for _ in "x" * 20
    ]
    (here / "sts.tsv").write_text("\n".join(["\tNobody scored\tthis one.", *sts]) + "\n")
    shape = [
        "encoder.layers=1",
        "encoder.width=32",
        "encoder.heads=2",
        "encoder.feed_forward=64",
        "encoder.positions=64",
    ]
    encoder = read_recipe("bert-tiny", parse_overrides([*shape, "layout.length=48"])).encoder
    heads = {"classification": ClassificationHead(encoder.head, 3).state_dict()}
    start = Model(build_encoder(encoder, tokenizer.size), tokenizer, heads, NLI, Classification(length=64))
    save_model(here / "start", start, "card")
    messages = {}
    for name, task, data, settings in (
        ("first", "classification", "train.jsonl", ["budget.steps=12", "task.weights=balanced"]),
        ("second", "classification", "train.jsonl", ["budget.steps=1", "seed=1"]),
        ("number", "regression", "sts.tsv", ["budget.steps=3"]),
    ):
        chosen = sets([*settings, "task.length=32"])
        given = ("--model", here / "start", "--train", here / data, *chosen, "--out", here / name)
        messages[name] = run("finetune", task, *given).err
    return here, messages


def test_omitted_rows_are_reported_and_the_order_of_the_labels_is_kept(models):
    here, messages = models
    note = f"{here / 'train.jsonl'}: omitted, as the format specifies: 2 pairs without a label"
    assert messages["first"].splitlines()[0] == note
    assert "labels: entailment, neutral, contradiction\n" in messages["first"]
    assert "newly initialized" not in messages["first"], "the head is the model's, as the labels are the same"
    config = json.loads((here / "first" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}
    assert f"{here / 'sts.tsv'}: omitted, as the format specifies: 1 pair without a label" in messages["number"]
    assert "36 training examples, 4 evaluation examples\n" in messages["number"]
    assert "the regression head (its own is for entailment, neutral, contradiction)" in messages["number"]


def test_evaluate_pairs(models):
    here, _ = models
    output, messages = run("evaluate", "--model", here / "first", "--data", here / "test.jsonl", "--json")
    result = json.loads(output)
    omitted, *constant = messages.splitlines()
    assert omitted == f"{here / 'test.jsonl'}: omitted, as the format specifies: 1 pair without a label"
    assert all(line.endswith("predicted for all 29 examples: the model tells none of them apart") for line in constant)
    assert (result["examples"], result["labels"]) == (29, list(NLI))
    assert result["notes"] == [omitted]
    assert [f"warning: {warning}" for warning in result.get("warnings", [])] == constant
    assert "against" not in result
    output, _ = run("evaluate", "--model", here / "number", "--data", here / "sts.tsv", "--json")
    result = json.loads(output)
    assert (result["task"], result["examples"]) == ("regression", 40)
    assert result["metrics"].keys() == result["intervals"].keys() == {"pearson", "spearman"}


def test_evaluate_against(models):
    here, _ = models
    command = ("evaluate", "--model", here / "first", "--data", here / "test.jsonl", "--against", here / "second")
    result = json.loads(run(*command, "--json")[0])
    assert result["against"].keys() == {"model", "metrics", "differences"}
    assert result["against"]["differences"].keys() == result["metrics"].keys()
    found = result["against"]["differences"]["accuracy"]
    assert found.keys() == {"difference", "interval", "p"}
    assert found["difference"] == result["metrics"]["accuracy"] - result["against"]["metrics"]["accuracy"]
    output, _ = run(*command)
    heading, columns, *rows = output[output.index("compared with") :].splitlines()
    assert heading == f"compared with {here / 'second'}, by a paired bootstrap:"
    assert columns.split() == ["other", "model", "this", "minus", "other", "[95", "%]", "p"]
    accuracy = next(row for row in rows if row.split()[0] == "accuracy")
    assert accuracy.split()[1] == f"{result['against']['metrics']['accuracy']:.4g}"
    starts = [columns.index(name) for name in ("other model", "this minus", " p")]
    assert accuracy[starts[1] :].startswith(f"{found['difference']:+.4g} [")
    assert accuracy[starts[2] :].strip() == f"{found['p']:.2g}"


def test_evaluate_errors(models):
    here, _ = models
    for model, data in (("first", "test.jsonl"), ("number", "sts.tsv")):
        page = here / f"{model}.html"
        run("evaluate", "--model", here / model, "--data", here / data, "--errors", page)
        text = page.read_text(encoding="utf8")
        assert text.startswith("<!DOCTYPE html>")
        assert "<h2>second text</h2>" in text
        assert f"<bdi>{here / data}:" in text


def test_predict_pairs(models):
    here, _ = models
    texts = ("The dog sees the sea.", "A cat likes it.")
    output, messages = run("predict", "--model", here / "first", texts[0], "--text-b", texts[1], "--json")
    (found,) = map(json.loads, output.splitlines())
    assert messages == ""
    assert found.keys() == {"text", "text_b", "label", "scores"}
    assert (found["text"], found["text_b"], tuple(found["scores"])) == (*texts, NLI)
    output, _ = run("predict", "--model", here / "number", texts[0], "--text-b", texts[1], "--json")
    number = json.loads(output)
    assert number.keys() == {"text", "text_b", "score"}
    assert isinstance(number["score"], float)
    assert run("predict", "--model", here / "number", texts[0], "--text-b", texts[1])[0] == (
        f"{number['score']:.3f}\t{texts[0]}\t{texts[1]}\n"
    )
    swapped = json.loads(run("predict", "--model", here / "number", texts[0], "--text-b", texts[0], "--json")[0])
    assert swapped["score"] != number["score"], "the second text counts"
    _, messages = run("predict", "--model", here / "number", texts[0], status=2)
    assert "one text, but the model was trained on pairs of texts; give the second text" in messages


def test_predict_pairs_of_files(models):
    here, _ = models
    output, messages = run("predict", "--model", here / "first", "--data", here / "test.jsonl", "--json")
    assert (len(output.splitlines()), messages) == (30, ""), "without labels no pair is omitted"
    assert {tuple(json.loads(text)) for text in output.splitlines()} == {("text", "label", "scores", "text_b")}
    out = here / "predictions.jsonl"
    _, messages = run("predict", "--model", here / "number", "--data", here / "sts.tsv", "--out", out)
    assert messages == f"41 predictions: {out}\n"
    assert json.loads(out.read_text().splitlines()[0])["text_b"] == "this one."
    (here / "sick.txt").write_text("pair_ID\tsentence_A\tsentence_B\n1\tA dog\tA cat\n")
    output, _ = run("predict", "--model", here / "first", "--data", here / "sick.txt", "--json")
    assert (json.loads(output)["text"], json.loads(output)["text_b"]) == ("A dog", "A cat"), (
        "for pairs .txt is read as .tsv"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "--model", "{models}/first", "--against", "{models}/number"), "first is for classification; "),
        (("evaluate", "--model", "{models}/first", "--against", "{models}/none"), "no directory '"),
        (
            ("evaluate", "--model", "{models}/first", "--errors", "{here}/a.pdf"),
            "a.pdf: the page of errors is HTML; name it FILE.html",
        ),
        (
            ("evaluate", "--model", "{models}/first", "--errors", "{here}/no/a.html"),
            "no: there is no such directory; create it",
        ),
        (("evaluate", "--model", "{models}/number"), "' is not a number"),
        (
            ("evaluate", "--model", "{here}/bare", "--errors", "{here}/a.html"),
            "--errors has no effect: the model is not",
        ),
        (
            ("evaluate", "--model", "{here}/bare", "--errors", "{here}/a.html", "--against", "{models}/first"),
            "--against, --errors have no effect: the model is not fine-tuned, so the data is plain text; omit them",
        ),
    ],
)
def test_mistakes_of_a_user(models, tokenizer, tmp_path, arguments, message):
    here, _ = models
    encoder = build_encoder(read_recipe("bert-tiny").encoder, tokenizer.size)
    save_model(tmp_path / "bare", Model(encoder, tokenizer), "card")
    arguments = [word.format(models=here, here=tmp_path) for word in arguments]
    output, messages = run(*arguments, "--data", here / "test.jsonl", status=2)
    assert output == ""
    assert message in messages
    assert messages.count("\n") == 1


def test_the_number_of_first_and_second_texts_must_agree(models):
    _, messages = run("predict", "--model", models[0] / "first", "a", "b", "--text-b", "c", status=2)
    assert "2 texts cannot be paired with 1 second text" in messages
    _, messages = run(
        "predict", "--model", models[0] / "first", "--text-b", "c", "--data", models[0] / "test.jsonl", status=2
    )
    assert "--text-b has no effect without TEXT" in messages
