"""Division of large files by tasks, before a corpus is built from their sections (data/text/dividing.py).

Input: files, and how many bytes a task is to have. Output: the sections of each file, the same for any number of
processes.

    scan 1, 2, …    from a place in a file to the next -> where records begin there, and how many there are
    divide          -> the sections of all files
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.text.dividing import AHEAD, Scan, form_of, join_scans, scan
from unmask.data.text.documents import TextOptions, resolve_documents
from unmask.data.text.record_files import fingerprint_source
from unmask.data.text.section import Section
from unmask.support.choices import as_url
from unmask.support.stores import look_up
from unmask.support.urls import Url, address_of
from unmask.workflows.corpora.tasks import Task, check_failures, work, work_together

JOIN = "unmask.workflows.corpora.dividing:join"
"""What other processes call."""
Bounds = tuple[int, int, int]
"""Start, stop and number of records before a section."""


class LargeFile(msgspec.Struct, frozen=True):
    """A file that can be divided: its number, path or address, form (`form_of`) and size in bytes."""

    index: int
    path: str
    form: str
    size: int


class Division(msgspec.Struct, frozen=True):
    """What is divided, as other processes are told.

    Attributes:
        folder: that of the tasks.
        end: what exists once the corpus is built.
        current: the current folder, in which relative paths are.
        files: the files.
        task_bytes: number of bytes from each place in a file to the next.
    """

    folder: str
    end: str
    current: str
    files: list[LargeFile]
    task_bytes: int

    def places(self, file: LargeFile) -> list[int]:
        """Return the places at which a file is to be divided: the last section has up to twice as many bytes."""
        return [number * self.task_bytes for number in range(file.size // self.task_bytes)]


def size_of(path: str | Path) -> int:
    """Return the size of a file, or of a section of one, in bytes as it is stored."""
    if isinstance(path, Section):
        return path.stop - path.start
    return look_up(path)[0] if isinstance(path, Url) else Path(path).stat().st_size


def large_files(paths: Sequence[str | Path], options: TextOptions, task_bytes: int) -> list[LargeFile]:
    """Return those of some files that have at least two tasks of bytes, and can be divided."""
    if "-" in map(str, paths):
        return []
    documents = resolve_documents(paths, options)
    return [
        LargeFile(index, address_of(path) or str(path), form, size)
        for index, path in enumerate(paths)
        if (size := size_of(path)) >= 2 * task_bytes and (form := form_of(path, options, documents))
    ]


def divide(
    files: Sequence[LargeFile],
    folder: Path,
    end: Path,
    *,
    task_bytes: int,
    workers: int,
    engine: str,
    report: Callable[[str], None],
) -> dict[int, list[Bounds]]:
    """Divide files.

    Args:
        files: the files.
        folder: that of the tasks.
        end: what exists once the corpus is built.
        task_bytes, workers, engine, report: see `Division` and `build_by_tasks`.

    Returns:
        The sections of each file, by its number; none if another host has completed the build.

    Raises:
        UnmaskError: tasks failed.
    """
    if not files:
        return {}
    division = Division(str(folder), str(end), str(Path.cwd()), list(files), task_bytes)
    tasks = _tasks(division)
    call = work_together(tasks, JOIN, division, workers=workers, engine=engine, report=report, end=end)
    check_failures(tasks, call, folder)
    value = tasks[-1].value
    if value is None and end.exists():
        return {}
    found = msgspec.convert(value, list[list[Bounds]])
    return {file.index: bounds for file, bounds in zip(files, found, strict=True)}


def join(division: str, call: str) -> None:
    """Work on a division; what another process runs."""
    decoded = msgspec.json.decode(division, type=Division)
    with chdir(decoded.current):
        work(_tasks(decoded), call, lambda line: None, Path(decoded.end))


def _tasks(division: Division) -> list[Task]:
    """Return all tasks; the last one, which needs all others, divides."""
    folder, most = Path(division.folder), 2 * division.task_bytes + 4 * AHEAD
    scans: list[list[Task]] = []
    number = 0
    for file in division.files:
        path, tasks = as_url(file.path), list[Task]()
        for low, high in pairwise(division.places(file)):
            number += 1
            read = Section(path, low, min(file.size, low + most), 0, is_last=False)
            made_from = partial(_content, read, file.form, high)
            run = partial(_scan, path, file.form, low, high, most)
            tasks.append(Task(f"scan {number}", folder / f"scan-{number}", made_from, run))
        scans.append(tasks)
    needs, sizes = [task for tasks in scans for task in tasks], [file.size for file in division.files]
    return [*needs, Task("divide", folder / "divide", lambda: sizes, partial(_divide, division, scans), needs)]


def _divide(division: Division, scans: Sequence[Sequence[Task]], place: Path) -> list[list[Bounds]]:
    """Return the sections of each file."""
    found = []
    for file, tasks in zip(division.files, scans, strict=True):
        known = [msgspec.convert(value, Scan) for task in tasks if (value := task.value) is not None]
        sections = join_scans(as_url(file.path), file.form, division.places(file), file.size, known)
        found.append([(section.start, section.stop, section.before) for section in sections])
    return found


def _content(read: Section, form: str, high: int) -> list[Any]:
    """Return what a scan depends on: the bytes that it may read."""
    return [look_up(Url(read.address)) if read.address else fingerprint_source(read), read.start, form, high]


def _scan(path: str | Path, form: str, low: int, high: int, most: int, place: Path) -> dict[str, Any]:
    """Find a section."""
    return msgspec.to_builtins(scan(path, form, low, high, most=most))
