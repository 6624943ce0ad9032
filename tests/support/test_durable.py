"""Files are replaced as a whole; directories are synced where the system can open them."""

import os

import pytest

from unmask.support import durable
from unmask.support.durable import replace_file, sync
from unmask.support.fingerprint import sha256


def test_a_directory_is_skipped_if_it_cannot_be_opened(tmp_path, monkeypatch):
    real, opened = os.open, []

    def windows(path, flags, *args):
        if os.path.isdir(path):  # noqa: PTH112
            raise PermissionError(13, "Permission denied", str(path))
        opened.append(flags)
        return real(path, flags, *args)

    monkeypatch.setattr(os, "open", windows)
    with pytest.raises(PermissionError):
        sync(tmp_path)
    monkeypatch.setattr(durable, "OPENS_FOLDERS", False)
    sync(tmp_path)
    replace_file(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert opened == [os.O_RDWR]  # Windows flushes only writable handles


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path, monkeypatch):
    replace_file(tmp_path / "file", b"old")
    monkeypatch.setattr(durable, "sync", lambda path: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "the temporary file was removed"


def test_the_checksum_is_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
