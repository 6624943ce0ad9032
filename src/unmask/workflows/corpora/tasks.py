"""Pure tasks in a shared directory: each is done once, by whoever takes it first, and not again unless its input is
another one.

    FOLDER/NAME/.lock          held by whoever does the task
    FOLDER/NAME/done.json      what it was made from and its result, written last
    FOLDER/NAME/begun-CALL     how often it was begun in a call of a user
    FOLDER/NAME/failed-CALL    why it was not done in that call

A task that fails because of its input fails at once; one that fails otherwise, or whose process ends without a word, is
begun `ATTEMPTS` times in each call. The others are done nevertheless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unmask.support.durable import full_disk, replace_file
from unmask.support.errors import ShareNote, UnmaskError, UserError, counted
from unmask.support.fingerprint import fingerprint_values
from unmask.support.workers import ATTEMPTS, PAUSE, local_workers, new_call, taken, work_on_ray

_DONE, _BEGUN, _FAILED = "done.json", "begun", "failed"
_NEEDS = "needs what failed"


class Result(msgspec.Struct):
    """What done.json says: a fingerprint of what a task was made from, and its result."""

    made_from: str
    value: Any = None


@dataclass(frozen=True, eq=False)
class Task:
    """A task.

    Attributes:
        name: what it is called in progress and errors, which names its folder, too.
        folder: its folder, which only one process at a time works in.
        made_from: returns what its result depends on, beside the tasks it needs, as values that JSON can represent.
        run: does it in its folder; returns a result that JSON can represent.
        needs: tasks that are done before.
        is_intact: returns whether what it has written beside its result is undamaged; takes the value of the result.
    """

    name: str
    folder: Path
    made_from: Callable[[], Any]
    run: Callable[[Path], Any]
    needs: Sequence[Task] = field(default=())
    is_intact: Callable[[Any], bool] = field(default=lambda value: True)

    @property
    def result(self) -> Result | None:
        """Its result; None: it is not done."""
        return _read(self.folder / _DONE, Result)

    @property
    def value(self) -> Any:
        """The value of its result, read once, as another host may remove it; None: it is not done, or has none."""
        result = self.result
        return None if result is None else result.value

    def failure(self, call: str) -> str:
        """Return why it was not done in a call of a user; "": it was, or has not failed."""
        reason: str = _read(self.folder / f"{_FAILED}-{call}", str) or ""
        return reason if reason and self.result is None else ""

    def fingerprint(self) -> str:
        """Return a fingerprint of what it is made from, given that those it needs are done."""
        results = [needed.result for needed in self.needs]
        return fingerprint_values([self.made_from(), [result.made_from if result else None for result in results]])


def check_done(tasks: Sequence[Task]) -> None:
    """Forget results that were made from something else or are damaged, of tasks in the order of their needs."""
    for task in tasks:
        done = task.result
        is_right = all(needed.result for needed in task.needs) and done and done.made_from == task.fingerprint()
        if done and not (is_right and task.is_intact(done.value)):
            (task.folder / _DONE).unlink(missing_ok=True)


def work_together(
    tasks: Sequence[Task],
    target: str,
    plan: msgspec.Struct,
    *,
    workers: int,
    engine: str,
    report: Callable[[str], None],
    end: Path,
) -> str:
    """Do tasks, together with other processes; return what identifies the call.

    Args:
        tasks: the tasks, in the order of their needs.
        target: what other processes call, as MODULE:NAME, with the plan as JSON and the call.
        plan: what the tasks are made from.
        workers, engine: how many processes work, and where; see `unmask.build_corpus`.
        report, end: see `work`, which this process does.
    """

    def progress() -> str:
        return ShareNote(sum(task.result is not None for task in tasks), len(tasks), "tasks are done")

    check_done(tasks)
    call, others = new_call(), min(workers, len(tasks)) - 1
    arguments = [msgspec.json.encode(plan).decode(), call]
    if engine == "ray":
        folder = tasks[0].folder.parent
        work_on_ray(workers, target, arguments, folder, progress, report, pieces=len(tasks))
    with local_workers(0 if engine == "ray" else others, target, arguments):
        work(tasks, call, report, end)
    return call


def check_failures(tasks: Sequence[Task], call: str, folder: Path) -> None:
    """Raise an UnmaskError that names the tasks in a folder that failed in a call, if any did."""
    failed = [(task.name, reason) for task in tasks if (reason := task.failure(call))]
    if not failed:
        return
    causes = [(name, reason) for name, reason in failed if not reason.startswith(_NEEDS)]
    listed = "; ".join(f"{name}: {reason}" for name, reason in causes[:10])
    more = f"; and {len(causes) - 10} others" if len(causes) > 10 else ""
    raise UnmaskError(
        f"{counted(len(causes), 'task')} of {len(tasks)} failed ({listed}{more}); what is done is kept in {folder}, "
        "and the same command continues"
    )


def work(tasks: Sequence[Task], call: str, report: Callable[[str], None], end: Path) -> None:
    """Do all tasks that nobody else does, until each is done or has failed.

    Args:
        tasks: the tasks, in the order of their needs.
        call: identifies the call of a user: what failed in another one is tried again.
        report: called with a line for each task that is begun.
        end: what exists once everything is done: another host may have removed the tasks then.
    """
    try:
        _work(tasks, call, report, end)
    except OSError:
        if not end.exists():
            raise


def _work(tasks: Sequence[Task], call: str, report: Callable[[str], None], end: Path) -> None:
    left = list(enumerate(tasks, 1))
    while left and not end.exists():
        waiting = worked = False
        for number, task in [*left]:
            if task.result or task.failure(call):
                left.remove((number, task))
                continue
            failed = next((needed.name for needed in task.needs if needed.failure(call)), "")
            if not failed and not all(needed.result for needed in task.needs):
                waiting = True
                continue
            with taken(task.folder) as is_mine:
                if is_mine and not task.result and not task.failure(call):
                    if failed:
                        _fail(task, call, f"{_NEEDS}: {failed}")
                    else:
                        report(f"[{number}/{len(tasks)}] {task.name}")
                        _attempt(task, call)
                    worked = True
                    break
                waiting = True
        if waiting and not worked:
            time.sleep(PAUSE)


def _attempt(task: Task, call: str) -> None:
    """Do a task in its locked folder, and write its result or why there is none."""
    begun = task.folder / f"{_BEGUN}-{call}"
    times = 1 + (_read(begun, int) or 0)
    if times > ATTEMPTS:
        _fail(task, call, f"its process ended without a word {ATTEMPTS} times; is there enough memory?")
        return
    replace_file(begun, msgspec.json.encode(times))
    try:
        made_from = task.fingerprint()
        value = task.run(task.folder)
    except Exception as error:
        if full := full_disk(error):  # no task can be done
            raise full from None
        if isinstance(error, UserError) or times == ATTEMPTS:
            known = error.message if isinstance(error, UnmaskError) else f"{type(error).__name__}: {error}"
            _fail(task, call, known if isinstance(error, UserError) else f"{known} ({ATTEMPTS} attempts)")
        return
    replace_file(task.folder / _DONE, msgspec.json.encode(Result(made_from, value)))


def _fail(task: Task, call: str, reason: str) -> None:
    """Write why a task, whose folder is locked, was not done."""
    replace_file(task.folder / f"{_FAILED}-{call}", msgspec.json.encode(reason))


def _read(path: Path, kind: type[Any]) -> Any:
    """Return the content of a file of a task; None: there is none, or it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
