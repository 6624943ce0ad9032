"""A lock excludes other holders, ends with its process, and can be checked without creating a file."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from unmask.support import durable as lock
from unmask.support.durable import acquire, is_locked

HOLDER = """
import sys, time
from pathlib import Path
from unmask.support.durable import acquire
held = acquire(Path(sys.argv[1]))
print("held" if held else "refused", flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["fcntl", "none"])
def system(request, monkeypatch):
    """Test the check of Unix, and that of systems where it must acquire the lock."""
    if request.param == "none":
        monkeypatch.setattr(lock, "find_spec", lambda name: None if name == "fcntl" else find_spec(name))


def test_one_holds_it_at_a_time(tmp_path, system):
    path = tmp_path / ".lock"
    assert not is_locked(path)
    assert not path.exists()
    held = acquire(path)
    assert held is not None and is_locked(path)
    assert acquire(path) is None
    held.release()
    assert not is_locked(path)
    again = acquire(path)
    assert again is not None
    again.release()


def test_it_is_released_when_its_process_is_killed(tmp_path, system):
    path = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert is_locked(path) and acquire(path) is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not is_locked(path)
    held = acquire(path)
    assert held is not None
    held.release()


def test_checking_needs_no_write_permission(tmp_path, monkeypatch):
    path, real = tmp_path / ".lock", os.open
    held = acquire(path)

    def reading(name, flags, *args, **options):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied", str(name))
        return real(name, flags, *args, **options)

    monkeypatch.setattr(os, "open", reading)
    assert is_locked(path)
    monkeypatch.undo()
    held.release()
    monkeypatch.setattr(os, "open", reading)
    assert not is_locked(path)
    assert not is_locked(tmp_path / "none" / ".lock")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_raises_an_os_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        acquire(tmp_path / "file" / ".lock")
