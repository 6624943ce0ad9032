"""`unmask features` and `unmask finetune --frozen` as a user types them, and the mistakes made with them."""

import io
import json
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import unmask
from unmask.cli.main import main
from unmask.families.bert import BertSettings
from unmask.model import Model, load_model, save_model

SHAPE = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=16, init_std=0.2)


@pytest.fixture(scope="module")
def here(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("here")
    torch.manual_seed(0)
    save_model(path / "model", Model(SHAPE.build(tokenizer.size), tokenizer), "card")
    (path / "texts.txt").write_text("the dog\n\nthe cat near the sea\n" + "the garden " * 20 + "\n")
    (path / "pairs.tsv").write_text("sentence1\tsentence2\nthe dog\tthe cat\n")
    lines = [f"{word} near the sea\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for _ in range(15)]
    (path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]))
    return path


def test_layers_of_texts(here, tmp_path, capsys):
    for name, layers in (("a", ["--layers", "0", "-1"]), ("b", ["--layers=0,-1"])):
        given = ["--model", here / "model", "--data", here / "texts.txt", "--out", tmp_path / name]
        assert main(["features", *map(str, given), *layers]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"tokens of 3 texts: {tmp_path / 'a'}/features.safetensors" in said.err
    assert "1 of them are longer than the 16 tokens of the model and were cut" in said.err
    found, again = (load_file(tmp_path / name / "features.safetensors") for name in ("a", "b"))
    texts = ["the dog", "the cat near the sea", "the garden " * 20]
    expected = unmask.load(here / "model", device="cpu").features(texts, [0, -1])
    for name, value in found.items():
        assert torch.equal(value, getattr(expected, name)) and torch.equal(value, again[name])


def test_layers_of_random_weights_and_of_a_stream(tokenizer_directory, tmp_path, monkeypatch, capsys):
    given = ["features", "--model", "random:bert-tiny", "--data", "-", "--layers", "-1", "--out"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n\nthe cat\n")))
    more = ["--tokenizer", str(tokenizer_directory), "--format", "txt"]
    assert main([*given, str(tmp_path / "a"), *more]) == 0
    said = capsys.readouterr().err
    assert "tokens of 2 texts" in said and "left out: 1 empty lines" in said
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n")))
    assert main([*given, str(tmp_path / "b"), "--format", "txt"]) == 2
    assert "needs a vocabulary; pass --tokenizer DIR" in capsys.readouterr().err


def test_layers_in_bf16_name_the_model_as_it_was_loaded(here, tmp_path):
    for precision in ("float32", "bf16"):
        given = ["--model", here / "model", "--data", here / "texts.txt", "--out", tmp_path / precision]
        assert main(["features", *map(str, given), "--layers", "-1", "--precision", precision, "--quiet"]) == 0
    about, values = {}, {}
    for precision in ("float32", "bf16"):
        with safe_open(tmp_path / precision / "features.safetensors", framework="pt") as file:
            about[precision], values[precision] = file.metadata(), file.get_tensor("values")
    assert (about["float32"]["precision"], about["bf16"]["precision"]) == ("float32", "bf16")
    assert about["bf16"]["model"] == about["float32"]["model"] == load_model(here / "model").fingerprint()
    assert not torch.equal(values["bf16"], values["float32"])
    torch.testing.assert_close(values["bf16"], values["float32"], rtol=0.05, atol=0.05)


def test_layers_of_pairs(here, tmp_path):
    given = ["--model", here / "model", "--data", here / "pairs.tsv", "--layers", "-1", "--out", tmp_path / "out"]
    assert main(["features", *map(str, given), "--quiet"]) == 0
    assert load_file(tmp_path / "out/features.safetensors")["word_ids"].tolist() == [-1, 0, 1, -1, 0, 1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "3"], "there is no layer 3; this model has 0 (the embeddings) to 2, or -1 to -2"),
        (["--layers", "last"], "--layers last: not numbers; for example --layers=-4,-3,-2,-1"),
        (["--layers", "1", "1"], "layer 1 is given twice"),
        (["--layers", ","], "no layer is given"),
        (["--layers", "0", "--columns", "text=1"], "--columns has no effect on a text file"),
    ],
)
def test_mistakes_get_one_line(here, tmp_path, capsys, options, message):
    given = ["--model", here / "model", "--data", here / "texts.txt", "--out", tmp_path / "out"]
    assert main(["features", *map(str, given), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_overwritten(here, capsys):
    given = ["--model", here / "model", "--data", here / "texts.txt", "--layers", "0", "--out", here]
    assert main(["features", *map(str, given)]) == 2
    assert "the directory is not empty; choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["", "linear", "average", "rnn"])
def test_frozen_from_the_command_to_an_answer(here, tmp_path, capsys, kind):
    given = ["--model", here / "model", "--train", here / "train.tsv", "--out", tmp_path / "run", "--device", "cpu"]
    chosen = ["--frozen", *(["--downstream", kind] if kind else []), "--set", "budget.steps=3"]
    assert main(["finetune", "classification", *map(str, given), *chosen, "--set", "task.length=16"]) == 0
    assert "samples: " in capsys.readouterr().err
    recipe = (tmp_path / "run/recipe.toml").read_text()
    assert "frozen = true" in recipe and f'kind = "{kind or "linear"}"' in recipe
    assert "Trained on frozen features" in (tmp_path / "run/model/README.md").read_text()
    assert main(["evaluate", "--model", str(tmp_path / "run"), "--data", str(here / "train.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 30
    assert main(["predict", "--model", str(tmp_path / "run"), "dog near the sea", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("yes", "no")
