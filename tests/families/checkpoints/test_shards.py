"""Weights in several files: they load as from one, and each defect is an error that names the file."""

import json
import pickle

import pytest
import safetensors.torch
import torch

from unmask.families.checkpoints.safetensors_file import INDEX, read_index, read_shard_shapes, read_shard_tensors
from unmask.model.model import load_model, save_model
from unmask.support.errors import UserError

from .conftest import assert_same_model, in_shards, model

FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))


@pytest.fixture
def shards(tmp_path):
    """Two shards: a, c and b."""
    in_shards(tmp_path, safetensors.torch.save({name: torch.full((2,), ord(name)) * 1.0 for name in "abc"}), 2)
    return tmp_path


def read(directory):
    """Return all tensors of a directory."""
    files = read_index(directory / INDEX)
    return read_shard_tensors(files, read_shard_shapes(files))


def test_a_model_loads_from_shards_as_from_one_file(tokenizer, tmp_path):
    made = model(tokenizer)
    save_model(tmp_path, made, "A card.")
    (tmp_path / "checksums.json").unlink()
    in_shards(tmp_path, (tmp_path / "model.safetensors").read_bytes())
    (tmp_path / "model.safetensors").unlink()
    assert_same_model(load_model(tmp_path), made)


def test_transformers_writes_such_shards(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    theirs = transformers.BertModel(config)
    theirs.save_pretrained(tmp_path, max_shard_size="2KB")
    found = read(tmp_path)
    assert len(set(read_index(tmp_path / INDEX).values())) > 1
    for name, value in theirs.state_dict().items():
        assert torch.equal(found[name], value)


def test_only_the_tensors_that_are_asked_for_are_read(shards):
    files = read_index(shards / INDEX)
    assert read_shard_shapes(files) == {"a": (2,), "b": (2,), "c": (2,)}
    (found,) = read_shard_tensors(files, ["b"]).items()
    assert found[0] == "b" and found[1].tolist() == [98.0, 98.0]


def list_in(directory, **files):
    """Change the index: the file of each tensor; None removes it."""
    path = directory / INDEX
    index = json.loads(path.read_text())
    index["weight_map"] = {name: file for name, file in {**index["weight_map"], **files}.items() if file is not None}
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "file", "message"),
    [
        (lambda at: list_in(at, b="../other.safetensors"), INDEX, "is not the name of a safetensors file beside it"),
        (lambda at: list_in(at, b="/etc/passwd"), INDEX, "is not the name of a safetensors file beside it"),
        (lambda at: list_in(at, b="folder\\\\a.safetensors"), INDEX, "is not the name of a safetensors file beside it"),
        (lambda at: list_in(at, b="pytorch_model.bin"), INDEX, "is not the name of a safetensors file beside it"),
        (lambda at: list_in(at, b=3), INDEX, "is not the name of a safetensors file beside it"),
        (lambda at: (at / SECOND).unlink(), SECOND, "lists tensors in this file, but it is missing"),
        (lambda at: list_in(at, b=FIRST), FIRST, f"'b' is missing, which {INDEX} lists here"),
        (lambda at: list_in(at, a=SECOND), FIRST, f"a is here, but {INDEX} lists it in {SECOND}"),
        (lambda at: list_in(at, a=None), FIRST, f"a is here, but {INDEX} lists it nowhere"),
        (lambda at: list_in(at, d=SECOND), SECOND, f"'d' is missing, which {INDEX} lists here"),
        (
            lambda at: safetensors.torch.save_file({"a": torch.ones(2), "b": torch.ones(2)}, at / SECOND),
            SECOND,
            f"a is also in {FIRST}",
        ),
        (
            lambda at: (at / SECOND).write_bytes(pickle.dumps({"b": 1})),
            SECOND,
            "valid safetensors file|too large",
        ),
        (lambda at: (at / INDEX).write_text("[]"), INDEX, "there is no 'weight_map'"),
        (lambda at: (at / INDEX).write_text('{"weight_map": {}}'), INDEX, "there is no 'weight_map'"),
        (lambda at: (at / INDEX).write_text('{"weight_map": {"a": "x", "a": "y"}}'), INDEX, "duplicate key"),
        (lambda at: (at / INDEX).write_bytes(b"\xff"), INDEX, "not a valid index"),
        (lambda at: (at / INDEX).write_text("[" * 100_000), INDEX, "not a valid index"),
    ],
)
def test_a_defect_is_an_error_that_names_the_file(shards, change, file, message):
    change(shards)
    with pytest.raises(UserError, match=message) as caught:
        read(shards)
    assert str(caught.value).startswith(str(shards / file)), str(caught.value)
