"""Predictions for files of any size in constant memory, which an interrupted run continues.

Input: a stream of examples. Output: the files that the task writes, such as JSON Lines with a line per example.

What is written of each example is appended to `.FILE.part` as it is computed, a line each; when all are there, this
becomes the file, or the task's files are made from it. Beside it, `.FILE.part.json` says what it belongs to, so that
only the same work is continued. It is continued after a whole window: as examples are computed in the same batches, the
result is the same to the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.span_export import is_export
from unmask.data.text.files import split_part
from unmask.data.text.record_files import fingerprint_source
from unmask.inference.predictor import Predictor
from unmask.support.choices import ExplainMethod
from unmask.support.durable import check_file, create, named, read_json, replace_file, sync
from unmask.support.errors import EmptySource, ShareNote, UserError
from unmask.support.fingerprint import differences, versions
from unmask.support.messages import argument
from unmask.tasks.prediction_tables import TABLES, UNWRITTEN, check_library
from unmask.tasks.task import Task

EXPLAINED = (".jsonl", ".json")
"""Suffixes of files of predictions with explanations: JSON Lines."""
LIBRARIES = ("torch", "tokenizers")
"""Libraries whose versions may change predictions."""


def identity(model: str, data: str | Path, **others: Any) -> dict[str, Any]:
    """Return what a resumed run must have in common with the interrupted one.

    Args:
        model: its fingerprint.
        data: the file of examples, which is identified by its content; standard input and pipes cannot be.
        others: options that change predictions.
    """
    return {"model": model, "data": fingerprint_source(data), **others, **versions(LIBRARIES)}


def refuse_input(out: Path, inputs: Iterable[str | Path], name: str, read: str = "data") -> None:
    """Refuse to overwrite an input, whatever its name: a link to it is the same file.

    Args:
        out: the file to write.
        inputs: the files that are read.
        name: the parameter that names `out`.
        read: the parameter that names the inputs.

    Raises:
        UserError: a file to write is one of the files that are read.
    """
    for path, _ in map(split_part, inputs):
        if out.exists() and path.exists() and out.samefile(path):
            raise UserError(
                f"{argument(name)} is the same file as {argument(read)}", file=out, remedy="name another file"
            )


def check_out(out: Path, data: Sequence[str | Path]) -> None:
    """Raise an error early if the output cannot be written, or would overwrite the input."""
    if out.suffix in (".gz", ".bz2", ".xz", ".zst"):
        raise UserError("predictions are not written compressed", file=out, remedy="omit the suffix")
    check_file(out)
    for written in (out, out.with_name(f"{out.name}.nbest.json")):
        refuse_input(written, data, "out")


def check_explained(out: Path | None, labels: object) -> None:
    """Raise an error if explanations cannot be written to a file, or are of labels that a model was not trained for."""
    if out is not None and (out.suffix not in EXPLAINED or is_export(out)):
        raise UserError("explanations are not written in this format", file=out, remedy=f"use {' or '.join(EXPLAINED)}")
    if labels is not None:
        raise UserError(
            f"predictions by the names of {argument('labels')} are not explained", remedy=f"omit {argument('explain')}"
        )


def check_table(out: Path, task: Task) -> None:
    """Raise an error if the suffix is that of a table, or of an annotators' file, which the task does not write."""
    if is_export(out) and not task.exports:
        raise UserError(
            f"predictions of {task.title} are not written for annotators", file=out, remedy="name it FILE.jsonl"
        )
    if out.suffix in (*TABLES, *UNWRITTEN) and out.suffix not in task.tables:
        written = f"{', '.join(task.tables)} or .jsonl" if task.tables else ".jsonl or .json"
        raise UserError(
            f"predictions of {task.title} are not written as {out.suffix}", file=out, remedy=f"use {written}"
        )
    check_library(out)


