"""`unmask embed` as a user types it, and user errors."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import unmask
from unmask.inference import calls
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.model.model import load_model, save_model

from .conftest import run


@pytest.fixture
def vectors(small):
    with pytest.warns(unmask.InputWarning, match="1 of 3 texts is longer than 16 tokens"):
        return unmask.load(small / "model", device="cpu").embed(["the dog", "the cat near the sea", "the garden " * 20])


def test_vectors_of_a_file(small, vectors, tmp_path):
    given = ("embed", "--model", small / "model", "--data", small / "texts.txt", "--out")
    printed = run(*given, tmp_path / "a.npy").err
    assert f"3 vectors of {vectors.shape[1]} numbers: {tmp_path / 'a.npy'}" in printed
    assert "1 of 3 texts is longer than 16 tokens and was cut" in printed
    assert np.allclose(np.load(tmp_path / "a.npy"), vectors, atol=1e-6)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    run(*given, tmp_path / "b.safetensors", "--no-normalize", "--pooling", "cls")
    assert not np.allclose(np.linalg.norm(load_file(tmp_path / "b.safetensors")["vectors"], axis=1), 1, atol=1e-2)
    assert "the file exists" in run(*given, tmp_path / "a.npy", status=2).err


def test_pairs_are_refused(small, tmp_path):
    (tmp_path / "pairs.tsv").write_text("text\ttext_b\nthe dog\tthe cat\n")
    given = ("embed", "--model", small / "model", "--data", tmp_path / "pairs.tsv", "--out", tmp_path / "a.npy")
    assert "vectors are of single texts, but these are pairs" in run(*given, status=2).err
    assert run(*given, "--columns", "text=text_b").err.startswith("1 vector of")


@pytest.mark.filterwarnings("default::unmask.InputWarning")
def test_tokens_without_weights_are_named(small, tmp_path, monkeypatch):
    """They are newly initialized; all other files of a model load without a warning."""
    folder = tmp_path / "model"
    model = load_model(small / "model")
    save_model(folder, model, "")
    model.tokenizer.with_tokens(["[NEW]"]).save(folder)
    (folder / "checksums.json").unlink()
    monkeypatch.setattr(
        calls, "measure_engines", lambda *_, **__: Bench([EngineMeasurement("torch", "float32", 1, 1, 1, 0)], 0, [])
    )
    given = ("embed", "--data", small / "texts.txt", "--model")
    commands = (
        (*given, folder, "--out", tmp_path / "a.npy"),
        ("bench", folder, "--json"),
        ("export", "--model", folder, "--format", "huggingface", "--out", tmp_path / "exported"),
    )
    for command in commands:
        printed = run(*command).err  # in one line, without the place in the code
        assert f"unmask: warning: {folder}: 1 special tokens have no trained weights" in printed
    assert "warning" not in run(*given, small / "model", "--out", tmp_path / "b.npy").err
