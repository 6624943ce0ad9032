"""Hugging Face directories of BERT: writing, reading, and errors for bad ones (C1, C2, C6, C7, C11, C14, C16)."""

import filecmp
import json
import pickle
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import BertConfig, BertForPreTraining, BertForQuestionAnswering

from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.model.model import load_model, save_model
from unmask.nn.layers.block import ACTIVATIONS
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.workflows.pretraining.start import build_learner

from .conftest import (
    DECODER,
    SMALL,
    WORDS,
    assert_load_refused,
    assert_same_model,
    configure,
    model,
    put,
    weights,
)

# writing


@pytest.mark.parametrize(
    ("heads", "labels", "architecture"),
    [
        (("masked_lm", "next_sentence"), (), "BertForPreTraining"),
        (("masked_lm",), (), "BertForMaskedLM"),
        ((), (), "BertModel"),
        ((), ("a", "b", "c"), "BertForSequenceClassification"),
        (("next_sentence",), ("a", "b"), "BertModel"),
    ],
)
def test_round_trip_is_exact(tokenizer, tmp_path, heads, labels, architecture):
    made = model(tokenizer, heads=heads, labels=labels)
    save_model(tmp_path, made, "card")
    found = load_model(tmp_path)
    assert_same_model(found, made)
    assert (found.encoder.settings, found.encoder.vocabulary) == (SMALL, tokenizer.size)
    assert found.tokenizer.sha256 == tokenizer.sha256
    assert found.created == ()
    assert found.fingerprint() == made.fingerprint()
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    assert (tmp_path / "README.md").read_text() == "card"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_settings_are_read_as_they_were_written(tokenizer, tmp_path, activation):
    settings = BertSettings(
        layers=1, width=8, heads=4, feed_forward=6, positions=9, segments=3, dropout=0.25, activation=activation,
        epsilon=1e-5, init_std=0.1,
    )  # fmt: skip
    save_model(tmp_path, model(tokenizer, settings), "card")
    assert load_model(tmp_path).encoder.settings == settings
    theirs = BertConfig.from_pretrained(tmp_path)
    assert (theirs.type_vocab_size, theirs.hidden_dropout_prob, theirs.layer_norm_eps) == (3, 0.25, 1e-5)
    assert load_model(tmp_path, dropout=0.0).encoder.settings.dropout == 0


def test_tensors_in_the_file_are_those_of_transformers(directory, tokenizer):
    with safe_open(directory / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        names = set(file.keys())
        assert {file.get_slice(name).get_dtype() for name in names} == {"F32"}
    theirs = BertForPreTraining(BertConfig.from_pretrained(directory))
    assert names == {name for name, _ in theirs.named_parameters()}  # the tied decoder is not among them
    assert DECODER not in names


def test_a_working_copy_in_bf16_is_written_in_float32(tokenizer, tmp_path):
    made = model(tokenizer)
    made.encoder.bfloat16()
    save_model(tmp_path, made, "card")
    assert {value.dtype for value in weights(tmp_path).values()} == {torch.float32}


# reading


def old_names(tensors):
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }


