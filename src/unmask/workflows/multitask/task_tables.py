"""The tasks that an encoder learns together: a table for each, in a TOML file or as a mapping.

[sentiment]
task = "classification"
train = "reviews.tsv"
dev = "reviews-dev.tsv"

[entities]
task = "token-classification"
train = ["news.conll", "mails.conll"]
settings = {length = 64}
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from torch import nn

from unmask.data.labelled.table import as_sources
from unmask.support.choices import Format
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument, call
from unmask.support.settings import convert
from unmask.tasks import TASKS
from unmask.workflows.finetuning.job import LabelledFiles

TaskTables: TypeAlias = Any
"""A TOML file, or a mapping of names to tables: see `TaskTable`."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
"""What names of tasks look like: they name directories, metrics and served models."""


class TaskTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the tasks.

    Attributes:
        task: its kind, one of `unmask.tasks.TASKS`.
        train, dev, columns, format, encoding: its labeled examples, as in `unmask.finetune`.
        settings: settings of the task, such as `length`, as in the recipe's [task].
    """

    task: str
    train: Any
    dev: Any = ()
    columns: dict[str, str] = {}
    format: Format | None = None
    encoding: str | None = None
    settings: dict[str, Any] = {}

    def files(self) -> LabelledFiles:
        """Return its examples.

        Raises:
            UserError: they are not what `unmask.finetune` accepts.
        """
        train, dev = (as_sources(data, self.encoding) for data in (self.train, self.dev))
        return LabelledFiles(train, dev, self.columns, self.format)


def read_tables(tasks: TaskTables) -> dict[str, TaskTable]:
    """Return the tables of tasks by name.

    Raises:
        UserError: the file cannot be read, there are fewer than two tasks, a name is not valid, two are equal but for
            capitals, a key is unknown, or a kind of task is.
    """
    name = tasks if isinstance(tasks, str | Path) else argument("tasks")
    tables = _parsed(tasks) if isinstance(tasks, str | Path) else tasks
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise UserError("each task is a table", file=name, remedy="write [NAME] with the keys task and train")
    if len(tables) < 2:
        raise UserError(
            "there are fewer than two tasks",
            file=name,
            remedy=f"add a table, or train a single task by {call('finetune', 'TASK')}",
        )
    _check_names(list(tables), name)
    return {task: _read(dict(table), f"{name}: {task}") for task, table in tables.items()}


def _parsed(path: str | Path) -> Any:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf8"))
    except OSError as error:
        raise UserError(f"the tasks cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid TOML: {error}", file=path) from error


def _check_names(names: list[Any], source: str | Path) -> None:
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UserError(
                f"'{name}' cannot be the name of a task",
                file=source,
                remedy="use up to 50 letters, digits, - and _, beginning with a letter",
            )
        if hasattr(nn.ModuleDict, name):  # which holds the heads
            raise UserError(f"a task cannot be named '{name}', as torch uses it", file=source, remedy="rename it")
        if equal := [other for other in names if other != name and str(other).lower() == name.lower()]:
            raise UserError(
                f"the tasks '{name}' and '{equal[0]}' differ only in capitals, which some disks do not distinguish",
                file=source,
                remedy="rename one",
            )


def _read(table: dict[str, Any], source: str) -> TaskTable:
    read = convert(table, TaskTable, source)
    if read.task not in TASKS:
        raise UserError(f"unknown task '{read.task}'", file=source, remedy=nearest(read.task, TASKS))
    return read
