"""Models by their names: what is downloaded, which revision, the cache without a connection, and uploads."""

import builtins
import json
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants as constants
import numpy as np
import pytest
import torch

import unmask
from unmask.cli.main import main
from unmask.families.checkpoints.hub import download, revision_of, upload
from unmask.families.checkpoints.safetensors_file import INDEX, PICKLED
from unmask.families.checkpoints.sentence_modules import SENTENCES, Pooling
from unmask.inference.load import load
from unmask.inference.static import write_static
from unmask.model.directory import find, read_settings
from unmask.model.model import load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.hub import parse
from unmask.workflows.pretraining.start import continued

from .conftest import assert_same_model, in_shards, model

NAME = "someone/small-bert"


@pytest.fixture
def published(hub, tokenizer, tmp_path):
    """A model on the server, with a file that unmask does not read."""
    torch.manual_seed(0)
    made = model(tokenizer)
    save_model(tmp_path / "made", made, "A card.")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    hub.repositories[NAME] = {**files, "flax_model.msgpack": b"x", PICKLED: b"pickled", "onnx/config.json": b"{}"}
    return made


def test_a_model_is_loaded_by_its_name_and_its_commit_is_known(hub, published):
    found = load_model(NAME)
    assert_same_model(found, published)
    commit = hub.commit(NAME)
    assert found.revision == f"{NAME}@{commit}"
    assert found.inputs("init") == {"init": published.fingerprint(), "init_revision": f"{NAME}@{commit}"}
    downloaded = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= downloaded
    assert not downloaded & {"flax_model.msgpack", PICKLED}
    assert read_settings(NAME) == published.encoder.settings


@pytest.mark.parametrize("folder", ["", "0_Transformer"])
def test_the_files_of_sentence_transformers_are_downloaded_and_uploaded(hub, published, folder, tmp_path):
    pooling = Pooling(kind="cls", normalize=False, length=17, prompt="query: ")
    save_model(tmp_path / "vectors", replace(published, pooling=pooling), "A card.")
    assert upload(tmp_path / "vectors", "someone/vectors").startswith("someone/vectors@")
    assert load_model("someone/vectors").pooling == pooling
    files = dict(hub.repositories["someone/vectors"])
    assert "1_Pooling/config.json" in files
    if folder:
        steps = json.loads(files["modules.json"])
        steps[0]["path"] = folder
        apart = {name for name in files if "/" not in name and name not in ("modules.json", SENTENCES, "README.md")}
        files = {f"{folder}/{name}" if name in apart else name: content for name, content in files.items()}
        hub.repositories["someone/apart"] = files | {"modules.json": json.dumps(steps).encode()}
        assert load_model("someone/apart").pooling == pooling


@pytest.mark.parametrize("name", ["onnx/model.onnx", "onnx/model_quantized.onnx", "model.xml"])
def test_the_program_of_an_exported_model_is_uploaded_and_downloaded(name, hub, published, tmp_path):
    """Programs that other repositories have beside their weights are not downloaded."""
    directory = tmp_path / "exported"
    save_model(directory, published, "A card.")
    (directory / "model.safetensors").unlink()
    (directory / name).parent.mkdir(exist_ok=True)
    for file in (name, "export.json", "check.safetensors"):
        (directory / file).write_bytes(file.encode())
    upload(directory, "someone/exported")
    folder = download("someone/exported")
    assert all((folder / file).read_bytes() == file.encode() for file in (name, "export.json", "check.safetensors"))
    hub.repositories[NAME][name] = b"a program"
    assert not (download(NAME) / name).exists()


@pytest.mark.parametrize("folder", ["", "0_StaticEmbedding"])
def test_a_static_encoder_is_loaded_by_its_name(hub, published, folder, tmp_path):
    write_static(published, tmp_path / "static")
    files = {path.relative_to(tmp_path / "static"): path for path in (tmp_path / "static").rglob("*") if path.is_file()}
    hub.repositories["someone/static"] = files = {name.as_posix(): path.read_bytes() for name, path in files.items()}
    if folder:
        steps = json.loads(files["modules.json"])
        steps[0]["path"] = folder
        files["modules.json"] = json.dumps(steps).encode()
        files |= {f"{folder}/{name}": files.pop(name) for name in ("tokenizer.json", "model.safetensors")}
        del files["checksums.json"]  # of the files where they were written
    expected = load(tmp_path / "static", device="cpu").embed(["a dog", "the sea"])
    np.testing.assert_array_equal(load("someone/static", device="cpu").embed(["a dog", "the sea"]), expected)