VARIANTS = {
    "without the prefix": lambda tensors: {name.removeprefix("bert."): value for name, value in tensors.items()},
    "gamma and beta": old_names,
    "a tied decoder": lambda tensors: tensors | {DECODER: tensors[WORDS].clone()},
    "its bias": lambda tensors: tensors | {"cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone()},
    "position ids": lambda tensors: tensors | {"bert.embeddings.position_ids": torch.arange(20)[None]},
    "unknown heads": lambda tensors: tensors | {"lm_head.weight": torch.ones(2, 16), "lm_head.bias": torch.ones(2)},
    "float64": lambda tensors: {name: value.double() for name, value in tensors.items()},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_read(directory, variant):
    expected = load_model(directory)
    put(directory, VARIANTS[variant](weights(directory)))
    assert_same_model(load_model(directory), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read(directory, dtype):
    half = {name: value.to(dtype) for name, value in weights(directory).items()}
    put(directory, half)
    found = load_model(directory).encoder.embeddings.words.weight
    assert found.dtype == torch.float32
    assert torch.equal(found, half[WORDS].float())


def test_a_bare_vocabulary_serves_as_tokenizer(directory, tokenizer):
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (directory / name).unlink()
    assert load_model(directory).tokenizer.encode("The dog.").tolist() == tokenizer.encode("The dog.").tolist()


def test_a_directory_without_heads_and_pooler(directory, tokenizer):
    whole = load_model(directory)
    put(directory, {name: v for name, v in weights(directory).items() if name.startswith("bert.e")})
    found = load_model(directory, seed=1)
    assert (found.heads, found.labels, found.created) == ({}, (), ("the pooler",))
    state, expected = found.encoder.state_dict(), whole.encoder.state_dict()
    assert {name for name, value in state.items() if not torch.equal(value, expected[name])} == {
        "pooler.weight",
        "pooler.bias",
    }
    assert torch.equal(state["pooler.weight"], load_model(directory, seed=1).encoder.pooler.weight)
    assert not torch.equal(state["pooler.weight"], load_model(directory, seed=2).encoder.pooler.weight)


def test_missing_heads_are_reported_as_newly_initialized(directory, tokenizer):
    put(directory, {n: v for n, v in weights(directory).items() if not n.startswith("cls.seq") and "pooler" not in n})
    base = load_model(directory)
    learner, created = build_learner(read_recipe("bert-tiny"), tokenizer.size, base)
    assert created == ["the pooler", "the next_sentence head"]
    assert torch.equal(learner.parts["masked_lm"].dense.weight, base.heads["masked_lm"]["dense.weight"])


def test_the_encoder_of_a_model_for_another_task_is_read(tokenizer, tmp_path):
    theirs = BertForQuestionAnswering(
        BertConfig(
            vocab_size=tokenizer.size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    )
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    found = load_model(tmp_path)
    assert (found.created, set(found.heads)) == (("the pooler",), {"question_answering"})
    assert torch.equal(found.encoder.words.weight, theirs.bert.embeddings.word_embeddings.weight)


def test_C14_round_trip_through_transformers_keeps_logits(directory, tmp_path, tokenizer):
    def logits(directory):
        with torch.no_grad():
            out = BertForPreTraining.from_pretrained(directory).eval()(torch.arange(20)[None])
        return torch.cat([out.prediction_logits.flatten(), out.seq_relationship_logits.flatten()])

    BertForPreTraining.from_pretrained(directory).save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    assert_same_model(again, load_model(directory))
    save_model(tmp_path / "again", again, "card")
    assert torch.equal(logits(directory), logits(tmp_path / "again"))
    assert filecmp.cmp(tmp_path / "again" / "model.safetensors", directory / "model.safetensors", shallow=False)


# refused weights


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_C1_a_truncated_file_is_named(directory, kept):
    path = directory / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert_load_refused(directory, path, "not a valid safetensors file", "download it again")


def test_C1_a_folder_in_place_of_the_file(directory):
    (directory / "model.safetensors").unlink()
    assert_load_refused(directory, directory, "no model.safetensors")
    (directory / "model.safetensors").mkdir()
    assert_load_refused(directory, directory / "model.safetensors", "is not a regular file")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_C2_a_weight_that_is_not_finite(directory, bad):
    tensors = weights(directory)
    tensors["cls.predictions.bias"][3] = bad
    put(directory, tensors)
    assert_load_refused(directory, directory / "model.safetensors", "cls.predictions.bias", "not finite")


def test_C2_one_tensor_under_two_names(directory):
    tensors = weights(directory)
    put(directory, tensors | {WORDS.removeprefix("bert."): tensors[WORDS].clone()})
    assert_load_refused(directory, directory / "model.safetensors", "the same name")


def test_C6_code_beside_the_weights_is_not_executed(directory, tmp_path):
    marker = tmp_path / "executed"
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil"):
        (directory / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    code = {"AutoConfig": "configuration_evil.Config", "AutoModel": "modeling_evil.Model"}
    configure(directory, auto_map=code, trust_remote_code=True, custom_pipelines={"x": {"impl": "modeling_evil.Model"}})
    path = directory / "tokenizer_config.json"
    words = json.loads(path.read_text()) | {"auto_map": {"AutoTokenizer": ["tokenization_evil.T", None]}}
    path.write_text(json.dumps(words))
    assert load_model(directory).created == ()
    assert not marker.exists()


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def pickled(directory, content):
    (directory / "model.safetensors").unlink()
    torch.save(content, directory / "pytorch_model.bin")
    return directory / "pytorch_model.bin"


def test_C7_a_pickle_is_read_on_request_only(directory):
    expected = load_model(directory)
    tensors = weights(directory)
    weight = tensors["bert.pooler.dense.weight"]
    tensors["bert.pooler.dense.weight"] = weight.T.contiguous().T  # the layout of weights converted from TensorFlow
    path = pickled(directory, tensors | {"epoch": 3})
    assert_load_refused(directory, path, "pickle", "allow_pickle=True")
    assert_same_model(load_model(directory, allow_pickle=True), expected)


def test_C7_safetensors_are_preferred_to_a_pickle(directory, tmp_path):
    torch.save({"w": Evil(tmp_path / "executed")}, directory / "pytorch_model.bin")
    assert load_model(directory, allow_pickle=True).created == ()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kind", ["zip", "legacy", "bare"])
def test_C7_a_malicious_pickle_is_not_executed(directory, tmp_path, kind):
    marker = tmp_path / "executed"
    content = weights(directory) | {"evil": Evil(marker)}
    path = pickled(directory, {})
    if kind == "bare":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    assert_load_refused(directory, path, allow_pickle=False)
    assert_load_refused(directory, path, "contains other objects than tensors", allow_pickle=True)
    assert not marker.exists()
    if kind == "zip":  # unrestricted loading executes it
        torch.load(path, weights_only=False)
        assert marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(1)],
        3,
        {1: torch.ones(1)},
        {"x": torch.ones(1).expand(10**12)},
        {"embeddings.word_embeddings.weight": torch.ones(2, 2).to_sparse()},
    ],
    ids=["list", "number", "names", "huge", "sparse"],
)
def test_C7_other_pickles_are_refused(directory, content):
    assert_load_refused(directory, pickled(directory, content), allow_pickle=True)


def test_C7_a_damaged_pickle_and_one_with_nan_are_refused(directory):
    tensors = weights(directory)
    tensors[WORDS][0, 0] = float("nan")
    path = pickled(directory, tensors)
    assert_load_refused(directory, path, "not finite", allow_pickle=True)
    path.write_bytes(path.read_bytes()[:-100])
    assert_load_refused(directory, path, allow_pickle=True)


def test_C11_a_corrupt_or_foreign_tokenizer(directory, tokenizer):
    small = tokenizer.size
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["zusatz"] = small
    path.write_text(json.dumps(content))
    assert_load_refused(directory, directory, f"the tokenizer has {small + 1} tokens, but the model {small}")
    path.write_text("{")
    assert_load_refused(directory, path, "is not a valid tokenizer")
    path.unlink()
    (directory / "vocab.txt").unlink()
    assert_load_refused(directory, "contains none of tokenizer.json")


def test_additional_rows_of_the_vocabulary_are_accepted(tokenizer, tmp_path):
    made = model(tokenizer)
    wide = SMALL.build(tokenizer.size + 7)
    huggingface.write(tmp_path, wide, {})
    made.tokenizer.save(tmp_path)
    assert load_model(tmp_path).encoder.vocabulary == tokenizer.size + 7


# config.json


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"3", b'"bert"', b"\xff\xfe\x00", b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}"],
)
def test_a_config_that_is_not_a_json_object(directory, content):
    (directory / "config.json").write_bytes(content)
    assert_load_refused(directory, directory / "config.json", "UTF-8" if content.startswith(b"\xff") else "JSON")


