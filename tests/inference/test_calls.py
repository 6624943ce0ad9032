"""Predictions and features by the directory of a model, for files and examples in memory."""

from functools import partial

import msgspec
import pandas
import pytest
from safetensors.numpy import load_file

from unmask.inference.calls import predict
from unmask.inference.embed import embed, write_features
from unmask.inference.predictor import Predictor
from unmask.model.model import save_model
from unmask.support.errors import UserError
from unmask.support.messages import in_command

from .conftest import CPU, TEXTS


@pytest.fixture
def saved(make, tmp_path):
    save_model(tmp_path / "model", make(), "")
    return tmp_path / "model"


def test_predictions_of_a_table_equal_those_of_its_texts(saved, make, tmp_path, capsys):
    frame, out = pandas.DataFrame({"body": TEXTS}), tmp_path / "out.jsonl"
    found = predict(saved, frame, columns={"text": "body"}, out=out, device="cpu", precision="float32", quiet=True)
    predictor = Predictor(make(), CPU)
    expected = predictor.predict(TEXTS)
    assert [one.text for one in found] == TEXTS
    assert [one.scores["yes"] for one in found] == pytest.approx([one.scores["yes"] for one in expected], abs=1e-6)
    assert [msgspec.json.decode(line)["label"] for line in out.read_text().splitlines()] == [one.label for one in found]
    assert predictor.predict(frame.rename(columns={"body": "text"})) == expected
    assert predictor.predict(pandas.Series(TEXTS)) == expected


@pytest.mark.parametrize("part", ["a.xlsx#Two", "data#test"])
def test_a_part_of_a_file_or_of_a_directory_is_predicted(saved, tmp_path, part):
    (tmp_path / "data").mkdir()
    frame, source = pandas.DataFrame({"text": TEXTS}), tmp_path / part
    frame.to_csv(tmp_path / "data" / "test.csv", index=False)
    with pandas.ExcelWriter(tmp_path / "a.xlsx") as file:
        frame[:1].to_excel(file, sheet_name="One", index=False)
        frame.to_excel(file, sheet_name="Two", index=False)
    options = {"device": "cpu", "precision": "float32", "quiet": True}
    predictions = predict(saved, str(source), out=tmp_path / "out.csv", **options)
    assert pandas.read_csv(tmp_path / "out.csv")["text"].to_list() == TEXTS
    assert predictions == []  # they are in the file
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.xlsx")
    with pytest.raises(UserError, match="out is the same file as data"):
        predict(saved, f"{tmp_path}/a.xlsx#Two", out=tmp_path / "link.csv", **options)


def test_a_path_is_a_file_and_a_string_is_a_text(make, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the dog\n\nthe cat\n")
    predictor = Predictor(make(), CPU)
    assert [one.text for one in predictor.predict(path)] == ["the dog", "the cat"]
    assert [one.text for one in predictor.predict("a.txt")] == ["a.txt"]
    notes = []
    assert len(predictor.read([path, path], notes=notes)) == 4
    assert notes == [f"{path}: omitted: 1 empty line"] * 2


def test_features_of_a_table_are_written(saved, tmp_path):
    out = write_features(
        saved, {"text": TEXTS}, [-1], tmp_path / "features", device="cpu", precision="float32", quiet=True
    )
    assert out == tmp_path / "features" / "features.safetensors"
    assert len(load_file(out)["offsets"]) == len(TEXTS) + 1
    with pytest.raises(UserError, match="the directory is not empty"):
        write_features(saved, {"text": TEXTS}, [-1], tmp_path / "features", device="cpu", precision="float32")


def test_a_string_is_one_text_and_not_its_characters(saved):
    (prediction,) = predict(saved, texts="the dog", device="cpu", precision="float32", quiet=True)
    assert prediction.text == "the dog"


@pytest.mark.parametrize(
    ("call", "python", "command"),
    [
        (lambda model: predict(model), "of: texts, question with passage, data=FILE", "of: TEXT, --question with"),
        (lambda model: predict(model, texts=["a"], precision="half"), 'precision="half": unknown', "--precision half"),
        (lambda model: predict(model, "a.txt", out="."), "out is a directory", "--out is a directory"),
        (lambda model: predict(model, ["A text."]), "does not exist; if it is a text, pass it as texts", "as TEXT"),
        (lambda model: embed(model, {"text": ["a"]}, out=None, pooling="best"), 'pooling="best"', "--pooling best"),
        (lambda model: embed(model, [], out=None), "data has no texts", "--data has no texts"),
        (lambda model: write_features(model, [], [-1], "new"), "data has no texts", "--data has no texts"),
        (lambda model: write_features(model, {"text": ["a"]}, -1, "new"), "layers=-1: not a list", "--layers -1"),
        (lambda model: write_features(model, {"text": ["a"]}, ["x"], "new"), 'layers=["x"]: not a list', "--layers x"),
    ],
)
def test_messages_name_parameters_as_the_front_writes_them(saved, call, python, command):
    with pytest.raises(UserError) as caught:
        call(saved)
    front = partial(in_command, words={"texts": "TEXT"})
    assert python in str(caught.value) and command in caught.value.text(front)
