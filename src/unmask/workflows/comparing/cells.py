"""The cells of a comparison: jobs that do not depend on each other, but for what each says it needs.

    corpus -> pretraining (arm, seed) -> score (arm, task, seed) -> cost (arm)
                                         rate (arm, task) -> score
                                         bits (arm; without tasks in place of the score, of each seed)
                                         heldout -> bits
    speed -> pretraining (for minutes, where settings depend on how often the text is read)

The key of a cell is the SHA-256 of all that its result depends on: settings, contents of files and models, versions,
precision, and the keys of the cells it needs; not of names, paths or numbers of processes. Therefore a finished cell is
never computed again, and another arm or seed only adds cells.

The fingerprints of the files and the models that cells depend on are read once for a plan. A result is stored under the
fingerprints of its plan. Files that change while cells are computed would make it one of other contents, so it is not
stored then: what has other sizes or times than when it was read is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.table import ExampleTable, Source, as_sources
from unmask.data.text.files import split_part
from unmask.data.text.record_files import fingerprint_source
from unmask.model.directory import find
from unmask.support.durable import replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import Stats, fingerprint_path, fingerprint_values, sha256, stats_of_path
from unmask.support.messages import call
from unmask.workflows.comparing.settings import Arm, Comparison, TaskData

Kind = Literal[
    "look", "familiarity", "overlap", "heldout", "speed", "corpus", "pretraining", "bits", "rate", "score", "cost"
]
OUTLOOK = (0.125, 0.25, 0.5)
"""Shares of the budget that arms are also trained with, for an outlook."""
OF_ALL: tuple[Kind, ...] = ("overlap", "heldout", "speed", "corpus")
"""Cells of the text and of the machine, which arms share."""
SCORED: tuple[Kind, ...] = ("score", "bits")
"""Cells that the report shows the scores of."""
SHORT_KEY = 16
"""Number of characters of a key that name its folder."""


CELLS, RESULT, FAILED, ABOUT = "cells", "result.json", "failed.json", "cell.json"
"""Folder of all cells, and files of each: its result, why there is none, and what it is."""
RUN, CORPUS, TOKENIZER = "run", "corpus", "tokenizer"
"""Folders of a cell."""
BITS = "bits_per_character"
"""The metric of arms that are compared without tasks; less is better."""
RESAMPLED, MISTAKES = "resampled.npy", "mistakes.json"
"""Files of a score: its metrics on the resamples of the test examples, which are the same for all arms, (metrics,
resamples); and what is wrong."""
NEEDED = "needs what failed:"
"""How errors of cells begin that need a failed one."""
HELD = "heldout.jsonl"
"""File of the passages of held-out text that are predicted."""


@dataclass(frozen=True)
class Cell:
    """A job.

    Attributes:
        kind: what is computed.
        arm, task, seed: of which arm, on which task, with which seed; "" and 0 where they do not matter.
        share: the share of the budget; below 1 for an outlook.
        inputs: all that its result depends on, apart from the cells it needs, as values that JSON can represent.
        paths: where inputs are, by name, which does not matter for the result.
        needs: cells that are computed before, by what they are for.
        keeps: whether the model is kept.
    """

    kind: Kind
    inputs: Mapping[str, Any]
    arm: str = ""
    task: str = ""
    seed: int = 0
    share: float = 1.0
    paths: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Cell] = field(default_factory=dict)
    keeps: bool = False

    @cached_property
    def key(self) -> str:
        """The key, which is equal where results are."""
        needed = {name: cell.key for name, cell in self.needs.items()}
        return fingerprint_values([self.kind, self.inputs, needed])[:SHORT_KEY]

    @property
    def name(self) -> str:
        """What it is called in progress and reports."""
        parts = [self.arm, self.task, f"seed {self.seed}" if self.seed or self.kind in ("pretraining", "score") else ""]
        parts.append(f"{self.share:g} of the budget" if self.share != 1 else "")
        shown = ", ".join(part for part in parts if part)
        return f"{self.kind}: {shown}" if shown else self.kind


@dataclass(frozen=True)
class Plan:
    """What a comparison consists of.

    Attributes:
        comparison: its settings.
        arms: its arms by name.
        tasks: its tasks by name, one for each number of examples.
        cells: all cells, those that others need first; those of the first seed precede those of the second, and what
            measures speed is last.
        owners: names of the arms whose each cell is, by its key: several that have a model in common share cells.
        contents: fingerprints of the files and models that cells depend on.
    """

    comparison: Comparison
    arms: Mapping[str, Arm]
    tasks: Mapping[str, TaskData]
    cells: tuple[Cell, ...]
    owners: Mapping[str, Sequence[str]]
    contents: Contents

    @property
    def scored(self) -> Iterator[Cell]:
        """Yield the cells that decide: those of scores, or without tasks those of bits."""
        return self.of("score" if self.tasks else "bits")

    def of_arm(self, name: str) -> Iterator[Cell]:
        """Yield the cells of an arm, also those that it shares with others."""
        return (cell for cell in self.cells if name in self.owners[cell.key])

    def of(self, kind: Kind) -> Iterator[Cell]:
        """Yield the cells of a kind."""
        return (cell for cell in self.cells if cell.kind == kind)


class About(msgspec.Struct, frozen=True):
    """What `cell.json` says of a cell: its name and kind, the call of a user that began it last, and how often."""

    name: str = ""
    kind: str = ""
    attempt: str = ""
    attempts: int = 0


def about(folder: Path) -> About:
    """Return what the file in the folder of a cell says; what is damaged says nothing."""
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError, ValueError):
        return About()


class Failure(msgspec.Struct, frozen=True):
    """Why a cell has no result.

    Attributes:
        error: the message.
        trace: the traceback; "" if the user can fix it.
        attempts: the calls of a user in which it failed, of which several may run at the same time.
    """

    error: str
    trace: str
    attempts: list[str]


def tested_on(cell: Cell) -> Any:
    """Return the contents of the files that a score is of: of those that a tenth is held out of, if no others are."""
    files = cell.inputs["files"]
    return files["test"] or files["train"]


def folder_of(out: Path, cell: Cell) -> Path:
    """Return the folder of a cell."""
    return out / CELLS / cell.key


def write_result(folder: Path, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write the result of a cell, with the SHA-256 of itself and of the files that belong to it.

    Args:
        folder: the folder of the cell.
        cell: the cell.
        result: values that JSON can represent; those that are not finite become null.
    """
    files = {name: sha256(folder / name) for name in (RESAMPLED, MISTAKES, HELD) if (folder / name).exists()}
    content = msgspec.json.decode(msgspec.json.encode({**result, "files": files}))  # as it is read
    replace_file(folder / RESULT, msgspec.json.encode({**content, "digest": fingerprint_values([cell.key, content])}))