def write_predictions(
    predictor: Predictor,
    examples: Iterable[Any],
    out: Path,
    about: Mapping[str, Any],
    *,
    explain: ExplainMethod | None = None,
    source: str | Path = "",
    resume: bool = False,
    notes: list[str] | None = None,
) -> int:
    """Write predictions; return their number.

    Args:
        predictor: a fine-tuned model.
        examples: examples of its task.
        out: the file, replaced when all predictions are there.
        about: see `identity`.
        explain: method of explanations, if they are computed; see `Predictor.predict`.
        source: the file of the examples, for messages.
        resume: whether to continue what an interrupted run has written, if anything.
        notes: receives the notes of `Predictor.run`, about the examples of this run.

    Raises:
        UserError: there are no examples, or the interrupted run was another one.
    """
    task, part = predictor.task, _part(out)
    state = out.with_name(f"{part.name}.json")
    done = _continued(part, state, about, predictor.window) if resume else 0
    window_notes, waiting = list[str](), deque[Any]()

    def remaining() -> Iterator[Any]:
        for example in islice(examples, done, None):
            waiting.append(example)
            yield example

    with named(part):
        if not done:
            create(part).close()
            replace_file(state, msgspec.json.encode(about))
        count = done
        try:
            with part.open("ab") as file:
                for predictions in predictor.stream(remaining(), window_notes, explain=explain):
                    window = [waiting.popleft() for _ in predictions]
                    file.write(_lines(task, out, window, predictions))
                    file.flush()
                    count += len(predictions)
            if not count:
                raise EmptySource("there are no examples", file=source)
        except UserError:  # the data has to be changed, and the predictions of other data cannot be continued
            part.unlink()
            state.unlink()
            raise
        _complete(task, part, out)
        state.unlink()
    if notes is not None:
        notes += summed(window_notes)
    return count


def save_predictions(task: Task, out: Path, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
    """Write predictions that are in memory, to the same files as `write_predictions`.

    Raises:
        UserError: an example cannot be written in the format of the file.
        OSError: the disk is full.
    """
    part, content = _part(out), _lines(task, out, examples, predictions)
    try:
        with named(part):
            with create(part) as file:
                file.write(content)
            _complete(task, part, out)
    finally:
        part.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Records:
    """The lines of a file of JSON Lines, decoded one by one."""

    path: Path

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            yield from map(msgspec.json.decode, file)


def _part(out: Path) -> Path:
    return out.with_name(f".{out.name}.part")


def _lines(task: Task, out: Path, examples: Sequence[Any], predictions: Sequence[Any]) -> bytes:
    """Return the line of each example."""
    pairs = zip(examples, predictions, strict=True)
    return msgspec.json.Encoder().encode_lines([task.record(out, *pair) for pair in pairs])


def _complete(task: Task, part: Path, out: Path) -> None:
    """Turn the complete lines into the files of a task."""
    contents = task.files(out, _Records(part))
    for path, content in contents.items():
        aside = path.with_name(f".{path.name}.complete")
        try:
            with named(path), create(aside) as file:
                file.writelines(content)
            sync(aside)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    if contents:
        part.unlink()
    else:
        sync(part)
        part.replace(out)
    sync(out.parent)


def _continued(part: Path, state: Path, about: Mapping[str, Any], window: int) -> int:
    """Return how many lines of whole windows an interrupted run has left, and cut off the others; 0 without such a run.

    Raises:
        UserError: it had another model, other data or other options; the message names what differs.
    """
    if part.is_symlink() or not (part.is_file() and state.is_file()):
        return 0
    remedy = f"repeat its command, or omit {argument('resume')} to start again"
    if changed := differences(read_json(state, dict[str, Any], remedy), msgspec.to_builtins(about)):
        raise UserError(f"the interrupted run was another one: {'; '.join(changed)}", file=part, remedy=remedy)
    lines = done = length = end = 0
    with part.open("rb") as file:
        for line in file:
            lines, length = lines + line.endswith(b"\n"), length + len(line)
            if lines % window == 0 and line.endswith(b"\n"):
                done, end = lines, length
    with part.open("r+b") as file:
        file.truncate(end)
    return done


def summed(notes: Iterable[str]) -> list[str]:
    """Return the notes of several windows as one each, with their numbers added (`ShareNote`).

    Those about the examples of a window, whose size is before them, are then about all, with windows that have none.
    """
    numbers, totals, others = dict[str, int](), dict[str, int](), dict[str, None]()
    size, examples, of_examples = 0, 0, set[str]()
    for note in notes:
        if not isinstance(note, ShareNote):
            others[note] = None
        elif not note.statement:
            size, examples = note.total, examples + note.total
        else:
            numbers[note.statement] = numbers.get(note.statement, 0) + note.number
            totals[note.statement] = totals.get(note.statement, 0) + note.total
            of_examples |= {note.statement} if note.total == size else set()
    totals |= dict.fromkeys(of_examples, examples)
    return [*(str(ShareNote(numbers[name], totals[name], name)) for name in numbers), *others]
