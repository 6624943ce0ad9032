"""The directory of a model is found in a run and by itself; what is no model is refused, with what to do."""

import json
import shutil

import pytest

from unmask.families.bert import BertSettings
from unmask.inference.load import load
from unmask.model.directory import find, find_tokenizer, read_settings
from unmask.model.model import Model, save_model
from unmask.support.beside import OTHER_WEIGHTS
from unmask.support.errors import UserError

SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=16)


@pytest.fixture
def saved(tokenizer, tmp_path):
    save_model(tmp_path / "saved", Model(SHAPE.build(tokenizer.size), tokenizer), "card")
    return tmp_path / "saved"


def test_a_model_is_found_in_a_run_and_in_its_own_directory(saved, tmp_path):
    assert find(saved) == saved
    assert read_settings(saved) == SHAPE
    saved.rename(tmp_path / "model")
    assert find(tmp_path) == tmp_path / "model" == find_tokenizer(tmp_path)
    assert find_tokenizer(tmp_path / "model") == tmp_path / "model"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("checkpoints", "this run is not finished; continue: repeat the command with resume=True"),
        ("seed-0", "these runs are not finished; continue: repeat the command with resume=True"),
        ("other", "neither a run with a finished model nor a directory of"),
    ],
)
def test_a_directory_without_a_model_is_refused(tmp_path, folder, message):
    (tmp_path / folder).mkdir()
    with pytest.raises(UserError, match=message):
        find(tmp_path)


def test_a_static_encoder_is_told_as_one(tmp_path):
    step = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
    (tmp_path / "modules.json").write_text(json.dumps([step]))
    with pytest.raises(UserError, match="a static encoder has vectors of tokens alone, and no layers; name the model"):
        find(tmp_path)


def test_the_checkpoints_of_a_trainer_are_named(saved, tmp_path):
    for step in (500, 1000):
        shutil.copytree(saved, tmp_path / f"trained/checkpoint-{step}")
    with pytest.raises(UserError, match=r"checkpoints of transformers' Trainer; name one of them, .*/checkpoint-1000$"):
        load(tmp_path / "trained")
    for name in ("tokenizer.json", "vocab.txt", "checksums.json"):
        (tmp_path / "trained/checkpoint-500" / name).unlink()
    with pytest.raises(UserError, match="copy the files of the tokenizer into it"):
        load(tmp_path / "trained/checkpoint-500")


@pytest.mark.parametrize("pattern", OTHER_WEIGHTS)
def test_weights_that_are_not_read_are_named(pattern, saved):
    """Those of TensorFlow and Flax, pickled shards, those of DeepSpeed and FSDP, adapters, and exported ones."""
    (saved / "model.safetensors").unlink()
    (saved / "checksums.json").unlink()
    with pytest.raises(UserError, match=r"no model\.safetensors in this directory; copy the weights"):
        load(saved)
    name = pattern.replace("**/", "onnx/").replace("*", "1")
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).write_bytes(b"")
    with pytest.raises(UserError) as error:
        load(saved)
    assert str(error.value).endswith(f"and {name} is not read; {OTHER_WEIGHTS[pattern]}")


def test_an_adapter_without_its_model_is_refused_by_name(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "bert-base-uncased"}')
    with pytest.raises(UserError, match=r"adapter_config\.json: adapters are not implemented.*merge_and_unload"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("bert-mini", "'bert-mini' is a recipe; for untrained weights, write random:bert-mini"),
        (
            "someone/no-model",
            r"no directory 'someone/no-model', .* HF_HUB_OFFLINE is set; .* hf download someone/no-model",
        ),
        ("/no/model", "no directory '/no/model'; check the path"),
        ("a text in place of a model " * 10, "is a text, where a model is expected; name a run"),
        (None, "a NoneType is given, where a model is expected; name a run"),
        (["my-model"], "a list is given, where a model is expected; name a run"),
        ("./no-model", "no directory './no-model'; a model on the Hugging Face Hub is written NAMESPACE/NAME"),
    ],
)
def test_sources_that_are_not_models_are_refused(source, message):
    with pytest.raises(UserError, match=message):
        find(source)
    with pytest.raises(UserError, match=message):
        load(source)
