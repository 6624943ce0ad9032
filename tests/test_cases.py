"""What people have reported, from the shared folder of cases: each ends in the right value, a note or a refusal.

Directories of models are in tests/families/checkpoints, annotations by offsets in tests/data/labelled/test_spans.py.
"""

import json
import re
import shutil

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import f1_score

import unmask
from unmask.cli.main import main
from unmask.support.errors import UserError


@pytest.fixture
def cases(shared):
    return shared / "cases"


@pytest.fixture
def run(capsys):
    """Run a command line; return its status and all that it printed."""

    def call(*words):
        status = main([str(word) for word in words])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return call


@pytest.fixture
def train(cases, run, tmp_path):
    """Fine-tune the tiny BERT for a step."""

    def call(task, *files, steps=1, out="out", **options):
        words = [f"--{name}={value}" for name, value in options.items()]
        small = ["--set", f"budget.steps={steps}", "--set", "batch.sequences=8"]
        model = ["--model", cases / "tiny_bert", "--out", tmp_path / out]
        return run("finetune", task, *model, "--train", *files, *words, *small)

    return call


def test_copies_stay_on_one_side(cases, train, tmp_path):
    status, printed = train("classification", cases / "duplicates_leak" / "dup.csv")
    assert status == 0 and "are also training examples" not in printed
    texts = pd.read_csv(cases / "duplicates_leak" / "dup.csv")["text"]
    assert texts.nunique() * 4 == len(texts)
    trained, held = map(int, re.search(r"(\d+) training examples, (\d+) evaluation", printed).groups())
    assert trained % 4 == held % 4 == 0 and trained + held == len(texts)


def test_dev_files_are_compared(cases, train):
    file = cases / "duplicates_leak" / "uniq.csv"
    status, printed = train("classification", file, dev=file)
    assert status == 0 and "150 of the 150 dev examples (100.0 %) are also training examples" in printed


def test_f1_names_its_label(cases, train, run, tmp_path):
    folder = cases / "f1_of_majority"
    train("classification", folder / "train_dn.csv", out="model")
    run("predict", "--model", tmp_path / "model", "--data", folder / "test_dn.csv", "--out", tmp_path / "p.jsonl")
    status, printed = run("evaluate", "--model", tmp_path / "model", "--data", folder / "test_dn.csv")
    predicted = [json.loads(line)["label"] for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    gold = pd.read_csv(folder / "test_dn.csv")["label"]
    expected = 100 * f1_score(gold, predicted, pos_label="defect", zero_division=0)
    assert status == 0 and "defect" in printed
    assert float(re.search(r"f1 of 'defect' +([\d.]+)", printed)[1]) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("task", "files", "status", "expected"),
    [
        ("classification", ["case.csv"], 0, "labels that look the same"),
        ("classification", ["zw.csv"], 0, "U+200B"),
        ("classification", ["int.csv", "float.csv"], 0, "labels that look the same"),
        ("classification", ["concat.csv"], 2, "the header of line 1 occurs again"),
        ("classification", ["nanstr.csv"], 2, "nanstr.csv:2"),
        ("multi-label", ["mnan.csv"], 2, "mnan.csv:2"),
        ("token-classification", ["mixcase.conll"], 0, "look the same"),
    ],
)
def test_labels_are_compared_as_people_see_them(cases, train, task, files, status, expected):
    found, printed = train(task, *(cases / "label_spellings" / name for name in files))
    assert (found, expected in printed) == (status, True), printed


def test_quotes_after_a_space_are_quotes(cases, train):
    status, printed = train("classification", cases / "label_spellings" / "space_quote.csv")
    assert status == 0 and "labels: bad, good" in printed


@pytest.mark.parametrize("name", ["mlist.csv", "mlist2.csv"])
def test_lists_in_cells_are_lists(cases, train, name):
    status, printed = train("multi-label", cases / "stringified_lists" / name)
    assert status == 0 and "[" not in re.search(r"labels: (.*)", printed)[1].split("\n")[0]