def test_a_revision_is_pinned_and_read_from_the_cache_without_a_connection(hub, published, monkeypatch):
    pinned = load_model(NAME).revision
    hub.repositories[NAME]["README.md"] = b"Another card."
    assert load_model(NAME).revision != pinned
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(hub.asked)
    assert load_model(pinned).revision == pinned
    assert load_model(f"{NAME}@main").revision != pinned
    assert len(hub.asked) == count
    with pytest.raises(UserError, match=r"no directory 'a/b', and no such model in the cache, while HF_HUB_OFFLINE"):
        load_model("a/b")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("someone/nothing", r"no directory 'someone/nothing', and no model of this name at http://127.* that you may"),
        ("someone/gated", r"access to someone/gated is restricted; accept its conditions at http.*/someone/gated, and"),
        (f"{NAME}@v9", f"{NAME} has no revision 'v9'"),
        ("small-bert", r"no directory 'small-bert'; a model on the Hugging Face Hub is written NAMESPACE/NAME"),
    ],
)
def test_what_the_hub_does_not_give_out_is_named(source, message, hub, published):
    hub.gated.add("someone/gated")
    with pytest.raises(UserError, match=message):
        load_model(source)


def test_a_path_is_never_looked_up(hub, published, tmp_path):
    (tmp_path / "runs").mkdir()
    for source in ("runs/no-such", "./someone/small-bert", "/someone/small-bert", "a/b/c", "../a", "a", Path(NAME)):
        assert parse(source) is None
        with pytest.raises(UserError, match="no directory"):
            find(source)
    (tmp_path / "someone").mkdir()
    save_model(tmp_path / NAME, published, "")
    assert find(NAME) == Path(NAME)
    assert load_model(NAME).revision == ""
    assert hub.asked == []


def test_pickled_weights_are_only_downloaded_if_allowed(hub, published, tmp_path):
    del hub.repositories[NAME]["model.safetensors"], hub.repositories[NAME]["checksums.json"]
    with pytest.raises(UserError, match=r"no model\.safetensors in this directory; allow_pickle=True also downloads"):
        load_model(NAME)
    assert not any(PICKLED in path for path in hub.asked)
    state = tmp_path / "state.bin"
    torch.save({"cls.x": torch.zeros(1)}, state)
    hub.repositories[NAME][PICKLED] = state.read_bytes()
    folder = download(NAME, allow_pickle=True)
    assert (folder / PICKLED).read_bytes() == state.read_bytes()
    assert revision_of(folder) == f"{NAME}@{hub.commit(NAME)}"


def test_a_missing_library_names_the_extra(hub, monkeypatch):
    usual = builtins.__import__

    def without(name, *more, **others):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return usual(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"no directory 'a/b': .* pip install 'unmask\[hub\]'"):
        load_model("a/b")


def test_a_run_records_the_commit(hub, published, corpus):
    start = continued(NAME, read_recipe("adapt", {"layout.length": 20}), corpus, layers=None, allow_pickle=False)
    assert start.inputs["init_revision"] == f"{NAME}@{hub.commit(NAME)}"


def test_a_model_is_uploaded_with_its_card_and_loaded_again(hub, published, tmp_path, capsys):
    (tmp_path / "made" / "notes.txt").write_text("private")
    assert main(["push", str(tmp_path / "made"), "someone/new", "--private"]) == 0
    assert hub.repositories["someone/new"].keys() == {path.name for path in (tmp_path / "made").iterdir()} - {
        "notes.txt"
    }
    assert hub.private == {"someone/new"}
    assert f"someone/new@{hub.commit('someone/new')}" in capsys.readouterr().err
    assert_same_model(load_model("someone/new"), published)


def test_what_the_hub_does_not_take_is_named(hub, published, tmp_path):
    for name in ("new", "a/b/c", "someone/new@main"):
        with pytest.raises(UserError, match="is not the name of a repository; write NAMESPACE/NAME"):
            upload(tmp_path / "made", name)
    hub.gated.add("someone/other")
    with pytest.raises(UserError, match=r"refuses someone/other .*; log in with a token"):
        upload(tmp_path / "made", "someone/other")


def test_the_shards_that_the_index_lists_are_downloaded_and_uploaded(hub, published, tmp_path):
    files = hub.repositories[NAME]
    del files["checksums.json"]
    in_shards(tmp_path / "made", files.pop("model.safetensors"))
    shards = {path.name: path.read_bytes() for path in (tmp_path / "made").glob("model-*")}
    files |= shards | {INDEX: (tmp_path / "made" / INDEX).read_bytes(), "model-00009-of-00009.safetensors": b"other"}
    assert_same_model(load_model(NAME), published)
    downloaded = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert shards.keys() <= downloaded and not downloaded & {"model-00009-of-00009.safetensors", PICKLED}
    (tmp_path / "made" / "model.safetensors").unlink(missing_ok=True)
    upload(tmp_path / "made", "someone/copy")
    assert shards.keys() <= hub.repositories["someone/copy"].keys()


def test_of_a_tokenizer_by_its_name_no_weights_are_downloaded(hub, published):
    tokenizer = unmask.load_tokenizer(NAME)
    assert tokenizer.sha256 == published.tokenizer.sha256
    downloaded = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert {"tokenizer.json", "config.json"} <= downloaded and "model.safetensors" not in downloaded
    (encoded,) = unmask.tokenize(["the dog"], tokenizer=NAME)
    assert encoded["ids"] == tokenizer.encode("the dog").tolist()
    assert load_model("random:bert-tiny", tokenizer=NAME).tokenizer.sha256 == tokenizer.sha256
