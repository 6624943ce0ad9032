"""Token classification on the command line: fine-tune, evaluate, predict, and read the predictions again."""

import json

import numpy as np
import pytest
from seqeval.metrics import f1_score

from unmask.data.labelled.annotations import read_annotations

from .conftest import run

ROWS = [("The", "O"), ("dog", "B-PER"), ("River", "I-PER"), ("sees", "O"), ("the", "O"), ("sea", "B-LOC"), (".", "O")]
SENTENCE = "".join(f"{word} {tag}\n" for word, tag in ROWS)


@pytest.fixture(scope="module")
def here(tmp_path_factory, tokenizer_directory):
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "train.conll").write_text("\n".join([SENTENCE] * 12) + "\na I-LOC\n")
    command = ["finetune", "token-classification", "--model", "random:bert-tiny", "--tokenizer", tokenizer_directory]
    sets = ["--set", "budget.steps=12", "--set", "optimizer.learning_rate=3e-3"]
    files = ["--train", folder / "train.conll", "--dev", folder / "train.conll", "--out", folder / "run"]
    run(*command, *files, *sets, "--device", "cpu")
    return folder


def test_evaluate(here):
    command = ("evaluate", "--model", here / "run", "--data", here / "train.conll")
    result = json.loads(run(*command, "--json").out)
    assert list(result) == ["task", "metrics", "intervals", "examples", "by_type", "calibration", "notes", "seconds"]
    assert (result["task"], result["examples"], list(result["by_type"])) == ("token-classification", 13, ["LOC", "PER"])
    assert result["metrics"].keys() == result["intervals"].keys() == {"precision", "recall", "f1"}
    output = run(*command)
    assert "  f1 " in output.out
    assert "  PER " in output.out
    assert output.err == (
        f"{here / 'train.conll'}: 1 entity outside the tagging scheme of the file (I- without B-, for example), "
        "the first in the sentence of line 97; read as conlleval does\n"
    )


def test_scores_equal_those_of_seqeval_on_the_columns_that_predict_writes(here, tmp_path):
    rng = np.random.default_rng(0)
    text = "\n".join("".join(f"{ROWS[n][0]} {ROWS[n][1]}\n" for n in rng.integers(7, size=9)) for _ in range(40))
    (tmp_path / "test.conll").write_text(text)
    model = ("--model", here / "run", "--data", tmp_path / "test.conll")
    found = json.loads(run("evaluate", *model, "--json").out)["metrics"]["f1"]
    run("predict", *model, "--out", tmp_path / "out.conll")
    gold, predicted = (
        [[line.split()[1] for line in one.splitlines()] for one in path.read_text().strip().split("\n\n")]
        for path in (tmp_path / "test.conll", tmp_path / "out.conll")
    )
    assert 10 < found < 99
    assert found == pytest.approx(100 * f1_score(gold, predicted))


def test_predict_texts(here, tmp_path):
    text = "The dog River sees the sea."
    model = ("predict", "--model", here / "run")
    found = json.loads(run(*model, "--json", text).out)
    assert list(found) == ["text", "entities"]
    assert found["entities"], "the model has learned something"
    for one in found["entities"]:
        assert list(one) == ["label", "start", "end", "text", "probability"]
        assert text[one["start"] : one["end"]] == one["text"]
    (tmp_path / "texts.txt").write_text(f"{text}\n\n{text}\n")
    lines = run(*model, "--data", tmp_path / "texts.txt").out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{text}\t{found['entities'][0]['label']} ")
    assert "no pairs" not in run(*model, text, "--text-b", text, status=2).err


@pytest.mark.parametrize("suffix", [".conll", ".tsv", ".txt"])
def test_predicted_columns_are_read_again(here, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    output = run("predict", "--model", here / "run", "--data", here / "train.conll", "--out", out)
    assert output.err == f"13 predictions: {out}\n"
    result = run("evaluate", "--model", here / "run", "--data", out, "--json").out
    assert json.loads(result)["metrics"]["f1"] == 100
    sentences = read_annotations([out], columns={})
    assert [one.words for one in sentences] == [
        one.words for one in read_annotations([here / "train.conll"], columns={})
    ]


def test_predicted_rows(here, tmp_path):
    (tmp_path / "words.jsonl").write_text(json.dumps({"words": ["The", "dog", "River"]}) + "\n")
    out = tmp_path / "out.jsonl"
    run("predict", "--model", here / "run", "--data", tmp_path / "words.jsonl", "--out", out)
    assert json.loads(out.read_text())["text"] == "The dog River"
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "The dog-River"}) + "\n")
    run("predict", "--model", here / "run", "--data", tmp_path / "texts.jsonl", "--out", tmp_path / "a.conll")
    assert [one.words for one in read_annotations([tmp_path / "a.conll"], columns={})] == [["The", "dog", "-", "River"]]
    run("predict", "--model", here / "run", "--data", here / "train.conll", "--format", "conll", "--out", out)
    assert len(out.read_text().splitlines()) == 13


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "sea B-GPE\n", "a.conll:1: unknown type 'GPE'; the model knows LOC, PER; correct the tag"),
        ("a.conll", "", "a.conll: there are no sentences in the file"),
        ("a.csv", "sea,O\n", "a.csv: tagged words cannot be read from CSV"),
    ],
)
def test_mistakes(here, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    assert message in run("evaluate", "--model", here / "run", "--data", tmp_path / name, status=2).err
