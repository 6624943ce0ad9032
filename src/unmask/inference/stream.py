"""Predictions for files of any size in constant memory, which an interrupted run continues.

Input: a stream of examples. Output: a file of JSON Lines, one prediction per example, in order.

Predictions are written as they are computed to `.FILE.part`, which becomes the file when it is complete. Beside it,
`.FILE.part.json` says what it belongs to, so that only the same work is continued.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from unmask.durable import create, named, replace_file, sync
from unmask.errors import UserError
from unmask.inference.predictor import Predictor

COUNTED = re.compile(r"([\d,]+) of ([\d,]+) (.*)")
"""A note about a number of examples of a window."""


def identity(model: str | Path, data: str | Path, **others: Any) -> dict[str, Any]:
    """Return what a resumed run must have in common: names of model and data, size and time of the data, and others."""
    path = Path(data)
    known = path.stat() if path.is_file() else None
    about = None if known is None else [known.st_size, known.st_mtime_ns]
    return {"model": str(Path(model).resolve()), "data": str(path.resolve()), "file": about, **others}


def write_predictions(
    predictor: Predictor,
    examples: Iterable[Any],
    out: Path,
    about: Mapping[str, Any],
    *,
    resume: bool = False,
    notes: list[str] | None = None,
) -> int:
    """Write a prediction per line; return the number of lines.

    Args:
        predictor: a model for a task whose predictions are lines.
        examples: examples of the task.
        out: the file, replaced when all predictions are there.
        about: see `identity`.
        resume: whether to continue what an interrupted run has written, if anything.
        notes: receives the notes of `Predictor.run`, about the examples of this run.

    Raises:
        UserError: there are no examples, or the interrupted run was another one.
    """
    part = out.with_name(f".{out.name}.part")
    state = out.with_name(f"{part.name}.json")
    done = _continued(part, state, about) if resume else 0
    found: list[str] = []
    with named(part):
        if not done:
            create(part).close()
            replace_file(state, msgspec.json.encode(about))
        count = done
        try:
            with part.open("ab") as file:
                for predictions in predictor.stream(islice(examples, done, None), found):
                    file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in predictions))
                    file.flush()
                    count += len(predictions)
            if not count:
                raise UserError("there are no examples in the file", file=about.get("data"))
        except UserError:  # the data has to be changed, and the predictions of other data cannot be continued
            part.unlink()
            state.unlink()
            raise
        sync(part)
        part.replace(out)
        state.unlink()
    sync(out.parent)
    if notes is not None:
        notes += summed(found)
    return count


def _continued(part: Path, state: Path, about: Mapping[str, Any]) -> int:
    """Return how many complete lines an interrupted run has left, and cut off what follows them; 0 without such a run.

    Raises:
        UserError: it had another model or other data.
    """
    if part.is_symlink() or not (part.is_file() and state.is_file()):
        return 0
    try:
        same = msgspec.json.decode(state.read_bytes()) == msgspec.json.decode(msgspec.json.encode(about))
    except msgspec.DecodeError:
        same = False
    if not same:
        raise UserError(
            "the interrupted run had another model, other data or other options",
            file=part,
            remedy="repeat its command, or omit --resume to start again",
        )
    lines = end = 0
    with part.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
    with part.open("r+b") as file:
        file.truncate(end)
    return lines


def summed(notes: Iterable[str]) -> list[str]:
    """Return the notes of several windows as one each, with their numbers added."""
    totals: dict[str, list[int]] = {}
    others: dict[str, None] = {}
    for note in notes:
        if (match := COUNTED.fullmatch(note)) is None:
            others[note] = None
            continue
        total = totals.setdefault(match[3], [0, 0])
        for place in (0, 1):
            total[place] += int(match[1 + place].replace(",", ""))
    return [*(f"{some:,} of {all_:,} {what}" for what, (some, all_) in totals.items()), *others]