def result_of(out: Path, cell: Cell) -> dict[str, Any] | None:
    """Return the result of a cell; None if it has none.

    Raises:
        UserError: it is damaged, was changed, or is that of another cell.
    """
    path = folder_of(out, cell) / RESULT
    try:
        result = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if result.pop("digest", None) == fingerprint_values([cell.key, result]):
            return result
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        pass  # not JSON, or numbers that JSON does not have
    raise _damaged(path)


def content_of(folder: Path, name: str, result: Mapping[str, Any]) -> bytes:
    """Return the content of a file that belongs to a result.

    Raises:
        UserError: it is missing, damaged, or was changed.
    """
    path = folder / name
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != result["files"].get(name):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> UserError:
    remedy = f"remove {path.parent}, and compute the cell again by the same command"
    return UserError("is damaged, was changed, or belongs to another cell", file=path, remedy=remedy)


def read_failure(folder: Path) -> Failure | None:
    """Return what the file in the folder of a cell says of its failure; None: there is none, or it is damaged."""
    try:
        return msgspec.json.decode((folder / FAILED).read_bytes(), type=Failure)
    except (OSError, msgspec.DecodeError, ValueError):
        return None


def failure_of(out: Path, cell: Cell, attempt: str = "") -> Failure | None:
    """Return why a cell has no result; None if it has one, or has not failed (in a call, if one is named)."""
    failure = read_failure(folder_of(out, cell))
    return failure if failure and attempt in ("", *failure.attempts) and result_of(out, cell) is None else None


