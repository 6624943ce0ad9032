"""Pairs and numbers as a user types it: fine-tune, evaluate, compare, predict; and the mistakes that can be made."""

import contextlib
import io
import json

import numpy as np
import pytest

from unmask.cli.main import main
from unmask.model import Model, build_encoder, save_model
from unmask.recipe import read_recipe
from unmask.settings import parse_overrides
from unmask.tasks.classification import Classification, ClassificationHead

NLI = ("entailment", "neutral", "contradiction")


def run(*arguments, status=0):
    """Run a command line in this process; return what it wrote on standard output and error."""
    output, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(said):
        found = main(list(map(str, arguments)))
    assert found == status, said.getvalue()
    return output.getvalue(), said.getvalue()


def nli(rng, number, unlabelled=()):
    """Pairs as SNLI's JSON Lines have them, some without gold label."""
    made = []
    for place in range(number):
        gold = "-" if place in unlabelled else NLI[rng.integers(3)]
        first, second = rng.choice(["The dog sees", "A cat likes", "The teacher finds"], 2)
        pair = {"gold_label": gold, "sentence1": f"{first} the sea.", "sentence2": f"{second} a {gold} house."}
        made.append(json.dumps({"annotator_labels": [gold], **pair, "pairID": str(place)}))
    return "\n".join(made) + "\n"


@pytest.fixture(scope="module")
def line(tmp_path_factory, tokenizer):
    """A start whose labels are not in alphabetical order, and two classifiers and a regression made from it."""
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
    said = {}
    for name, task, data, settings in (
        ("first", "classification", "train.jsonl", ["budget.steps=12", "task.weights=balanced"]),
        ("second", "classification", "train.jsonl", ["budget.steps=1", "seed=1"]),
        ("number", "regression", "sts.tsv", ["budget.steps=3"]),
    ):
        sets = [word for setting in (*settings, "task.length=32") for word in ("--set", setting)]
        _, said[name] = run(
            "finetune", task, "--model", here / "start", "--train", here / data, *sets, "--out", here / name
        )
    return here, said


