"""A copy has the documents of the files, and what was skipped; it is complete or not there."""

import random

import pytest

from unmask.data.text import text_copy as module
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.text_copy import copy_documents
from unmask.support.errors import UserError

PIECES = ["word", " ", "\n", "\n\n", "\r\n", "\0", "é", "漢字", "🜁", "\u2028", "﻿", "x" * 700]


@pytest.mark.parametrize("mode", ["file", "blank-line", "line"])
def test_the_documents_are_those_of_the_files(mode, tmp_path, monkeypatch):
    rng = random.Random(mode)
    for number in range(15):
        monkeypatch.setattr(module, "_BLOCK", rng.choice([1, 7, 100, 1 << 20]))
        path = tmp_path / f"{number}.txt"
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 60))) + "end"
        path.write_bytes(text.encode() + rng.choice([b"", b"\n\n\xff\n\n"]))
        options, skipped = TextOptions(documents=mode), Skipped()
        documents = list(read_documents([path], options, skipped))
        if not documents:
            continue
        copy = copy_documents([path], options, tmp_path / f"copy-{number}")
        assert list(copy) == list(copy) == documents
        assert copy.skipped == skipped
        path.unlink()
        again = copy_documents([path], options, tmp_path / f"copy-{number}")
        assert list(again) == documents and again.skipped == skipped


def test_a_copy_that_failed_is_not_there(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"A document.\n\nnot UTF-8: \xff")
    with pytest.raises(UserError, match=r"text\.txt:3: not UTF-8"):
        copy_documents([tmp_path / "text.txt"], TextOptions(strict=True), tmp_path / "copy")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"there is no text in .*empty\.txt"):
        copy_documents([tmp_path / "empty.txt"], TextOptions(), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["documents", "urls", "copied.json"])
@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: b"?" + content[1:], None])
def test_a_damaged_copy_is_made_again(name, damage, tmp_path):
    (tmp_path / "text.txt").write_text("A document.\n\nAnother one.")
    expected = list(copy_documents([tmp_path / "text.txt"], TextOptions(), tmp_path / "copy"))
    file = tmp_path / "copy" / name
    content = file.read_bytes()
    file.unlink() if damage is None else file.write_bytes(damage(content))
    assert list(copy_documents([tmp_path / "text.txt"], TextOptions(), tmp_path / "copy")) == expected
    assert file.read_bytes() == content
