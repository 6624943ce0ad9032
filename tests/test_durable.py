"""What is written is whole; folders are made durable where the system opens them."""

import os

import pytest

from unmask import durable
from unmask.durable import replace_file, sync


def test_a_folder_is_left_alone_where_it_cannot_be_opened(tmp_path, monkeypatch):
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
    assert opened == [os.O_RDWR]  # Windows flushes no file that is open for reading


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")
