"""`unmask export` as a user types it."""

import json

import pytest
import torch

from unmask.checkpoints import allennlp
from unmask.families.elmo import ElmoSettings
from unmask.model import Model, load_model, save_model
from unmask.tokenizers.word_level import train_words

from .conftest import run

pytest.importorskip("h5py")


@pytest.fixture
def elmo(tmp_path):
    """A directory with a small ELMo and a head."""
    tokenizer = train_words(["the cat sat on the mat"], size=20)
    body = ElmoSettings(layers=1, width=8, cells=4, filters=((2, 4),)).build(tokenizer.size)
    heads = {"bidirectional_lm": {"decoder": torch.ones(9, 4), "bias": torch.zeros(9)}}
    save_model(tmp_path / "model", Model(body, tokenizer, heads), "card")
    return tmp_path / "model"


def test_allennlps_files(elmo, tmp_path):
    output = run("export", "--format", "allennlp", "--model", elmo, "--out", tmp_path / "out")
    assert output.out == ""
    assert output.err.splitlines() == [
        "not in this format, and left out: bidirectional_lm",
        f"AllenNLP's files: {tmp_path / 'out'}",
    ]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"options.json", "weights.hdf5", "vocab.txt"}
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
