"""AllenNLP's files of an ELMo: written and read; whatever is wrong with them is an error of one line that names it."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.data.tokenizers.word_level import FIRST, UNKNOWN, train_words
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import allennlp
from unmask.families.checkpoints.check import body_on_meta
from unmask.families.elmo import ElmoSettings
from unmask.model.directory import find, read_settings
from unmask.model.model import load_model
from unmask.support.errors import UserError

h5py = pytest.importorskip("h5py")
SMALL = ElmoSettings(
    layers=2, width=12, cells=10, characters=4, filters=((1, 4), (3, 8)), highways=1, activation="tanh", dropout=0.2
)
WORDS = (*FIRST, UNKNOWN)
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


@pytest.fixture
def directory(tmp_path):
    """A small ELMo in AllenNLP's format, without words."""
    torch.manual_seed(0)
    allennlp.write(tmp_path / "elmo", SMALL.build(5), WORDS)
    return tmp_path / "elmo"


def configure(directory, path, value):
    """Change an option, given its path; None removes it."""
    options = json.loads((directory / "options.json").read_text())
    *outer, last = path.split("/")
    inner = options
    for name in outer:
        inner = inner[name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    (directory / "options.json").write_text(json.dumps(options))


def test_what_is_written_is_read(directory, tmp_path):
    torch.manual_seed(0)
    body = SMALL.build(5)
    loaded = load_model(directory)
    assert loaded.encoder.settings == SMALL == read_settings(directory)
    assert find(directory) == directory
    assert loaded.tokenizer.tokens(range(loaded.tokenizer.size)) == list(WORDS)
    for name, value in body.state_dict().items():
        torch.testing.assert_close(loaded.encoder.state_dict()[name], value)
    unclipped = ElmoSettings(layers=1, width=4, cells=3, filters=((2, 2),), highways=0, clip=None, residual=False)
    allennlp.write(tmp_path / "other", unclipped.build(5), WORDS)
    assert load_model(tmp_path / "other").encoder.settings == unclipped


def test_the_vocabulary_beside_it_is_bilm_tfs(directory):
    words = ["</S>", "<S>", "the", "<UNK>", "cat"]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = load_model(directory).tokenizer
    assert tokenizer.tokens(tokenizer.encode("the cat")) == ["the", "cat"]
    assert tokenizer.encode("the cat").tolist() == [2, 4]
    (directory / "vocab.txt").unlink()
    tokenizer = load_model(directory).tokenizer
    assert tokenizer.encode("the cat").tolist() == [len(WORDS), len(WORDS) + 1], "without one, no word is in it"
    (directory / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    with pytest.raises(UserError, match="cannot read the tokenizer beside it, which is of the kind wordpiece"):
        load_model(directory)


def test_files_may_have_longer_names(directory):
    for name in ("options.json", "weights.hdf5"):
        (directory / name).rename(directory / f"elmo_2x10_6_12cnn_1xhighway_{name}")
    assert load_model(directory).encoder.settings == SMALL
    (directory / "config.json").write_text("{}")
    assert not allennlp.is_directory(directory), "a config.json is of another format"


@pytest.mark.timeout(60)  # a model of such sizes would take longer
@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("lstm/dim", "many", r"Expected `int`, got `str` - at `\$\.lstm\.dim`"),
        ("lstm", None, "missing required field `lstm`"),
        ("char_cnn", None, "missing required field `char_cnn`"),
        ("lstm/dim", 1 << 40, "cells must be at most"),
        ("lstm/n_layers", 10**9, "layers must be at most"),
        ("char_cnn/n_highway", 10**9, "highways must not be negative, and at most"),
        ("char_cnn/filters", [[1, 4]] * 2000, "filters must have 1 to 1000 convolutions"),
        ("char_cnn/filters", [[51, 4]], "a filter's size must be at most 50"),
        ("char_cnn/activation", "selu", "Invalid enum value 'selu'"),
        ("char_cnn/n_characters", 300, "must have 262 characters, and 50 of them at most"),
        ("char_cnn/max_characters_per_token", 40, "must have 262 characters, and 50 of them at most"),
        ("lstm/cell_clip", 2, "cell_clip 2.0 and proj_clip 3.0 must be equal"),
    ],
)
def test_options_that_are_no_elmos(directory, path, value, reason):
    configure(directory, path, value)
    with pytest.raises(UserError, match=rf"options\.json: not the options of an ELMo .*{reason}"):
        load_model(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff{}", b"[]"])
def test_options_that_are_no_json(directory, content):
    (directory / "options.json").write_bytes(content)
    with pytest.raises(UserError, match=r"options\.json: (not the options|is not UTF-8)"):
        load_model(directory)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("lstm/dim", 11, r"/B has shape \(40,\), but the options imply \(44,\)|W_0 has shape"),
        ("lstm/dim", 1 << 22, "but the options imply"),
        ("lstm/n_layers", 1, "RNN_0/RNN/MultiRNNCell/Cell1 belongs to no ELMo with these options"),
        ("lstm/n_layers", 3, "RNN_0/RNN/MultiRNNCell/Cell2 is missing, which the options imply"),
        ("char_cnn/n_highway", 2, "CNN_high_1 is missing, which the options imply"),
        ("char_cnn/embedding/dim", 5, r"char_embed has shape \(261, 4\), but the options imply \(261, 5\)"),
    ],
)
def test_options_that_do_not_fit_the_weights(directory, path, value, reason):
    configure(directory, path, value)
    with pytest.raises(UserError, match=rf"weights\.hdf5: .*{reason}"):
        load_model(directory)


def external_link(file, directory):
    with h5py.File(directory / "secret.hdf5", "w") as other:
        other["values"] = np.zeros(4, "f4")
    file["CNN/b_cnn_0"] = h5py.ExternalLink("secret.hdf5", "values")


