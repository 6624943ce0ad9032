"""Checksums of model directories that unmask wrote; those of other programs have none."""

import json
import shutil
from contextlib import nullcontext

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.families.checkpoints.check import check_checksums, write_checksums
from unmask.families.checkpoints.safetensors_file import CHECKSUMS
from unmask.families.checkpoints.sentence_modules import DENSE, DENSE_PART, Pooling
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.pooled import Dense
from unmask.support.errors import UserError


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    shape = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=16)
    save_model(path, Model(shape.build(tokenizer.size), tokenizer), "card")
    return path


def test_C9_a_flipped_bit_in_any_file_is_named(saved, tmp_path):
    names = json.loads((saved / CHECKSUMS).read_text())
    assert set(names) == {path.name for path in saved.iterdir()} - {CHECKSUMS, "README.md"}
    for name in names:
        for position in (8, -8):
            copy = shutil.copytree(saved, tmp_path / "copy", dirs_exist_ok=True)
            content = bytearray((copy / name).read_bytes())
            content[position] ^= 1
            (copy / name).write_bytes(content)
            with pytest.raises(UserError) as error:
                load_model(copy)
            assert name in str(error.value)
            if (name, position) == ("model.safetensors", -8):
                assert "is damaged or was changed: its sha256 is not that in checksums.json; copy" in str(error.value)


def test_C9_a_flipped_bit_of_what_is_beside_the_weights_is_named(tokenizer, tmp_path):
    """As in the folders of sentence-transformers; only the card is not compared, which people edit."""
    shape = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=16)
    layer = {f"{DENSE_PART}.0.weight": torch.randn(8, 32), f"{DENSE_PART}.0.bias": torch.randn(8)}
    pooling = Pooling(dense=(Dense(width=8),), prompt="query: ", length=12)
    save_model(tmp_path, Model(shape.build(tokenizer.size), tokenizer, {DENSE: layer}, pooling=pooling), "card")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert set(json.loads((tmp_path / CHECKSUMS).read_text())) == files - {CHECKSUMS, "README.md"}
    assert "2_Dense/model.safetensors" in files
    for name in files - {CHECKSUMS}:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises(UserError, match=name) if name != "README.md" else nullcontext():
            load_model(tmp_path)
        (tmp_path / name).write_bytes(content)


def test_without_checksums_nothing_is_checked(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    (copy / CHECKSUMS).unlink()
    (copy / "special_tokens_map.json").unlink()
    load_model(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "the file is damaged"), ('{"a": 1}', "the file is damaged"), ('{"none": "0"}', "none: cannot be read")],
)
def test_checksums_that_cannot_be_checked_are_refused(tmp_path, content, message):
    (tmp_path / CHECKSUMS).write_text(content)
    with pytest.raises(UserError, match=message):
        check_checksums(tmp_path)


def test_checksums_name_no_file_outside_of_the_directory(tmp_path):
    (tmp_path / "secret").write_text("x")
    inside = tmp_path / "inside"
    inside.mkdir()
    write_checksums(inside)
    (inside / CHECKSUMS).write_text('{"../secret": "0"}')
    with pytest.raises(UserError, match=r"inside/secret: cannot be read"):
        check_checksums(inside)