def command_of(out: Path, cell: Cell) -> str:
    """Return the call that repeats a cell by itself, as a reference of `support.messages`; "" if there is none."""
    folder, paths, inputs = folder_of(out, cell), cell.paths, cell.inputs
    needed = {name: folder_of(out, other) for name, other in cell.needs.items()}
    computed = (result_of(out, cell) or {}).get("machine", {})
    here = {name: value for name, value in computed.items() if name in ("device", "precision")}
    if cell.kind == "pretraining":
        recipe, corpus = folder / RUN / "recipe.toml", needed["corpus"] / CORPUS
        if cell.inputs["way"] == "distill":
            return call("distill", recipe, teacher=paths["model"], corpus=corpus, out="RUN", **here)
        init = {"init": paths["model"]} if paths["model"] else {}
        return call("pretrain", recipe, corpus=corpus, out="RUN", **init, **here)
    if cell.kind == "corpus":
        read = paths["reading"].changed()
        tokenizer = paths["tokenizer"] or folder / TOKENIZER
        return call("corpus build", *paths["text"], tokenizer=tokenizer, out="CORPUS", **read)
    model = next((needed[name] / RUN for name in ("model", "score") if name in needed), paths.get("model"))
    if cell.kind == "bits":
        return call("evaluate", model=model, suite="bits", data=needed["heldout"] / HELD, **here)
    if cell.kind == "cost":
        return call("bench", model)
    if cell.kind not in ("score", "rate") or (cell.kind == "rate" and inputs["metric"]):
        return ""
    train, dev = (list(map(str, files)) for files in (paths["files"].train, paths["files"].dev))
    read = {name: inputs[name] for name in ("columns", "format", "encoding") if inputs[name]}
    read |= {"dev": dev} if dev else {}
    read |= {"examples": inputs["examples"]} if "examples" in inputs else {}
    if "student" in inputs:
        shape = {"layers": inputs["student"]["layers"]} if inputs["student"]["layers"] else {}
        if paths["unlabelled"]:
            read["unlabelled"] = list(map(str, paths["unlabelled"]))
        settings = {**paths["changes"], **inputs["settings"], "seed": cell.seed}
        teacher = needed["teacher"] / RUN
        words = {"teacher": teacher, "train": train, **read, **shape, "settings": settings}
        return call("distill", paths["name"], **words, out="RUN", **here)
    start: dict[str, Any] = {"model": model}
    if "recipe" in paths:
        tokenizer = needed["tokenizer"] / TOKENIZER if "tokenizer" in needed else paths["tokenizer"]
        start = {"model": f"random:{folder / 'random.toml'}", "tokenizer": tokenizer}
    settings = {**inputs["settings"], "seed": cell.seed}
    if "rate" in cell.needs and (chosen := result_of(out, cell.needs["rate"])) and chosen["rate"] is not None:
        settings["optimizer.learning_rate"] = chosen["rate"]
    use = {} if paths["frozen"] is None else {"frozen": paths["frozen"]}
    use |= {"downstream": paths["small"]} if paths["small"] else {}
    use |= {"search": True} if cell.kind == "rate" else {}
    return call("finetune", inputs["task"], **start, train=train, **read, **use, settings=settings, out="RUN", **here)


class _Read(NamedTuple):
    """A fingerprint of what is at a path, and the stats that were there before it was read."""

    place: Path
    stats: Stats | None
    fingerprint: str | None


class Contents:
    """Fingerprints, each of which is computed once, however many cells, arms and sizes depend on it."""

    def __init__(self) -> None:
        self._files: dict[str, _Read] = {}
        self._models: dict[str, _Read] = {}

    def of_files(self, name: str, files: Sequence[Source]) -> list[str | None]:
        """Return the fingerprints of files, with the suffixes by which they are read.

        Args:
            name: what they are, for errors.
            files: paths, also URLs, and names of data sets.

        Raises:
            UserError: one cannot be read, or can be read only once.
        """
        fingerprints = []
        for path in as_sources(list(files)):
            assert not isinstance(path, ExampleTable)  # they are named
            key = str(path)
            if key not in self._files:
                place = split_part(path)[0]
                self._files[key] = _Read(place, stats_of_path(place), _of_file(name, path))
            fingerprints.append(self._files[key].fingerprint)
        return fingerprints

    def of_model(self, name: str) -> str | None:
        """Return the fingerprint of a model."""
        if name not in self._models:
            place = find(Path(name) if Path(name).is_dir() else name)
            self._models[name] = _Read(place, stats_of_path(place), fingerprint_path(place))
        return self._models[name].fingerprint

    def forget_changed(self, names: Iterable[str]) -> None:
        """Forget the fingerprints of files and models that may have changed since they were read."""
        for name in names:
            for known in (self._files, self._models):
                if (read := known.get(name)) and (read.stats is None or read.stats != stats_of_path(read.place)):
                    del known[name]


def _of_file(name: str, path: str | Path) -> str:
    try:
        content = fingerprint_source(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=str(path)) from error
    if content is None:
        raise UserError(f"{name}: no such file, or one that can be read only once", file=str(path))
    return f"{content} {suffix_of(path)}".rstrip()
