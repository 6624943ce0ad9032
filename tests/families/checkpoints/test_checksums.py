"""Checksums of model directories that unmask wrote; those of other programs have none."""

import json
import shutil

import pytest

from unmask.families.bert import BertSettings
from unmask.families.checkpoints.check import check_checksums, write_checksums
from unmask.families.checkpoints.safetensors_file import CHECKSUMS
from unmask.model.model import Model, load_model, save_model
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
    write_checksums(inside, ["none"])
    (inside / CHECKSUMS).write_text('{"../secret": "0"}')
    with pytest.raises(UserError, match=r"inside/secret: cannot be read"):
        check_checksums(inside)