def test_a_missing_config(directory):
    (directory / "config.json").unlink()
    assert_load_refused(directory, directory, "neither a run with a finished model nor a directory of")
    with pytest.raises(UserError, match="cannot be read"):
        huggingface.read(directory)


NUMBERS = ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings"]
WRONG = [(key, value) for key in [*NUMBERS, "vocab_size"] for value in (-1, 0, "2", 2.5, None, [2], {}, True)]
WRONG += [(key, value) for key in NUMBERS for value in (10**30, float("nan"))]
WRONG += [("layer_norm_eps", value) for value in (0, -1e-12, float("nan"), float("inf"), "1e-12", 10**400)]
WRONG += [("initializer_range", value) for value in (0, -0.02, float("nan"), float("inf"), None)]
WRONG += [("hidden_dropout_prob", value) for value in (1.0, -0.1, float("nan"), "0.1")]
WRONG += [("hidden_act", value) for value in ("mish", "", None, 3, ["gelu"], {"gelu": 1})]
WRONG += [("model_type", value) for value in ("roberta", "distilbert", "", None, ["bert"])]
WRONG += [("position_embedding_type", "relative_key"), ("is_decoder", True), ("num_attention_heads", 3)]


@pytest.mark.parametrize(("key", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_a_config_with_wrong_values(directory, key, value):
    configure(directory, **{key: value})
    assert_load_refused(directory, directory)


@pytest.mark.parametrize("key", [*NUMBERS[:4], "vocab_size"])
def test_a_config_that_lacks_a_size(directory, key):
    path = directory / "config.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != key}))
    assert_load_refused(directory, path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the directory of a tiny model, and the content of its weights file."""
    directory = tmp_path_factory.mktemp("tiny")
    shape = BertSettings(layers=1, width=2, heads=1, feed_forward=2, positions=2)
    huggingface.write(directory, shape.build(3), {})
    return directory, (directory / "model.safetensors").read_bytes()


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3))
def test_C16_flipped_bytes_of_the_header_raise_nothing_but_user_errors(tiny, flips):
    directory, whole = tiny
    content = bytearray(whole)
    for place, byte in flips:
        content[int(place * (8 + struct.unpack("<Q", whole[:8])[0]))] = byte
    (directory / "model.safetensors").write_bytes(content)
    try:
        found = huggingface.read(directory)
    except UserError as error:
        assert str(error).startswith(f"{directory}/model.safetensors: ")
    else:  # the flipped bytes are metadata, or blanks after the header
        assert found.encoder.keys() == found.settings.build(3).state_dict().keys()
