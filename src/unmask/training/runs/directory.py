"""The directory of a run: it documents the run, and the run can be resumed from it.

RUN/
  recipe.toml      the recipe, with all settings resolved
  provenance.json  version, command, libraries, hardware, and fingerprints of all inputs
  metrics.jsonl    one line per step and per evaluation
  usage.json       what each start of the program has used of the machine
  events/          the same for TensorBoard, if it is installed
  plots/*.svg      the same as plots
  checkpoints/     see training/checkpoint.py
  text/            tokenizer and corpus, if the run started from raw text
  search/          the short runs by which the learning rate was chosen, if it was searched
  model/           the trained model: a Hugging Face directory
  report.md        what was trained, on which data, the results, and how to use the model
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from filelock import FileLock

from unmask.support.durable import acquire, check_directory, is_locked, named, replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import differences, versions
from unmask.support.messages import argument, rendered
from unmask.support.settings import flatten
from unmask.support.urls import without_secrets
from unmask.training.runs.extras import Sinks
from unmask.training.runs.usage import FILE as USAGE
from unmask.training.runs.usage import Usage, UsageLog, read_usage

LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors")
CHECKPOINTS = "checkpoints"
"""Folder of a run with its checkpoints; its only name in the source (docs and tests spell it out)."""
PREPARED = "text"
"""Folder of a run with the tokenizer and corpus that are made from raw text before the run starts (pretrain text)."""
SEARCHED = "search"
"""Folder of a run with the short runs by which its learning rate was chosen (pretrain search)."""
FEATURES = "features"
"""Folder with the features of a frozen encoder until the run, or all of several runs that share them, have ended."""
FOLDS = "folds"
"""Folder of a run with the models by which its probabilities are calibrated, until it has ended (finetuning folds)."""
BEFORE = (PREPARED, SEARCHED, FEATURES, FOLDS)
"""Folders that may exist before the run starts."""
MARK = ".made-by-unmask"
"""File that marks these folders, so that no other folder of such a name is ever removed; it records their inputs."""
RESCUED = "rescued"
"""Folder in that of the checkpoints with those that other processes have saved (training/restoring.py)."""
FIRST = "step-00000000"
"""The checkpoint that is written before the first step."""
PARTS = {".recipe.toml.part", ".provenance.json.part"}
UNSTARTED = {*PARTS, "recipe.toml", "provenance.json", "metrics.jsonl", USAGE, f".{USAGE}.part", "events", CHECKPOINTS}
"""Entries that may exist in a run directory before the first checkpoint; its preparation is kept (`BEFORE`)."""
_KEPT: dict[Path, FileLock] = {}
"""Locks of the directories in which runs were prepared, until they start: another program must not start them first."""
_Read = TypeVar("_Read")


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """provenance.json: the origin of a run.

    Attributes:
        unmask, python, platform, libraries: versions.
        command: the command line.
        machine: machine that the run was last computed on, with `matmul_flops_per_second` if it was measured.
        inputs: fingerprints of the inputs.
    """

    unmask: str
    command: list[str]
    python: str
    platform: str
    libraries: dict[str, str]
    machine: dict[str, Any]
    inputs: dict[str, str]

    @classmethod
    def of_this_process(cls, inputs: Mapping[str, str], machine: Mapping[str, Any]) -> Provenance:
        """Return the origin of a run that this process starts."""
        libraries = versions(LIBRARIES)
        return cls(
            unmask=libraries.pop("unmask"),
            command=[without_secrets(word.encode("utf8", "backslashreplace").decode()) for word in sys.argv],
            python=platform.python_version(),
            platform=platform.platform(),
            libraries=libraries,
            machine=dict(machine),
            inputs=dict(inputs),
        )

    def other_versions(self) -> list[str]:
        """Return which versions are not those of this process, such as "torch was 2.12.0, now 2.13.0"."""
        return differences({"unmask": self.unmask, **self.libraries}, versions(LIBRARIES))


class RunDirectory:
    """Directory of a run (see the module docstring), locked so that no second program writes to the same run.

    Attributes:
        path, checkpoints, model, plots, metrics: paths of the directory and its entries.
        changed: dotted keys of the recipe that a resumed run has changed.
        is_main: whether this is the main process; the others read and write nothing.
    """

    def __init__(self, path: Path, *, is_main: bool = True) -> None:
        self.path = path
        self.is_main = is_main
        self.checkpoints = path / CHECKPOINTS
        self.model = path / "model"
        self.plots = path / "plots"
        self.metrics = path / "metrics.jsonl"
        self.changed: frozenset[str] = frozenset()
        self._sinks = Sinks(path)
        self._recipe = ""
        self._inputs: Mapping[str, str] = {}
        self._held: FileLock | None = None
        self._is_new = False
        self._usage: UsageLog | None = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close()
        failed = kind is not None and issubclass(kind, Exception)
        if failed and self._is_new and not self.checkpoints.exists():
            self.forget_unstarted(self.path)  # so that the same command can be given again

    @classmethod
    def create(cls, path: Path, recipe: str, inputs: Mapping[str, str], machine: Mapping[str, Any]) -> RunDirectory:
        """Create the directory of a new run; it must be empty or not exist, or hold a run that had not saved a step.

        Raises:
            UserError: the directory is not empty, is in use, or cannot be written.
        """
        run = cls(path)
        run._is_new = True
        try:
            cls.forget_unstarted(path)
            cls.check_empty(path)
            path.mkdir(parents=True, exist_ok=True)
            run._lock()
            cls.check_empty(path)  # another program may have ended meanwhile
            run._write_provenance(Provenance.of_this_process(inputs, machine))
            replace_file(path / "recipe.toml", recipe.encode())
        except BaseException as error:
            run.close()
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise
        return run

    @staticmethod
    def check_empty(path: Path) -> None:
        """Raise a UserError if a directory has any content other than what was prepared for a run, or is none."""
        check_directory(path)
        entries = {entry.name for entry in path.iterdir()} - {".lock", *PARTS} if path.is_dir() else set()
        if entries - {name for name in BEFORE if _is_ours(path / name)}:
            raise UserError(
                "the run directory is not empty",
                file=path,
                remedy=f"choose another {argument('out')}, or continue with {argument('resume', True)}",
            )

    @classmethod
    def forget_unstarted(cls, path: Path) -> None:
        """Remove the files of a run that ended before it saved a step, but keep what was prepared for it.

        Raises:
            UserError: the run is in use.
        """
        entries = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if "provenance.json" not in entries or entries - {".lock", *BEFORE, *UNSTARTED}:  # written first, removed last
            return
        if any(saved.name != FIRST for saved in saved_steps(path)):
            return
        with cls(path) as run:
            run._lock()
            run.read_provenance()
            for name in sorted(UNSTARTED & entries, key=lambda name: name == "provenance.json"):
                entry = path / name
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    @classmethod
    @contextmanager
    def reserved(cls, path: Path, made_from: bytes = b"") -> Iterator[Path]:
        """Yield the folder in which to prepare a run; until this process has, no other one can start a run there.

        Args:
            path: directory of the run.
            made_from: identifies what is prepared and its inputs. The results of an interrupted preparation are kept if
                it is the same; if it is empty or differs, the folder is emptied.

        Raises:
            UserError: the directory is not empty, is in use, or cannot be written.
        """
        run = cls(path)
        cls.forget_unstarted(path)
        cls.check_empty(path)
        folder = path / PREPARED
        try:
            path.mkdir(parents=True, exist_ok=True)
            run._lock()
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            if not made_from or cls.prepared_from(path) != made_from:
                _empty(folder, made_from)
            yield folder
        except BaseException:
            run.close()
            raise
        _KEPT[path.resolve()] = cast(FileLock, run._held)

    @staticmethod
    def prepared_from(path: Path) -> bytes:
        """Return the `made_from` of the folder that `reserved` yielded; empty if there is none."""
        mark = path / PREPARED / MARK
        return mark.read_bytes() if mark.is_file() else b""

    @classmethod
    def resume(
        cls,
        path: Path,
        recipe: str,
        inputs: Mapping[str, str],
        may_change: frozenset[str],
    ) -> RunDirectory:
        """Reopen the directory of a run that was started with the same recipe and inputs.

        Args:
            path: directory of the run.
            recipe: the current recipe, as TOML.
            inputs: fingerprints of the current inputs.
            may_change: dotted keys that may differ (the budget).

        Raises:
            UserError: there is no run, it is in use, or something differs (all differences are listed).
        """
        run = cls(path)
        if not (path / "recipe.toml").is_file():
            raise UserError(
                "there is no run to resume",
                file=path,
                remedy=f"check {argument('out')}, or start without {argument('resume')}",
            )
        run._recipe, run._inputs = recipe, inputs
        try:
            run._lock()
            before, now = run._started_with(), run._resumed_with()
            if changed := differences(before, now, ignored=may_change):
                raise UserError(
                    f"the settings or inputs differ from those of the run: {'; '.join(changed)}",
                    file=path,
                    remedy="resume with the same command, or start another run",
                )
        except BaseException:
            run.close()
            raise
        run.changed = frozenset(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        return run

    @classmethod
    def of_another_process(
        cls, path: Path, recipe: str, inputs: Mapping[str, str], changed: frozenset[str]
    ) -> RunDirectory:
        """Return the directory of a run in a process that is not the main one; see `resume` for the parameters.

        It is not accessed; on another host it need not exist.
        """
        run = cls(path, is_main=False)
        run._recipe, run._inputs, run.changed = recipe, inputs, changed
        return run

    def is_of_this_run(self, may_change: frozenset[str]) -> bool:
        """Return whether a directory on the host of another process than the main one holds this run."""
        try:
            return not differences(self._started_with(), self._resumed_with(), ignored=may_change)
        except UserError:
            return False

    def document(self, machine: Mapping[str, Any]) -> None:
        """Write recipe and provenance where they are missing, on the host of another process than the main one.

        Raises:
            OSError: they cannot be written.
        """
        if not (self.path / "recipe.toml").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_provenance(Provenance.of_this_process(self._inputs, machine))
            replace_file(self.path / "recipe.toml", self._recipe.encode())

    def _started_with(self) -> dict[str, Any]:
        """Return the run's recipe and input fingerprints, with dotted keys."""
        inputs = self.read_provenance().inputs
        return flatten(self.read_recipe()) | {f"inputs.{name}": value for name, value in inputs.items()}

    def _resumed_with(self) -> dict[str, Any]:
        """Return the current recipe and input fingerprints, with dotted keys."""
        recipe = flatten(msgspec.toml.decode(self._recipe))
        return recipe | {f"inputs.{name}": value for name, value in self._inputs.items()}

    def settle(self) -> None:
        """Write the recipe of a resumed run, once a checkpoint includes its changes."""
        if self.is_main:
            replace_file(self.path / "recipe.toml", self._recipe.encode())

    def describe_machine(self, description: Mapping[str, Any]) -> None:
        """Write the machine that the run now uses to provenance.json."""
        if self.is_main:
            self._write_provenance(msgspec.structs.replace(self.read_provenance(), machine=dict(description)))

    def save_usage(self, *, processes: int | None = None, gpus: int | None = None) -> None:
        """Write what the run has used until now; see `UsageLog` for the parameters; None: as before."""
        if self._usage is not None:
            self._usage.processes = self._usage.processes if processes is None else processes
            self._usage.gpus = self._usage.gpus if gpus is None else gpus
            self._usage.save()

    def read_usage(self) -> list[Usage]:
        """Return what each start of the program has used for this run, as it was last written, also to search its rate.

        Raises:
            UserError: the file is damaged.
        """
        runs = (*sorted((self.path / SEARCHED).glob("x*")), self.path)
        return [usage for run in runs for usage in read_usage(run / USAGE)]

    def report(self, text: str) -> None:
        """Write report.md, with references to parameters and commands as in messages."""
        replace_file(self.path / "report.md", rendered(text).encode())

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl, and pass it on to TensorBoard and other sinks (training/runs/extras.py).

        Args:
            metrics: values by name, including "kind" and "step".
        """
        if not self.is_main:
            return
        with named(self.metrics), self.metrics.open("ab") as file:
            file.write(msgspec.json.encode(metrics) + b"\n")
        self._sinks.write(metrics)

    def read_metrics(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of one kind ("train", "heldout") in order."""
        return [line for line in self._lines() if line["kind"] == kind]

    def cut_metrics(self, step: int) -> None:
        """Remove the lines after a step and its evaluation, because a resumed run will log them again.

        These may have the same step: what the end of a run logs, such as the evaluation of a mean of the weights.
        """
        if not self.is_main or not self.metrics.exists():
            return
        lines = [line for line in self._lines() if line["step"] <= step]
        kinds = [(line["kind"], line["step"]) for line in lines]
        if ("train", step) in kinds:
            end = kinds.index(("train", step)) + 1
            end += kinds[end : end + 1] == [("heldout", step)]
            del lines[end:]
        replace_file(self.metrics, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def read_recipe(self) -> dict[str, Any]:
        """Return the contents of recipe.toml.

        Raises:
            UserError: there is no run, or the file is damaged.
        """
        return self._read("recipe.toml", lambda content: msgspec.toml.decode(content, type=dict[str, Any]))

    def read_provenance(self) -> Provenance:
        """Return the contents of provenance.json.

        Raises:
            UserError: there is no run, or the file is damaged.
        """
        return self._read("provenance.json", lambda content: msgspec.json.decode(content, type=Provenance))

    def is_in_use(self) -> bool:
        """Return whether a program is writing to this run."""
        return is_locked(self.path / ".lock")

    def close(self) -> None:
        """Close the sinks and release the lock."""
        self._sinks.close()
        if self._held is not None:
            self._held.release()
            self._held = None

    def _lock(self) -> None:
        self._held = _KEPT.pop(self.path.resolve(), None) or acquire(self.path / ".lock")
        if self._held is None:
            raise UserError(
                "another program is writing to this run",
                file=self.path,
                remedy=f"wait for it or choose another {argument('out')}",
            )
        self._usage = UsageLog(self.path / USAGE)

    def _lines(self) -> Iterator[dict[str, Any]]:
        for text in self.metrics.read_bytes().splitlines() if self.metrics.exists() else ():
            with suppress(msgspec.DecodeError):  # a line truncated by a kill, or still being written
                line = msgspec.json.decode(text, type=dict[str, Any])
                if "kind" in line and isinstance(line.get("step"), int):
                    yield line

    def _write_provenance(self, provenance: Provenance) -> None:
        replace_file(self.path / "provenance.json", msgspec.json.format(msgspec.json.encode(provenance)))

    def _read(self, name: str, decode: Callable[[bytes], _Read]) -> _Read:
        try:
            return decode((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            inside = sorted(self.path.glob("*/recipe.toml"))  # runs of several seeds that are not finished
            remedy = f"pass a run in it: {inside[0].parent}" if inside else f"pass the {argument('out')} of a run"
            raise UserError(f"this is not a run: there is no {name}", file=self.path, remedy=remedy) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(f"the file is damaged ({error})", file=self.path / name) from error


def saved_steps(path: Path) -> Iterator[Path]:
    """Return the checkpoints of a run, including those that other processes than the main one have saved."""
    return (path / CHECKPOINTS).rglob("step-*")


def _is_ours(folder: Path) -> bool:
    """Return whether a folder has the mark, or nothing else than the beginning of it."""
    return (folder / MARK).exists() or (
        folder.is_dir() and {path.name for path in folder.iterdir()} <= {f".{MARK}.part"}
    )


def _empty(folder: Path, made_from: bytes) -> None:
    """Empty a folder for `RunDirectory.reserved`, in an order that keeps the mark correct if it is interrupted."""
    folder.mkdir(exist_ok=True)
    replace_file(folder / MARK, b"")
    for entry in folder.iterdir():
        if entry.name != MARK:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    replace_file(folder / MARK, made_from)


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"the run directory cannot be written ({error.strerror})", file=path, remedy=f"choose another {argument('out')}"
    )
