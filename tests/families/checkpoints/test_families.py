"""Directories of all families, as test_huggingface.py tests those of BERT: C6, C7, C16 (C4, C5: test_check.py)."""

import json
import socket
import struct

import msgspec
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.train import train_vocabulary
from unmask.families.checkpoints import huggingface
from unmask.model.model import Model, load_model, save_model
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead

from .conftest import (
    BODIES,
    SHAPES,
    UNTIED,
    VOCABULARY,
    assert_read_refused,
    configure,
    form_of,
    put,
    shape_of,
    small,
    weights,
    write,
)


@pytest.fixture
def no_network(monkeypatch):
    """Fail the test if anything tries to use the network, even if it catches the error."""
    asked = []

    def refuse(*arguments, **options):
        asked.append(arguments)
        raise OSError("no network here")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    yield
    assert not asked


@pytest.mark.usefixtures("no_network")
def test_C6_code_beside_the_weights_is_not_executed(family_directory, tmp_path):
    marker = tmp_path / "executed"
    (family_directory / "modeling_evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    code = {"AutoConfig": "nobody/evil--modeling_evil.Config", "AutoModel": "modeling_evil.Model"}
    configure(family_directory, auto_map=code, trust_remote_code=True)
    huggingface.read(family_directory)
    assert not marker.exists()


def word_bpe(directory):
    """Return a tokenizer of GPT's kind, which unmask does not train."""
    letters = "abcdefghijklmnopqrstuvwxyz.,"
    pieces = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    (directory / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate(pieces)}))
    (directory / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    return load_tokenizer(directory)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        *(("wordpiece", "vocab.txt"), ("bpe", "vocab.json"), ("word_bpe", "vocab.json")),
        *((kind, "tokenizer.json") for kind in ("wordpiece", "bpe", "word_bpe", "unigram")),
    ],
)
@pytest.mark.usefixtures("no_network")
def test_C6_code_beside_the_tokenizer_is_not_executed(kind, file, documents, tmp_path):
    """Nor is the code downloaded if `auto_map` refers to another repository."""
    (tmp_path / "words").mkdir()
    if kind == "word_bpe":
        tokenizer = word_bpe(tmp_path / "words")
    else:
        tokenizer = train_vocabulary(kind, documents, size=350, lowercase=True)
    directory, marker = tmp_path / "model", tmp_path / "executed"
    shape = msgspec.structs.replace(shape_of("roberta"), offset=tokenizer.pad + 1)
    save_model(directory, Model(shape.build(tokenizer.size), tokenizer), "")
    (directory / "tokenization_evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    path, code = directory / "tokenizer_config.json", ["nobody/evil--tokenization_evil.Slow", "tokenization_evil.Fast"]
    more = {"tokenizer_class": "Fast", "auto_map": {"AutoTokenizer": code}, "trust_remote_code": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    if file != "tokenizer.json":
        (directory / "tokenizer.json").unlink()
    found = load_model(directory).tokenizer
    assert (found.kind.name, found.encode("The dog.").tolist()) == (kind, tokenizer.encode("The dog.").tolist())
    assert not marker.exists()


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_C7_pickles_are_read_on_request_and_hold_tensors_alone(family_directory):
    state = weights(family_directory)
    expected = huggingface.read(family_directory)
    (family_directory / "model.safetensors").unlink()
    torch.save(state, family_directory / "pytorch_model.bin")
    assert_read_refused(family_directory, "pickled weights can execute arbitrary code")
    found = huggingface.read(family_directory, allow_pickle=True)
    assert found.encoder.keys() == expected.encoder.keys()
    assert all(torch.equal(value, expected.encoder[key]) for key, value in found.encoder.items())
    torch.save({**state, "evil": Evil()}, family_directory / "pytorch_model.bin")
    assert_read_refused(family_directory, "contains other objects than tensors", allow_pickle=True)


def test_positions_start_after_the_padding_id_of_the_vocabulary(tokenizer, tmp_path):
    """In transformers the padding id is the offset; another id than the tokenizer's would shift all positions."""
    shape = msgspec.structs.replace(shape_of("roberta"), offset=tokenizer.pad + 1)
    save_model(tmp_path, Model(shape.build(tokenizer.size), tokenizer), "")
    assert load_model(tmp_path).encoder.settings.offset == 1
    configure(tmp_path, pad_token_id=1, max_position_embeddings=shape.positions + 1)
    with pytest.raises(UserError, match=r"the padding id in config.json differs from that of the tokenizer, 0"):
        load_model(tmp_path)
    tokenizer.save(tmp_path / "words")
    with pytest.raises(
        UserError, match=r"of roberta-mini does not match the padding id of this vocabulary, 0; .* offset=1"
    ):
        load_model("random:roberta-mini", tokenizer=tmp_path / "words")
    for strange in (None, "1"):
        configure(tmp_path, pad_token_id=strange)
        assert_read_refused(tmp_path, "pad_token_id must be an integer")


HEAD_DROPOUTS = {
    "deberta": "cls_dropout",
    "albert": "classifier_dropout_prob",
    "distilbert": "seq_classif_dropout",
    "openai-gpt": "unmask_head_dropout",  # transformers has no key for it
    "eurobert": "unmask_head_dropout",
    "xlnet": "summary_last_dropout",
}


def test_dropout_before_the_last_layer_is_read_and_written(name, family_directory):
    key = HEAD_DROPOUTS.get(name.partition(",")[0], "classifier_dropout")
    settings = huggingface.read(family_directory).settings
    assert (settings.dropout, settings.head_dropout, settings.before_last) == (0.1, None, 0.1)
    configure(family_directory, **{key: 0.3})
    settings = huggingface.read(family_directory).settings
    assert (settings.dropout, settings.before_last) == (0.1, 0.3)
    assert ClassificationHead(settings.head, 2).dropout.rate == 0.3
    huggingface.write(family_directory / "again", settings.build(VOCABULARY), {})
    assert huggingface.read(family_directory / "again").settings == settings
    config = json.loads((family_directory / "config.json").read_text())
    (family_directory / "config.json").write_text(
        json.dumps({one: value for one, value in config.items() if one != key})
    )
    expected = {"albert": 0.1, "distilbert": 0.2, "modernbert": 0.0}.get(name.partition(",")[0], 0.1)
    assert huggingface.read(family_directory).settings.before_last == expected, "the default of transformers"
    for wrong in (1.0, -0.1, "0.1"):
        configure(family_directory, **{key: wrong})
        assert_read_refused(family_directory, "not a valid config of a")


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_as_it_was_written(body, tmp_path):
    encoder = small(BODIES[body], init_std=0.5).build(VOCABULARY)
    huggingface.write(tmp_path, encoder, {})
    found = huggingface.read(tmp_path)
    assert found.settings == encoder.settings
    if body not in ("all layers shared", "attention shared"):  # only the weights reveal the missing projection
        assert huggingface.read_settings(tmp_path) == encoder.settings
    again, state = found.settings.build(VOCABULARY), encoder.state_dict()
    missing, unknown = again.load_state_dict(found.encoder, strict=False)
    assert not unknown and all(name.startswith("pooler.") for name in missing)
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in found.encoder.items())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a directory of each family, with the content of its weights file."""
    found = {}
    for name in SHAPES:
        directory = tmp_path_factory.mktemp("tiny")
        write(name, directory)
        found[name] = directory, (directory / "model.safetensors").read_bytes()
    return found


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(SHAPES)),
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_C16_flipped_bytes_of_the_header_raise_nothing_but_user_errors(tiny, name, flips):
    directory, whole = tiny[name]
    content = bytearray(whole)
    for place, byte in flips:
        content[int(place * (8 + struct.unpack("<Q", whole[:8])[0]))] = byte
    (directory / "model.safetensors").write_bytes(content)
    try:
        found = huggingface.read(directory)
    except UserError as error:
        assert str(error).startswith(f"{directory}/model.safetensors: ")
    else:  # the flipped bytes are not the encoder's
        assert found.encoder.keys() <= found.settings.build(VOCABULARY).state_dict().keys()


def assert_read_as(found, expected):
    assert found.settings == expected.settings
    assert found.heads.keys() == expected.heads.keys()
    for ours, theirs in [(found.encoder, expected.encoder), *((found.heads[n], h) for n, h in expected.heads.items())]:
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items())


def position_ids(family):
    inside = "" if family.model_type == "openai-gpt" else "embeddings."
    return {f"{family.prefix}{inside}position_ids": torch.arange(12)[None]}


DECODER_BIASES = {"roberta": "lm_head.decoder.bias", "albert": "predictions.decoder.bias"}
"""Biases tied to that of the head; in the other families the bias belongs to the decoder itself."""
VARIANTS = {  # found in published files; those of BERT are in test_huggingface.py
    "without the prefix": lambda family, tensors: {
        name.removeprefix(family.prefix): value for name, value in tensors.items()
    },
    "position ids": lambda family, tensors: tensors | position_ids(family),
    "position ids, without the prefix": lambda family, tensors: {
        name.removeprefix(family.prefix): value for name, value in (tensors | position_ids(family)).items()
    },
    "a tied decoder": lambda family, tensors: tensors | {family.decoder: tensors[family.prefix + family.words].clone()},
    "its bias": lambda family, tensors: (
        tensors | {DECODER_BIASES[family.model_type]: tensors[family.heads["masked_lm"]["bias"]].clone()}
    ),
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (name, one)
        for one in VARIANTS
        for name in SHAPES
        if (one != "its bias" or name.partition(",")[0] in DECODER_BIASES)
        and not (one == "a tied decoder" and name in UNTIED)
    ],
)
def test_variants_are_read(name, variant, family_directory):
    expected, before = huggingface.read(family_directory), weights(family_directory)
    put(family_directory, after := VARIANTS[variant](form_of(name), before))
    assert after.keys() != before.keys()
    assert_read_as(huggingface.read(family_directory), expected)


def test_a_full_state_dict_of_transformers_is_read(name, family_directory, tmp_path):
    """Including tied tensors, which older versions of transformers stored."""
    if name in ("nomic_bert", "neobert"):
        pytest.skip("in transformers tensors have other names than in files, or there is no such model")
    (kind,) = json.loads((family_directory / "config.json").read_text())["architectures"]
    theirs, family = getattr(transformers, kind).from_pretrained(family_directory), form_of(name)
    theirs.save_pretrained(tmp_path / "theirs")
    expected, state = huggingface.read(tmp_path / "theirs"), theirs.state_dict()
    tied = {family.decoder, DECODER_BIASES.get(family.model_type, family.decoder)}
    assert (tied <= state.keys()) == (name not in ("electra", *UNTIED)), "ELECTRA's discriminator has no decoder"
    put(tmp_path / "theirs", {key: value.clone() for key, value in state.items()})
    assert_read_as(huggingface.read(tmp_path / "theirs"), expected)


def test_the_decoder_replaces_token_embeddings_that_are_not_stored(name, family_directory):
    """transformers stores one of the tied tensors, not always the same."""
    if name in UNTIED:
        pytest.skip("the decoder is not tied")
    tensors, family = weights(family_directory), form_of(name)
    words = next(key for key in tensors if key.endswith(family.words))
    expected = huggingface.read(family_directory).encoder["embeddings.words.weight"]
    put(
        family_directory,
        {**{key: value for key, value in tensors.items() if key != words}, family.decoder: tensors[words]},
    )
    assert torch.equal(huggingface.read(family_directory).encoder["embeddings.words.weight"], expected)