def test_what_was_left_out_is_said_and_the_order_of_the_labels_stays(line):
    here, said = line
    note = f"{here / 'train.jsonl'}: left out, as the format says: 2 pairs without a label"
    assert said["first"].splitlines()[0] == note
    assert "labels: entailment, neutral, contradiction\n" in said["first"]
    assert "newly initialized" not in said["first"], "the model keeps its head, as the labels are the same"
    config = json.loads((here / "first" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}
    assert f"{here / 'sts.tsv'}: left out, as the format says: 1 pairs without a label" in said["number"]
    assert "36 training examples, 4 evaluation examples\n" in said["number"]
    assert "the regression head (its own is for entailment, neutral, contradiction)" in said["number"]


def test_evaluate_pairs(line):
    here, _ = line
    output, said = run("evaluate", "--model", here / "first", "--data", here / "test.jsonl", "--json")
    result = json.loads(output)
    assert said == f"{here / 'test.jsonl'}: left out, as the format says: 1 pairs without a label\n"
    assert (result["examples"], result["labels"]) == (29, list(NLI))
    assert said.strip() in result["notes"]
    assert "against" not in result
    output, _ = run("evaluate", "--model", here / "number", "--data", here / "sts.tsv", "--json")
    result = json.loads(output)
    assert (result["task"], result["examples"]) == ("regression", 40)
    assert result["metrics"].keys() == result["intervals"].keys() == {"pearson", "spearman"}


def test_evaluate_against(line):
    here, _ = line
    command = ("evaluate", "--model", here / "first", "--data", here / "test.jsonl", "--against", here / "second")
    result = json.loads(run(*command, "--json")[0])
    assert result["against"].keys() == {"metrics", "differences"}
    assert result["against"]["differences"].keys() == result["metrics"].keys()
    found = result["against"]["differences"]["accuracy"]
    assert found.keys() == {"difference", "interval", "p"}
    assert found["difference"] == result["metrics"]["accuracy"] - result["against"]["metrics"]["accuracy"]
    output, _ = run(*command)
    heading, columns, *rows = output[output.index("against") :].splitlines()
    assert heading == f"against {here / 'second'}, by a paired bootstrap:"
    assert columns.split() == ["other", "model", "this", "minus", "other", "[95", "%]", "p"]
    accuracy = next(row for row in rows if row.split()[0] == "accuracy")
    assert accuracy.split()[1] == f"{result['against']['metrics']['accuracy']:.4g}"
    places = [columns.index(name) for name in ("other model", "this minus", " p")]
    assert accuracy[places[1] :].startswith(f"{found['difference']:+.4g} [")
    assert accuracy[places[2] :].strip() == f"{found['p']:.2g}"


def test_evaluate_errors(line):
    here, _ = line
    for model, data in (("first", "test.jsonl"), ("number", "sts.tsv")):
        page = here / f"{model}.html"
        run("evaluate", "--model", here / model, "--data", here / data, "--errors", page)
        text = page.read_text(encoding="utf8")
        assert text.startswith("<!DOCTYPE html>")
        assert "<h2>second text</h2>" in text
        assert f"<bdi>{here / data}:" in text


def test_predict_pairs(line):
    here, _ = line
    texts = ("The dog sees the sea.", "A cat likes it.")
    output, said = run("predict", "--model", here / "first", texts[0], "--text-b", texts[1], "--json")
    (found,) = map(json.loads, output.splitlines())
    assert said == ""
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
    _, said = run("predict", "--model", here / "number", texts[0], status=2)
    assert "one text, but the model was trained on pairs of texts; give the second text" in said


def test_predict_pairs_of_files(line):
    here, _ = line
    output, said = run("predict", "--model", here / "first", "--data", here / "test.jsonl", "--json")
    assert (len(output.splitlines()), said) == (30, ""), "without labels nothing is left out"
    assert {tuple(json.loads(text)) for text in output.splitlines()} == {("text", "label", "scores", "text_b")}
    out = here / "said.jsonl"
    _, said = run("predict", "--model", here / "number", "--data", here / "sts.tsv", "--out", out)
    assert said == f"41 predictions: {out}\n"
    assert json.loads(out.read_text().splitlines()[0])["text_b"] == "this one."
    (here / "sick.txt").write_text("pair_ID\tsentence_A\tsentence_B\n1\tA dog\tA cat\n")
    output, _ = run("predict", "--model", here / "first", "--data", here / "sick.txt", "--json")
    assert (json.loads(output)["text"], json.loads(output)["text_b"]) == ("A dog", "A cat"), "of pairs .txt is .tsv"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "--model", "{line}/first", "--against", "{line}/number"), "first is for classification; "),
        (("evaluate", "--model", "{line}/first", "--against", "{line}/none"), "no directory is called"),
        (("evaluate", "--model", "{line}/first", "--errors", "{here}/a.pdf"), "a.pdf: the page of mistakes is HTML"),
        (("evaluate", "--model", "{line}/first", "--errors", "{here}/no/a.html"), "no: there is no such folder"),
        (("evaluate", "--model", "{line}/number"), "' is not a number"),
        (("evaluate", "--model", "{here}/bare", "--errors", "{here}/a.html"), "--errors has no effect: the model is"),
        (
            ("evaluate", "--model", "{here}/bare", "--errors", "{here}/a.html", "--against", "{line}/first"),
            "--against, --errors have no effect: the model is fine-tuned for no task",
        ),
    ],
)
def test_mistakes_of_a_user(line, tokenizer, tmp_path, arguments, message):
    here, _ = line
    encoder = build_encoder(read_recipe("bert-tiny").encoder, tokenizer.size)
    save_model(tmp_path / "bare", Model(encoder, tokenizer), "card")
    arguments = [word.format(line=here, here=tmp_path) for word in arguments]
    output, said = run(*arguments, "--data", here / "test.jsonl", status=2)
    assert output == ""
    assert message in said
    assert said.count("\n") == 1


def test_numbers_of_texts_must_agree(line):
    _, said = run("predict", "--model", line[0] / "first", "a", "b", "--text-b", "c", status=2)
    assert "2 texts cannot be paired with 1 second texts" in said
    _, said = run("predict", "--model", line[0] / "first", "--text-b", "c", "--data", line[0] / "test.jsonl", status=2)
    assert "--text-b has no effect without TEXT" in said
