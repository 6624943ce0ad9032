"""Work that is divided between processes of one or several machines, which share a directory.

All run the same loop: take the first piece of work that nobody else has (a file lock says so), do it, and look again.
Who is killed loses its lock, and another one does it instead. Processes get their arguments as JSON: strings, numbers
and lists of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.support.durable import acquire, full_disk
from unmask.support.environment import num_cores
from unmask.support.errors import UserError
from unmask.support.messages import argument

ATTEMPTS = 3
"""How often work is begun whose process ends without a word, such as one that the system kills for its memory."""
PAUSE = 0.5
"""Seconds between two looks for work, while others do what is needed."""


@contextmanager
def taken(folder: Path) -> Iterator[bool]:
    """Lock the folder of a piece of work, which is created; yield whether nobody else has.

    Raises:
        UserError: it is a link.
    """
    if folder.is_symlink():
        raise UserError("is a link, and results are not written elsewhere", file=folder, remedy="remove it")
    folder.mkdir(parents=True, exist_ok=True)
    lock = acquire(folder / ".lock")
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def call_target(target: str, arguments: Sequence[Any]) -> None:
    """Call a function MODULE:NAME; what another process runs."""
    module, _, name = target.partition(":")
    getattr(import_module(module), name)(*arguments)


def work_locally(target: str, arguments: Sequence[Any]) -> None:
    """Call a function in a process of `local_workers`; the one that has started it finds a full disk, too, and says so.

    Args:
        target, arguments: see `call_target`.
    """
    try:
        call_target(target, arguments)
    except OSError as error:
        if full_disk(error) is None:
            raise
        sys.exit(1)


@contextmanager
def local_workers(count: int, target: str, arguments: Sequence[Any]) -> Iterator[None]:
    """Start processes that work beside this one, and wait for their end.

    Args:
        count: how many.
        target: the function that they call, as MODULE:NAME.
        arguments: its arguments, as JSON can represent them; other users of the machine cannot see them.
    """
    function = work_locally.__name__
    code = f"import json, sys; from {__name__} import {function}; {function}(*json.load(sys.stdin))"
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, num_cores() // (count + 1)))}
    processes = [
        subprocess.Popen([sys.executable, "-P", "-c", code], env=environment, stdin=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            with process.stdin as stream:
                json.dump([target, list(arguments)], stream)
        yield
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def work_on_ray(count: int, target: str, arguments: Sequence[Any]) -> None:
    """Work in tasks of a Ray cluster whose machines share the directory; a task whose machine is lost starts anew.

    Args:
        count: how many tasks.
        target, arguments: see `local_workers`.

    Raises:
        UserError: Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{argument('engine', 'ray')} needs Ray", remedy="pip install 'unmask[cluster]'") from error
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    task = ray.remote(num_cpus=1, max_retries=-1, retry_exceptions=False)(call_target)
    try:
        ray.get([task.remote(target, list(arguments)) for _ in range(count)])
    finally:
        ray.shutdown()
