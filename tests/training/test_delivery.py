"""Folders of the main process reach hosts that do not share its directory, once per host, and unchanged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.support.errors import UserError
from unmask.training import restoring as delivery
from unmask.training.restoring import deliver
from unmask.training.runs.directory import MARK

from .together import together


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def made(folder, content):
    for name, text in {MARK: b"", **content}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return folder


@given(
    st.dictionaries(st.sampled_from(["a", "b.npy", "corpus/c", "corpus/deep/d"]), st.binary(max_size=40), max_size=4),
    st.integers(1, 17),
)
def test_each_host_has_the_folder_of_the_first(tmp_path_factory, content, chunk):
    root = tmp_path_factory.mktemp("hosts")
    made(root / "0" / "text", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "CHUNK", chunk)
        assert together(3, lambda processes: deliver(processes, root / str(processes.rank) / "text")) == [None] * 3
    for host in "12":
        assert files(root / host / "text") == files(root / "0" / "text")


def test_processes_of_one_host_write_it_once_and_another_time_nothing(tmp_path, monkeypatch):
    content = np.random.default_rng(0).bytes(3 * delivery.SMALL)
    made(tmp_path / "first" / "text", {"corpus/large": content, "corpus/small": b"checksums"})
    written = []
    send = delivery._send

    def counted(processes, folder, content, *, receives):
        written.extend([processes.rank] * receives)
        send(processes, folder, content, receives=receives)

    monkeypatch.setattr(delivery, "_send", counted)
    hosts = ["first", "first", "second", "second", "second"]
    for _ in range(2):
        assert together(5, lambda one: deliver(one, tmp_path / hosts[one.rank] / "text")) == [None] * 5
    assert len(written) == 1
    assert hosts[written[0]] == "second"
    assert files(tmp_path / "second" / "text")["corpus/large"] == content


def test_another_folder_is_replaced_only_if_unmask_has_made_it(tmp_path):
    made(tmp_path / "0" / "text", {"a": b"new"})
    made(tmp_path / "1" / "text", {"a": b"old", "b": b"left"})
    assert together(2, lambda one: deliver(one, tmp_path / str(one.rank) / "text")) == [None, None]
    assert files(tmp_path / "1" / "text") == {MARK: b"", "a": b"new"}
    (tmp_path / "1" / "text" / MARK).unlink()
    made(tmp_path / "0" / "text", {"a": b"newer"})
    error = together(2, lambda one: deliver(one, tmp_path / str(one.rank) / "text"))[1]
    assert isinstance(error, UserError)
    assert "text: this folder was not made by unmask" in str(error)
    assert files(tmp_path / "1" / "text") == {"a": b"new"}


def test_a_copy_that_differs_is_noticed(tmp_path, monkeypatch):
    made(tmp_path / "0" / "text", {"a": b"abc"})
    monkeypatch.setattr(delivery, "_send", lambda *arguments, receives: None)
    errors = together(2, lambda one: deliver(one, tmp_path / str(one.rank) / "text"))
    assert all(isinstance(error, UserError) for error in errors)
