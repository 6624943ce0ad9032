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

import msgspec
import safetensors
import safetensors.torch
from torch import Tensor

from unmask.data.batches.sources import Cursor
from unmask.support.durable import create, named, sync
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import sha256
from unmask.support.messages import argument
from unmask.support.tensor_file import in_order, write_tensors
from unmask.training.shards import Shards

MODEL_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
CARRY_FILE, BEST_FILE = "carry.safetensors", "best.safetensors"
KEPT = 2
"""Number of newest checkpoints that are kept."""
WRITING = ".writing-"
"""Start of the name of a checkpoint's directory while it is written."""


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
    cursor: Cursor

    def advance(self, tokens: int, cursor: Cursor, seconds: float) -> None:
        """Count a step of `tokens` tokens, after which the position in the order of samples is `cursor`."""
        self.step += 1
        self.tokens += tokens
        self.cursor = cursor
        self.seconds += seconds


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

    def save(
        self,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        progress: Progress,
        carry: Mapping[str, Tensor] | None = None,
        shards: Shards | None = None,
        best: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Wait for the previous checkpoint, copy everything but `best`, and start to write it.

        With `shards`, model, optimizer and best are this process's rows, and all processes must call it: what the
        others have is written as the main process receives it, and only then does the work go on in the background.

        Raises:
            UnmaskError: the previous checkpoint could not be written, or this one with `shards`.
        """
        self.wait()
        progress = msgspec.structs.replace(progress)
        if shards is None:
            parts = copied(model), copied(optimizer)
            work = partial(save_checkpoint, self.folder, *parts, progress, copied(carry or {}), best)
        else:
            write_gathered(self.folder, model, optimizer, progress.step, shards, best)
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


def save_checkpoint(
    folder: Path,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    progress: Progress,
    carry: Mapping[str, Tensor] | None = None,
    best: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write a checkpoint to RUN/checkpoints, make it durable, update `latest`, and remove the oldest checkpoints.

    Args:
        folder: RUN/checkpoints.
        model: the weights.
        optimizer: the optimizer's state.
        progress: the run's progress.
        carry: the state of all streams, if there is any.
        best: the weights of the lowest held-out loss, if a step before has them.

    Raises:
        UnmaskError: it could not be written (for example because the disk is full); older checkpoints are unchanged.
    """
    with _writing(folder, progress.step) as aside:
        _begin(aside)
        _write(aside / MODEL_FILE, safetensors.torch.save(dict(model)))
        _write(aside / OPTIMIZER_FILE, safetensors.torch.save(dict(optimizer)))
        for file, tensors in ((CARRY_FILE, carry), (BEST_FILE, best)):
            if tensors:
                _write(aside / file, safetensors.torch.save(dict(tensors)))
        return _finish(aside, progress)


def write_gathered(
    folder: Path,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    step: int,
    shards: Shards,
    best: Mapping[str, Tensor] | None = None,
) -> None:
    """Begin a checkpoint: write the tensors of which each process has some rows; all processes must call it.

    Args:
        folder: RUN/checkpoints of the main process, which writes.
        model: this process's rows of the weights.
        optimizer: those of the optimizer's state.
        step: the run's step.
        shards: gathers the rows.
        best: those of the weights of the lowest held-out loss, if a step before has them.

    Raises:
        UnmaskError: it could not be written; older checkpoints are unchanged.
    """
    main = shards.processes.is_main
    with _writing(folder, step) if main else nullcontext(folder) as aside:
        if main:
            _begin(aside)
        files = {MODEL_FILE: model, OPTIMIZER_FILE: optimizer, **({BEST_FILE: best} if best else {})}
        for file, parts in files.items():
            described = {name: (part.dtype, shards.shape(name, part)) for name, part in parts.items()}
            gathered = (shards.gather(name, parts[name]) for name in in_order(described))
            if main:
                write_tensors(aside / file, described, (tensor for tensor in gathered if tensor is not None))
            else:
                deque(gathered, maxlen=0)


def finish_gathered(folder: Path, progress: Progress) -> Path:
    """Finish the checkpoint that `write_gathered` has begun; see `save_checkpoint`."""
    with _writing(folder, progress.step) as aside:
        for file in aside.iterdir():
            sync(file)
        return _finish(aside, progress)


def _begin(aside: Path) -> None:
    """Create the directory in which a checkpoint is written."""
    for left in aside.parent.glob(".*-step-*"):  # left by a save that was killed
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)


def _finish(aside: Path, progress: Progress) -> Path:
    """Make the checkpoint whose tensors are in a directory durable and the newest one; return its final path."""
    folder = aside.parent
    final = folder / aside.name.removeprefix(WRITING)
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


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress]:
    """Return the weights, the optimizer's state and the progress of a valid checkpoint."""
    return (
        safetensors.torch.load_file(path / MODEL_FILE),
        safetensors.torch.load_file(path / OPTIMIZER_FILE),
        msgspec.json.decode((path / "progress.json").read_bytes(), type=Progress),
    )


def load_carry(path: Path) -> dict[str, Tensor]:
    """Return the state of all streams, (streams, ...) each, of a valid checkpoint; {} if it has none."""
    return _load(path / CARRY_FILE)


def load_best(path: Path) -> dict[str, Tensor]:
    """Return the weights of the lowest held-out loss, of a valid checkpoint; {} if it has none."""
    return _load(path / BEST_FILE)


def _load(file: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(file) if file.exists() else {}


def _write(path: Path, content: bytes) -> None:
    with named(path), create(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors in the host's memory, without graph."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
