"""`unmask features` as a user types it, and user errors."""

import io
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import unmask
from unmask.cli.main import main
from unmask.model.model import load_model


def test_layers_of_texts(small, tmp_path, capsys):
    for name, layers in (("a", ["--layers", "0", "-1"]), ("b", ["--layers=0,-1"])):
        given = ["--model", small / "model", "--data", small / "texts.txt", "--out", tmp_path / name]
        assert main(["features", *map(str, given), *layers]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert f"tokens of 3 texts: {tmp_path / 'a'}/features.safetensors" in output.err
    assert "1 of 3 texts is longer than 16 tokens" in output.err
    found, again = (load_file(tmp_path / name / "features.safetensors") for name in ("a", "b"))
    texts = ["the dog", "the cat near the sea", "the garden " * 20]
    expected = unmask.load(small / "model", device="cpu").features(texts, [0, -1])
    for name, value in found.items():
        assert torch.equal(value, getattr(expected, name)) and torch.equal(value, again[name])


def test_layers_of_random_weights_and_of_a_stream(tokenizer_directory, tmp_path, monkeypatch, capsys):
    given = ["features", "--model", "random:bert-tiny", "--data", "-", "--layers", "-1", "--out"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n\nthe cat\n")))
    more = ["--tokenizer", str(tokenizer_directory), "--format", "txt"]
    assert main([*given, str(tmp_path / "a"), *more]) == 0
    errors = capsys.readouterr().err
    assert "tokens of 2 texts" in errors and "omitted: 1 empty line" in errors
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n")))
    assert main([*given, str(tmp_path / "b"), "--format", "txt"]) == 2
    assert "needs a vocabulary; pass --tokenizer DIR" in capsys.readouterr().err


@pytest.mark.bf16
def test_features_in_bf16_name_the_model_as_it_was_loaded(small, tmp_path):
    for precision in ("float32", "bf16"):
        given = ["--model", small / "model", "--data", small / "texts.txt", "--out", tmp_path / precision]
        assert main(["features", *map(str, given), "--layers", "-1", "--precision", precision, "--quiet"]) == 0
    about, values = {}, {}
    for precision in ("float32", "bf16"):
        with safe_open(tmp_path / precision / "features.safetensors", framework="pt") as file:
            about[precision], values[precision] = file.metadata(), file.get_tensor("values")
    assert (about["float32"]["precision"], about["bf16"]["precision"]) == ("float32", "bf16")
    assert about["bf16"]["model"] == about["float32"]["model"] == load_model(small / "model").fingerprint()
    assert not torch.equal(values["bf16"], values["float32"])
    torch.testing.assert_close(values["bf16"], values["float32"], rtol=0.05, atol=0.05)


def test_layers_of_pairs(small, tmp_path):
    given = ["--model", small / "model", "--data", small / "pairs.tsv", "--layers", "-1", "--out", tmp_path / "out"]
    assert main(["features", *map(str, given), "--quiet"]) == 0
    assert load_file(tmp_path / "out/features.safetensors")["word_ids"].tolist() == [-1, 0, 1, -1, 0, 1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "3"], "there is no layer 3; this model has 0 (the embeddings) to 2, or -1 to -2"),
        (["--layers", "last"], "--layers last: not numbers; pass for example --layers=-4,-3,-2,-1"),
        (["--layers", "1", "1"], "layer 1 is given twice"),
        (["--layers", ","], "no layer is given"),
        (["--layers", "0", "--columns", "text=1"], "--columns has no effect on a text file"),
    ],
)
def test_mistakes_get_one_line(small, tmp_path, capsys, options, message):
    given = ["--model", small / "model", "--data", small / "texts.txt", "--out", tmp_path / "out"]
    assert main(["features", *map(str, given), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


def test_a_directory_that_is_not_empty_is_not_overwritten(small, capsys):
    given = ["--model", small / "model", "--data", small / "texts.txt", "--layers", "0", "--out", small]
    assert main(["features", *map(str, given)]) == 2
    assert "the directory is not empty; choose another --out" in capsys.readouterr().err
