"""Tests of opening plain and compressed files and of reading their lines in bounded memory."""

import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from unmask.data.text import files
from unmask.data.text.files import decode_line, display_name, open_bytes, read_lines
from unmask.support.errors import UserError

CONTENT = b"\xef\xbb\xbfone\r\ntwo\n\nlast"
LINES = [(1, b"one"), (2, b"two"), (3, b""), (4, b"last")]


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_lines_are_the_same_for_any_compression(tmp_path, suffix, pack):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(CONTENT))
    assert list(read_lines(path)) == LINES
    with open_bytes(path) as stream:
        assert stream.read() == CONTENT


def test_standard_input_is_read_and_left_open(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(CONTENT))
    monkeypatch.setattr("sys.stdin", stdin)
    assert list(read_lines("-")) == LINES
    assert not stdin.closed


@pytest.mark.parametrize("encode", [bytes, lambda content: content.decode().encode("utf-16")])
def test_lines_that_end_with_carriage_returns_alone_are_refused(tmp_path, encode):
    path = tmp_path / "a.txt"
    path.write_bytes(encode(b"one\rtwo\r\rthree\r"))
    with pytest.raises(UserError, match=r"a\.txt: its lines end with carriage returns alone.*; convert it first"):
        list(read_lines(path))
    for content in (b"one\r", b"one\rand more", b"one\rtwo\rthree\n", b"\r\r\n"):
        path.write_bytes(encode(content))
        assert len(list(read_lines(path))) == 1


def test_missing_file_and_directory_are_named(tmp_path):
    for path in (tmp_path / "missing.txt", tmp_path):
        with pytest.raises(UserError, match=str(path)):
            list(read_lines(path))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no archive", lambda data: data[:30] + data])
def test_damaged_archive_is_named(tmp_path, suffix, pack, damage):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(damage(pack(bytes(range(256)) * 500)))
    with pytest.raises(UserError, match=rf"{path}: the archive is damaged"):
        list(read_lines(path))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_D7_line_at_the_limit_is_kept_and_a_longer_one_is_not(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(files, "MAX_DOCUMENT", 10)
    path = tmp_path / "a.txt"
    for length in range(9, 26):
        path.write_bytes(b"x" * length + ending + b"next")
        assert list(read_lines(path)) == [(1, b"x" * length if length <= 10 else None), (2, b"next")]
        path.write_bytes(b"x" * length)
        assert list(read_lines(path)) == [(1, b"x" * length if length <= 10 else None)]


def test_a_line_of_json_lines_is_decoded_or_named():
    assert decode_line(b'{"text": "\xc3\xa9"}', "a.jsonl", 1) == {"text": "é"}
    for line, message in (
        (b"{", r"^a\.jsonl:7: broken JSON \("),
        (b'{"text": "\xff"}', r"^a\.jsonl:7: broken JSON \("),
        ("[" * 100_000, r"^a\.jsonl:7: broken JSON \("),
        ("[1]", r"^a\.jsonl:7: not a JSON object$"),
    ):
        with pytest.raises(UserError, match=message):
            decode_line(line, "a.jsonl", 7)


def test_standard_input_has_a_name():
    assert display_name("-") == "standard input"
    assert display_name(Path("a") / "b.txt") == str(Path("a") / "b.txt")


def test_zstandard_is_read_within_the_limits_and_damage_is_named(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.txt.zst"
    text = "".join(f"line {number}\n" for number in range(20_000))
    packed = pyarrow.compress(text.encode(), "zstd", asbytes=True)
    path.write_bytes(packed)
    assert [line for _, line in files.read_text_lines(path)] == text.splitlines()
    for damaged in (packed[: len(packed) // 2], b"not compressed at all"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.txt\.zst: the archive is damaged"):
            list(files.read_text_lines(path))
    monkeypatch.setattr(files, "FREE", 1000)
    path.write_bytes(pyarrow.compress(b"x\n" * 5_000_000, "zstd", asbytes=True))
    with pytest.raises(UserError, match="expands to more than"):
        list(files.read_text_lines(path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs pyarrow; pip install"):
        list(files.read_text_lines(path))
