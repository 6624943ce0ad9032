"""`unmask export` as a user types it."""

import json

import pytest
import torch

from unmask.data.tokenizers.word_level import train_words
from unmask.families.checkpoints import allennlp
from unmask.families.elmo import ElmoSettings
from unmask.inference.exported import ExportManifest
from unmask.inference.program import ProgramSignature
from unmask.model.model import Model, load_model, save_model
from unmask.support.errors import UserError
from unmask.workflows.formats import export

from .conftest import run


@pytest.fixture
def elmo(tmp_path):
    """A directory with a small ELMo and a head."""
    pytest.importorskip("h5py", reason="the extra elmo is not installed")
    tokenizer = train_words(["the cat sat on the mat"], size=20)
    body = ElmoSettings(layers=1, width=8, cells=4, filters=((2, 4),)).build(tokenizer.size)
    heads = {"bidirectional_lm": {"decoder": torch.ones(9, 4), "bias": torch.zeros(9)}}
    save_model(tmp_path / "model", Model(body, tokenizer, heads), "card")
    return tmp_path / "model"


@pytest.mark.parametrize(("name", "value"), [("precision", "float16"), ("target", "avx2")])
def test_unknown_choices_are_refused_before_the_work(name, value, tmp_path):
    with pytest.raises(UserError, match=f"{value}.*unknown; choose one of"):
        export(tmp_path / "none", tmp_path / "out", "onnx", **{name: value})
    assert not (tmp_path / "out").exists()


def test_allennlps_files(elmo, tmp_path):
    output = run("export", "--format", "allennlp", "--model", elmo, "--out", tmp_path / "out")
    assert output.out == ""
    assert output.err.splitlines() == [
        "not in this format, and left out: bidirectional_lm",
        f"allennlp: {tmp_path / 'out'}",
    ]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("options.json", "weights.hdf5", "vocab.txt", "checksums.json")
    }
    assert json.loads((tmp_path / "out/options.json").read_text())["lstm"]["projection_dim"] == 4
    given, again = load_model(elmo), load_model(tmp_path / "out")
    assert given.encoder.settings == again.encoder.settings and not again.heads
    for name, value in given.encoder.state_dict().items():
        torch.testing.assert_close(again.encoder.state_dict()[name], value)
    assert (
        "the directory is not empty"
        in run("export", "--format", "allennlp", "--model", elmo, "--out", tmp_path / "out", status=2).err
    )


def test_C13_a_link_at_the_place_of_a_file_is_not_followed(elmo, tmp_path):
    (tmp_path / "secret").write_text("mine")
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "out"
    out.mkdir()
    (out / "weights.hdf5").symlink_to(tmp_path / "secret")
    run("export", "--format", "allennlp", "--model", elmo, "--out", out, status=2)
    allennlp.write(out, load_model(elmo).encoder, ["../secret"])  # whatever the words are
    assert (tmp_path / "secret").read_text() == "mine"
    assert not (out / "weights.hdf5").is_symlink()
    written = {out, *(out / name for name in ("options.json", "weights.hdf5", "vocab.txt"))}
    assert set(tmp_path.rglob("*")) == before | written


def test_another_family_is_refused(small, tmp_path):
    output = run("export", "--format", "allennlp", "--model", small / "model", "--out", tmp_path / "out", status=2)
    assert output.err == "unmask: only an ELMo can be written as AllenNLP's files; use its own directory\n"


@pytest.mark.parametrize("option", [("--columns", "text=a"), ("--encoding", "latin-1")])
def test_options_of_data_are_refused_without_it(small, tmp_path, option):
    words = ("--format", "huggingface", "--model", small / "model", "--out", tmp_path / "out")
    output = run("export", *words, *option, status=2)
    assert f"{option[0]} has no effect without --data" in output.err
    assert not (tmp_path / "out").exists()


def test_a_directory_for_transformers(small, tmp_path):
    run("export", "--format", "huggingface", "--model", small / "model", "--out", tmp_path / "out")
    assert load_model(tmp_path / "out").fingerprint() == load_model(small / "model").fingerprint()


def test_a_program_predicts_and_is_evaluated_like_the_model(line, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    model, out, data = line / "tuned", tmp_path / "out", line / "train.tsv"
    given = ("export", "--format", "onnx", "--precision", "int8", "--model", model)
    output = run(*given, "--data", data, "--out", out)
    assert "exported minus original: " in output.out and "30 examples" in output.out
    assert output.err.startswith("largest difference from the original: ")
    one, two = (json.loads(run("predict", "--model", it, "the dog near the sea", "--json").out) for it in (model, out))
    assert one["scores"] == pytest.approx(two["scores"], abs=0.05)
    assert "accuracy" in run("evaluate", "--model", out, "--data", data, "--against", model, "--quiet").out


def test_int8_that_loses_is_removed(line, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    difference = {"accuracy": {"difference": -3.0, "interval": (-5.0, -1.0), "p": 0.001}}
    result = {"examples": 30, "against": {"differences": difference}}
    monkeypatch.setattr("unmask.workflows.formats.evaluate_task", lambda *given, **named: result)
    monkeypatch.setattr("unmask.workflows.formats.load", lambda out: None)

    def write(model, wanted, out, samples):
        return ExportManifest("onnx", "int8", ProgramSignature("classification", "summary"), 9)

    monkeypatch.setattr("unmask.workflows.formats.export_model", write)
    given = ("export", "--format", "onnx", "--precision", "int8", "--model", line / "tuned")
    output = run(*given, "--data", line / "train.tsv", "--out", tmp_path / "out", status=2)
    assert "int8 loses 3 of accuracy on these examples (p = 0.001): nothing was written" in output.err
    assert not (tmp_path / "out").exists()


def test_an_elmo_is_no_program(elmo, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    output = run("export", "--format", "onnx", "--model", elmo, "--out", tmp_path / "out", status=2)
    assert "a recurrent model such as ELMo cannot be exported" in output.err


def test_a_model_that_was_not_fine_tuned_is_calibrated_by_texts(small, tmp_path, monkeypatch):
    """Without examples of a task nothing tells what int8 costs, but texts tell the scales."""
    calls, texts = [], tmp_path / "texts.txt"
    texts.write_text("the dog\na cat near the sea\n")

    def write(model, wanted, out, samples):
        calls.append([model.tokenizer.decode(sample.ids[1:-1]) for sample in samples])
        return ExportManifest("openvino", "int8", ProgramSignature("features", ""), 9)

    monkeypatch.setattr("unmask.workflows.formats.export_model", write)
    given = ("export", "--model", small / "model", "--data", texts, "--precision", "int8", "--format")
    run(*given, "openvino", "--out", tmp_path / "out")
    assert calls == [["the dog", "a cat near the sea"]]
    output = run(*given, "onnx", "--out", tmp_path / "other", status=2)
    assert "this model was not fine-tuned, so that no metric tells what was lost" in output.err
