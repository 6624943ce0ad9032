"""Checkpoints: everything that an exact resume needs, written to a temporary directory, checksummed, then renamed.

    RUN/checkpoints/step-00001000/  model.safetensors  optimizer.safetensors  progress.json  manifest.json
                                    carry.safetensors, if state is carried from step to step
                                    best.safetensors, with early stopping: the weights of the lowest held-out loss
    RUN/checkpoints/latest          name of the newest checkpoint; updated only once that one is durable

A checkpoint has no random state: every generator is derived from a key (data/batches/rng.py). Tensors are whole,
however they are distributed over processes, so that any number of processes can continue in any way. If they are
sharded, the main process receives and writes one after the other; then the files are flushed and checksummed in the
background.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import safetensors
import safetensors.torch
from torch import Tensor

from unmask.data.batches.sources import Cursor
from unmask.support.durable import create, named, sync
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import sha256
from unmask.support.messages import argument
from unmask.support.tensor_file import in_order, save_tensors, write_tensors
from unmask.training.shards import Shards

MODEL_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
CARRY_FILE, BEST_FILE = "carry.safetensors", "best.safetensors"
KEPT = 2
"""Number of newest checkpoints that are kept."""
WRITING = ".writing-"
"""Start of the name of a checkpoint's directory while it is written."""


class Timing(msgspec.Struct, frozen=True):
    """How long steps take, by which a budget in minutes is planned.

    Attributes:
        stages: seconds per step of each stage, as they were timed.
        step: number of steps when the budget was last planned.
        seconds: time that they had taken.
    """

    stages: tuple[float, ...]
    step: int
    seconds: float


class Progress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Progress of a run.

    Attributes:
        step: optimizer steps done.
        total: steps of the whole budget.
        tokens: tokens trained on, including special tokens.
        seconds: time spent in steps, without evaluations.
        skipped: steps that were skipped because the loss or gradient was not finite.
        loss_scale: factor of the loss in fp16 (`LossScale`); 0: not chosen yet.
        finite_steps: steps since the factor was last changed.
        micro_tokens: tokens per micro-batch, from the recipe or measured.
        threads: number of threads the run was started with; with another number sums are rounded differently.
        timing: how long steps take; None: they were not timed.
        cursor: position in the order of samples.
    """

    step: int = 0
    total: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    loss_scale: float = 0.0
    finite_steps: int = 0
    micro_tokens: int = 0
    threads: int = 0
    timing: Timing | None = None
    cursor: Cursor

    def advance(self, tokens: int, cursor: Cursor, seconds: float) -> None:
        """Count a step of `tokens` tokens, after which the position in the order of samples is `cursor`."""
        self.step += 1
        self.tokens += tokens
        self.cursor = cursor
        self.seconds += seconds


class State(NamedTuple):
    """The state of a run.

    Attributes:
        model: the weights.
        optimizer: the optimizer's state.
        progress: the run's progress.
        carry: the state of all streams, (streams, ...) each, if there is any.
        best: the weights of the lowest held-out loss, if a step before has them.
    """

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    progress: Progress
    carry: Mapping[str, Tensor] = {}
    best: Mapping[str, Tensor] = {}


class Checksums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sha256 of each file of a checkpoint."""

    files: dict[str, str]


