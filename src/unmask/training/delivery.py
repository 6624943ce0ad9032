"""Copies of a folder of the main process's run directory for hosts that do not share it.

Input: a folder that the main process has prepared, such as a corpus. Output: the same folder at the same path for all
processes. Where it is missing or differs, one process of those that see the same directory receives and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import torch

from unmask.support.durable import acquire, replaced_directory
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256
from unmask.support.messages import argument
from unmask.training.processes import Processes
from unmask.training.runs.directory import MARK

CHUNK = 1 << 24
"""Number of bytes that are sent at once."""
SMALL = 1 << 20
"""Files up to this size are compared by their content, others, whose checksums are in these, by their size."""


def deliver(processes: Processes, folder: Path) -> None:
    """Give all processes a folder of the main one; all of them must call it.

    Raises:
        UserError: there is another folder of this name, which unmask has not made.
        OSError: it cannot be read or written.
    """
    if processes.size == 1:
        return
    content = processes.broadcast(_content(folder) if processes.is_main else {})
    lacks = _content(folder) != content
    if lacks and folder.exists() and not (folder / MARK).exists():
        raise UserError(
            "this folder was not made by unmask, and is not that of process 0",
            file=folder,
            remedy=f"choose another {argument('out')}",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = acquire(folder.with_name(f".{folder.name}.receiving")) if lacks else None
    try:
        if any(processes.gather(lock is not None)):
            _send(processes, folder, content, receives=lock is not None)
        processes.barrier()
    finally:
        if lock is not None:
            lock.release()
    if not all(processes.gather(_content(folder) == content)):
        raise UserError("the copies of this folder of process 0 differ", file=folder, remedy="start the run again")


def _send(processes: Processes, folder: Path, content: Mapping[str, tuple[int, str]], *, receives: bool) -> None:
    """Send the files of a folder to all processes; those that receive them write the folder."""
    with ExitStack() as stack:
        aside = stack.enter_context(replaced_directory(folder)) if receives else folder
        for name, (size, _) in content.items():
            with ExitStack() as opened:
                file: BinaryIO | None = None
                if receives:
                    (aside / name).parent.mkdir(parents=True, exist_ok=True)
                    file = opened.enter_context((aside / name).open("xb"))
                elif processes.is_main:
                    file = opened.enter_context((folder / name).open("rb"))
                for start in range(0, size, CHUNK):
                    count = min(CHUNK, size - start)
                    part = bytearray(count)
                    if processes.is_main and file is not None and file.readinto(part) != count:  # type: ignore[attr-defined]
                        raise UserError("the file was changed while it was sent", file=folder / name)
                    buffer = torch.frombuffer(part, dtype=torch.uint8)  # (count,)
                    processes.broadcast_into(buffer)
                    if receives and file is not None:
                        file.write(part)


def _content(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and, of small files, checksum of each file in a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path: path.stat().st_size for path in files}
    return {
        path.relative_to(folder).as_posix(): (size, sha256(path) if size <= SMALL else "")
        for path, size in sizes.items()
    }