def test_documents_are_held_out_by_their_sentences(cases, train):
    status, printed = train("token-classification", cases / "docstart_split" / "six_4.conll")
    trained, held = map(int, re.search(r"([\d,]+) training examples, ([\d,]+) evaluation", printed).groups())
    assert status == 0 and trained > held
    status, printed = train("token-classification", cases / "docstart_split" / "one.conll", out="other")
    trained, held = map(int, re.search(r"(\d+) training examples, (\d+) evaluation", printed).groups())
    assert status == 0 and (trained, held) == (54, 6)


def test_lines_that_are_one_document_are_noticed(cases, run, tmp_path):
    file = cases / "lines_one_document" / "tweets.txt"
    small = ["--set", "layout.length=64", "--set", "budget.steps=1"]
    where = ["--init", cases / "tiny_bert", "--text", file, "--out", tmp_path / "out"]
    status, printed = run("pretrain", "adapt", *where, *small)
    assert status == 0 and "--documents line" in printed


def test_predictions_are_a_table_with_all_columns(cases, train, run, tmp_path):
    train("classification", cases / "f1_of_majority" / "train_dn.csv", out="model")
    given = cases / "out_csv_is_jsonl" / "mid.csv"
    status, _ = run("predict", "--model", tmp_path / "model", "--data", given, "--out", tmp_path / "p.csv")
    expected, found = pd.read_csv(given), pd.read_csv(tmp_path / "p.csv")
    assert status == 0 and found[list(expected)].equals(expected)
    assert set(found["predicted"]) <= {"defect", "normal"}


@pytest.mark.parametrize("changes", [{"problem_type": "regression"}])
def test_regression_with_several_outputs_is_refused(cases, run, tmp_path, changes):
    model = tmp_path / "model"
    shutil.copytree(cases / "tiny_bert", model, copy_function=shutil.copyfile)
    config = json.loads((model / "config.json").read_text())
    names = {str(number): f"LABEL_{number}" for number in range(3)}
    config |= changes | {"architectures": ["BertForSequenceClassification"], "id2label": names}
    config["label2id"] = {name: int(number) for number, name in names.items()}
    (model / "config.json").write_text(json.dumps(config))
    head = {"classifier.weight": torch.ones(3, config["hidden_size"]), "classifier.bias": torch.zeros(3)}
    save_file(load_file(model / "model.safetensors") | head, model / "model.safetensors", {"format": "pt"})
    status, printed = run("predict", "--model", model, "Hello world")
    assert status == 2 and "regression" in printed


def test_missing_labels_in_memory_are_refused_with_their_row(cases):
    texts = [f"thing {number}" for number in range(40)]
    few = {"budget.steps": 2, "batch.sequences": 8}
    frame = pd.DataFrame({"text": texts, "label": pd.array([number % 2 for number in range(40)], dtype="Int64")})
    frame.loc[3, "label"] = pd.NA
    with pytest.raises(UserError, match="<DataFrame>:4: 'label' is missing"):
        unmask.finetune("classification", cases / "tiny_bert", frame, "unused", settings=few)
    labels = [float("nan") if number == 3 else float(number % 2) for number in range(40)]
    with pytest.raises(UserError, match="<fit>:4: the label is missing"):
        unmask.TextClassifier(cases / "tiny_bert", settings=few).fit(texts, labels)


def test_labels_with_a_blank_come_back_with_it(cases):
    texts = [f"thing {number}" for number in range(40)]
    model = unmask.TextClassifier(cases / "tiny_bert", settings={"budget.steps": 2, "batch.sequences": 8})
    predicted = model.fit(texts, [["pos ", "neg"][number % 2] for number in range(40)]).predict(texts[:2])
    assert set(predicted.tolist()) <= {"pos ", "neg"}