class Saver:
    """Background writer of checkpoints, one at a time; it saves the values at the time of the call.

    Args:
        folder: RUN/checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pending: Future[Path] | None = None

    def save(self, state: State, shards: Shards | None = None) -> None:
        """Wait for the previous checkpoint, copy everything but `best`, and start to write it.

        With `shards`, model, optimizer and best are this process's rows, and all processes must call it: what the
        others have is written as the main process receives it, and only then does the work go on in the background.

        Raises:
            UnmaskError: the previous checkpoint could not be written, or this one with `shards`.
        """
        self.wait()
        progress = msgspec.structs.replace(state.progress)
        if shards is None:
            kept = State(copied(state.model), copied(state.optimizer), progress, copied(state.carry), state.best)
            work = partial(save_checkpoint, self.folder, kept)
        else:
            write_gathered(self.folder, state, shards)
            work = partial(finish_gathered, self.folder, progress)
        if shards is None or shards.processes.is_main:
            pool = ThreadPoolExecutor(1)
            self._pending = pool.submit(work)
            pool.shutdown(wait=False)  # its thread ends with the work

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk.

        Raises:
            UnmaskError: it could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def save_checkpoint(folder: Path, state: State) -> Path:
    """Write a checkpoint to RUN/checkpoints, make it durable, update `latest`, and remove the oldest checkpoints.

    Raises:
        UnmaskError: it could not be written (for example because the disk is full); older checkpoints are unchanged.
    """
    with _writing(folder, state.progress.step) as aside:
        _begin(aside)
        for file, tensors in _files(state).items():
            with named(aside / file):
                save_tensors(aside / file, tensors)
        return _finish(aside, state.progress)


def write_gathered(folder: Path, state: State, shards: Shards) -> None:
    """Begin a checkpoint: write the tensors of which each process has some rows; all processes must call it.

    Args:
        folder: RUN/checkpoints of the main process, which writes.
        state: this process's rows of the state, which is carried from no step to the next.
        shards: gathers the rows.

    Raises:
        UnmaskError: it could not be written; older checkpoints are unchanged.
    """
    main = shards.processes.is_main
    with _writing(folder, state.progress.step) if main else nullcontext(folder) as aside:
        if main:
            _begin(aside)
        for file, parts in _files(state).items():
            described = {name: (part.dtype, shards.shape(name, part)) for name, part in parts.items()}
            gathered = (shards.gather(name, parts[name]) for name in in_order(described))
            if main:
                with named(aside / file):
                    write_tensors(aside / file, described, (tensor for tensor in gathered if tensor is not None))
            else:
                deque(gathered, maxlen=0)


def finish_gathered(folder: Path, progress: Progress) -> Path:
    """Finish the checkpoint that `write_gathered` has begun; see `save_checkpoint`."""
    with _writing(folder, progress.step) as aside:
        return _finish(aside, progress)


def _files(state: State) -> dict[str, Mapping[str, Tensor]]:
    """Return the tensors by the name of their file; there is no file without tensors that not every run has."""
    optional = {CARRY_FILE: state.carry, BEST_FILE: state.best}
    files = {MODEL_FILE: state.model, OPTIMIZER_FILE: state.optimizer}
    return files | {file: tensors for file, tensors in optional.items() if tensors}


def _begin(aside: Path) -> None:
    """Create the directory in which a checkpoint is written."""
    for left in aside.parent.glob(".*-step-*"):  # left by a save that was killed
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)


def _finish(aside: Path, progress: Progress) -> Path:
    """Make the checkpoint whose tensors are in a directory durable and the newest one; return its final path."""
    folder = aside.parent
    final = folder / aside.name.removeprefix(WRITING)
    for file in aside.iterdir():
        sync(file)
    _write(aside / "progress.json", msgspec.json.encode(progress))
    files = {path.name: sha256(path) for path in sorted(aside.iterdir())}
    _write(aside / "manifest.json", msgspec.json.encode(Checksums(files)))
    sync(aside)
    if final.exists():
        final.rename(folder / f".replaced-{final.name}")
    aside.rename(final)
    sync(folder)
    _write(folder / ".latest", final.name.encode())
    (folder / ".latest").replace(folder / "latest")
    sync(folder)
    for old in [*sorted(folder.glob("step-*"))[:-KEPT], folder / f".replaced-{final.name}"]:
        shutil.rmtree(old, ignore_errors=True)
    return final


@contextmanager
def _writing(folder: Path, step: int) -> Iterator[Path]:
    """Yield the directory in which a checkpoint is written; remove it if that fails.

    Raises:
        UnmaskError: it could not be written.
    """
    final = folder / f"step-{step:08d}"
    aside = folder / f"{WRITING}{final.name}"
    try:
        yield aside
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        earlier = any(folder.glob("step-*"))
        remedy = f"the previous one is intact: free some space, then continue with {argument('resume', True)}"
        raise UnmaskError(
            f"{final}: the checkpoint could not be written ({error.strerror or error}); "
            f"{remedy if earlier else 'free some space, then start the run again'}"
        ) from error


def newest_checkpoint(folder: Path) -> tuple[Path, list[str]]:
    """Return the newest valid checkpoint, and the errors of newer, damaged ones.

    `latest` is a hint for people and other programs: a run killed between the rename and the update of `latest` still
    resumes from the newest checkpoint.

    Raises:
        UserError: there is no valid checkpoint.
    """
    damaged = []
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            check_checkpoint(path)
        except UserError as error:
            damaged.append(error.message)
        else:
            return path, damaged
    raise UserError(
        "there is no valid checkpoint to resume from" + "".join(f"; {text}" for text in damaged),
        file=folder,
        remedy=f"start the run again in an empty directory, without {argument('resume')}",
    )


def set_newer_aside(path: Path) -> None:
    """Rename damaged checkpoints newer than `path`: counted among the newest, they would displace valid ones."""
    for other in path.parent.glob("step-*"):
        if other.name > path.name:
            aside = other.with_name(f"damaged-{other.name}")
            shutil.rmtree(aside, ignore_errors=True)
            other.rename(aside)


def check_checkpoint(path: Path) -> None:
    """Check each file of a checkpoint against the manifest.

    Raises:
        UserError: a file is missing or altered.
    """
    try:
        manifest = msgspec.json.decode((path / "manifest.json").read_bytes(), type=Checksums)
        for name, digest in manifest.files.items():
            if sha256(path / name) != digest:
                raise UserError("the file was altered or truncated", file=path / name)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"damaged checkpoint ({error})", file=path) from error


def load_checkpoint(path: Path) -> State:
    """Return the state that a valid checkpoint has."""
    progress = msgspec.json.decode((path / "progress.json").read_bytes(), type=Progress)
    model, optimizer = (safetensors.torch.load_file(path / file) for file in (MODEL_FILE, OPTIMIZER_FILE))
    carry, best = (
        safetensors.torch.load_file(path / file) if (path / file).exists() else {} for file in (CARRY_FILE, BEST_FILE)
    )
    return State(model, optimizer, progress, carry, best)


def _write(path: Path, content: bytes) -> None:
    with named(path), create(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors in the host's memory, without graph."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