def soft_link(file, directory):
    file["CNN/b_cnn_0"] = h5py.SoftLink("/CNN_proj/b_proj")


def external_group(file, directory):
    del file["CNN"]
    file["CNN"] = h5py.ExternalLink("/nonexistent/other.hdf5", "CNN")


def external_values(file, directory):
    (directory / "secret").write_bytes(b"\0" * 16)
    file.create_dataset("CNN/b_cnn_0", (4,), "f4", external=[(str(directory / "secret"), 0, 16)])


def virtual(file, directory):
    with h5py.File(directory / "secret.hdf5", "w") as other:
        other["values"] = np.zeros(4, "f4")
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(str(directory / "secret.hdf5"), "values", (4,))
    file.create_virtual_dataset("CNN/b_cnn_0", layout)


def references(file, directory):
    file.create_dataset("CNN/b_cnn_0", (4,), h5py.ref_dtype)


def huge(file, directory):
    file.create_dataset("CNN/b_cnn_0", (1 << 45,), "f4", chunks=(1 << 20,))


def not_stored(file, directory):
    file.create_dataset("CNN/b_cnn_0", (4,), "f4", chunks=(2,))


PLANTED = {
    external_link: "CNN/b_cnn_0 is a link to another place or file, which is not followed",
    soft_link: "CNN/b_cnn_0 is a link to another place or file, which is not followed",
    external_group: "CNN is a link to another place or file, which is not followed",
    external_values: "CNN/b_cnn_0 has its values in another file, which is not read",
    virtual: "CNN/b_cnn_0 has its values in another file, which is not read",
    references: "CNN/b_cnn_0 has type object, not a supported floating-point type",
    huge: r"CNN/b_cnn_0 has shape \(35184372088832,\), but the options imply \(4,\)",
    not_stored: "CNN/b_cnn_0 is larger than what is stored of it",
    lambda file, _: file.create_dataset("CNN/b_cnn_0", data=np.zeros(4, "i4")): "has type int32",
    lambda file, _: file.create_dataset("CNN/b_cnn_0", data=np.full(4, np.nan, "f4")): "values that are not finite",
    lambda file, _: file.create_dataset("CNN/b_cnn_0", data=np.zeros(4), compression="gzip"): "is compressed; store it",
    lambda file, _: file.create_group("CNN/b_cnn_0"): "CNN/b_cnn_0 is not a dataset",
    lambda file, _: None: "CNN/b_cnn_0 is missing, which the options imply",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_one_tensor_that_is_something_else(directory, plant):
    with h5py.File(directory / "weights.hdf5", "a") as file:
        del file["CNN/b_cnn_0"]
        plant(file, directory)
    with pytest.raises(UserError, match=rf"weights\.hdf5: .*{PLANTED[plant]}") as error:
        load_model(directory)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["softmax", "CNN/W_cnn_2", f"{CELL}/W_P_1"])
def test_other_names(directory, name):
    with h5py.File(directory / "weights.hdf5", "a") as file:
        file[name] = h5py.ExternalLink("/nonexistent", "x")
    with pytest.raises(UserError, match=rf"weights\.hdf5: {name} belongs to no ELMo with these options"):
        load_model(directory)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_C1_truncated_files(directory, share):
    path = directory / "weights.hdf5"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"weights\.hdf5: not a valid HDF5 file, or damaged .*download it again"):
        load_model(directory)


def test_C16_bytes_changed_at_random(directory, tmp_path):
    """No crash, no hang: an error of one line, or weights of the right shapes."""
    content, rng = (directory / "weights.hdf5").read_bytes(), random.Random(0)
    expected = {name: value.shape for name, value in body_on_meta(SMALL, 5).state_dict().items()}
    found = {True: 0, False: 0}
    for _ in range(80):
        changed = bytearray(content)
        for _ in range(rng.choice([1, 4, 16])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        (directory / "weights.hdf5").write_bytes(changed)
        try:
            read = allennlp.read(directory, 5)
        except UserError as error:
            assert str(error).startswith(f"{directory / 'weights.hdf5'}: ") and "\n" not in str(error)
            found[False] += 1
        else:
            assert {name: value.shape for name, value in read.encoder.items()} == expected
            found[True] += 1
    assert min(found.values()) > 8


def test_files_that_are_missing_or_too_many(directory):
    (directory / "old_weights.hdf5").write_bytes(b"")
    with pytest.raises(UserError, match=r"several files of the same kind: old_weights\.hdf5, weights\.hdf5; keep"):
        load_model(directory)
    (directory / "old_weights.hdf5").unlink()
    (directory / "options.json").unlink()
    with pytest.raises(UserError, match=r"no options\.json beside the weights; download it, too"):
        load_model(directory)


def test_without_h5py_it_is_named(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"need h5py, which is not installed; pip install 'unmask\[elmo\]'"):
        load_model(directory)
    assert read_settings(directory) == SMALL, "the options need no h5py"


def test_another_family_is_not_written(tmp_path):
    body = BertSettings(layers=1, width=8, heads=2, feed_forward=16).build(5)
    with pytest.raises(UserError, match="only an ELMo can be written as AllenNLP's files"):
        allennlp.write(tmp_path / "out", body, WORDS)
    assert not Path(tmp_path / "out").exists()


def test_words_of_the_vocabulary_are_written(tmp_path):
    tokenizer = train_words(["the cat sat on the mat"], size=20)
    allennlp.write(tmp_path, SMALL.build(tokenizer.size), tokenizer.tokens(range(tokenizer.size)))
    assert load_model(tmp_path).tokenizer.encode("the mat").tolist() == tokenizer.encode("the mat").tolist()
