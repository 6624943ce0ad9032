"""Preparation of a run on several tasks: one encoder, and for each task its examples as samples, and its head.

In: the initial model and the tables of the tasks. Out: a `Mixture`, whose parts are what single runs would prepare
(`finetuning/prepare.py`), but share the encoder.

Rule for the defaults: each task has the steps that it would have alone, and these are added. The batch is the largest
of the tasks' and the learning rate the smallest.

The tasks that an encoder learns together are a table for each, in a TOML file or as a mapping:

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

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from torch import nn

from unmask.data.batches.sources import mixing_rates
from unmask.data.labelled.hub_data import refuse_urls
from unmask.data.labelled.table import as_sources
from unmask.model.model import Model
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.choices import Format
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument, call
from unmask.support.settings import Overrides, convert, put, read_toml, to_table
from unmask.tasks import TASKS, AnyTask
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.training.settings import TrainingSettings
from unmask.workflows.finetuning.checks import check_effects, check_step
from unmask.workflows.finetuning.examples import Examples, read_examples
from unmask.workflows.finetuning.job import InitialModel, LabelledFiles, defaults
from unmask.workflows.finetuning.prepare import Prepared, asked_task, assemble, load_initial

TaskTables: TypeAlias = Any
"""A TOML file, or a mapping of names to tables: see `TaskTable`."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
"""What names of tasks look like: they name directories, metrics and served models."""
TEMPERATURE = 2.0
"""The default temperature: the best in most cases in Raffel et al. 2020, section 3.5.2."""


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
    tables = read_toml(tasks) if isinstance(tasks, str | Path) else tasks
    if isinstance(tasks, str | Path):
        refuse_urls(_sources(tables), tasks)
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise UserError("each task is a table", file=name, remedy="write [NAME] with the keys task and train")
    if len(tables) < 2:
        raise UserError(
            "there are fewer than two tasks",
            file=name,
            remedy=f"add a table, or train a single task by {call('finetune', 'TASK')}",
        )
    _check_names(list(tables), name)
    return {task: _read_table(dict(table), f"{name}: {task}") for task, table in tables.items()}


class MultitaskRecipe(TrainingSettings, frozen=True, kw_only=True):
    """A recipe of fine-tuning on several tasks.

    Attributes:
        tasks: the settings of each task, by name.
        temperature: T of the probability of a task with n examples, n^(1/T): 1 mixes by size, inf equally; see
            `unmask.data.batches.sources`.
        dropout: dropout rate of the encoder and before the last layer of heads; None keeps the encoder's own.
    """

    tasks: dict[str, AnyTask]
    temperature: float = TEMPERATURE
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError("the temperature must be positive: 1 mixes by size, inf equally")
        for task in self.tasks.values():
            self.single(task)

    def single(self, task: AnyTask, share: float = 1.0) -> FinetuningRecipe:
        """Return the recipe of one of the tasks, with a share of the steps if these are the budget."""
        budget = self.budget
        if budget.steps is not None:
            budget = msgspec.structs.replace(budget, steps=max(1, round(share * budget.steps)))
        return FinetuningRecipe(
            task=task,
            seed=self.seed,
            batch=self.batch,
            optimizer=self.optimizer,
            schedule=self.schedule,
            budget=budget,
            dropout=self.dropout,
            card=self.card,
        )


@dataclass(frozen=True)
class Mixture:
    """Everything that a run needs.

    Attributes:
        base: the model to fine-tune.
        recipe: the recipe with all settings resolved.
        parts: what a run of each task alone would need, with the same encoder, by name.
        learner: the encoder and all heads, on the device.
        inputs: fingerprints of model and examples.
    """

    base: Model
    recipe: MultitaskRecipe
    parts: Mapping[str, Prepared]
    learner: Learner
    inputs: dict[str, str]


def prepare_mixture(
    tables: Mapping[str, TaskTable], start: InitialModel, settings: Overrides, machine: Machine, display: Display
) -> Mixture:
    """Read model and examples, resolve the settings, and convert the examples to samples.

    Raises:
        UserError: files, model and settings are inconsistent.
    """
    base = load_initial(start, settings)
    asked: dict[str, AnyTask] = {}
    examples: dict[str, Examples] = {}
    for name, table in tables.items():
        own = {f"task.{key}": value for key, value in table.settings.items()}
        asked[name] = asked_task(table.task, base, {}, own, f"{name}: settings")
        examples[name] = read_examples(asked[name], table.files(), base)
        display.say(*(f"{name}: {note}" for note in examples[name].notes))
        display.warn(*(f"{name}: {warning}" for warning in examples[name].warnings))
    recipe = _resolve(asked, start, settings, base, examples)
    for task in recipe.tasks.values():
        base = base.with_tokens(task.new_tokens(base.tokenizer), recipe.seed)
    rates = mixing_rates([len(data.train) for data in examples.values()], recipe.temperature)
    parts = {}
    for (name, data), rate in zip(examples.items(), rates.tolist(), strict=True):
        parts[name] = assemble(base, recipe.single(recipe.tasks[name], rate), data, str(start.model), machine)
    heads = {name: part.learner.parts[part.recipe.task.part] for name, part in parts.items()}
    inputs = base.inputs("model") | {
        f"{name}.{key}": value for name, data in examples.items() for key, value in data.fingerprints().items()
    }
    return Mixture(base, recipe, parts, Learner(base.encoder, heads), inputs)


def _sources(tables: Any) -> Iterator[Any]:
    """Yield what the tables of a file name as labeled examples."""
    for table in tables.values():
        for name in ("train", "dev") if isinstance(table, Mapping) else ():
            data = table.get(name, ())
            yield from data if isinstance(data, list) else [data]


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


def _read_table(table: dict[str, Any], source: str) -> TaskTable:
    read = convert(table, TaskTable, source)
    if read.task not in TASKS:
        raise UserError(f"unknown task '{read.task}'", file=source, remedy=nearest(read.task, TASKS))
    return read


def _resolve(
    asked: Mapping[str, AnyTask],
    start: InitialModel,
    settings: Overrides,
    base: Model,
    examples: Mapping[str, Examples],
) -> MultitaskRecipe:
    """Return the rule, overridden by settings and resolved by the examples."""
    if own := [key for key in settings if key.split(".")[0] in ("task", "tasks")]:
        raise UserError(f"{argument('settings')}: {own[0]} belongs to a task", remedy="set it in the task's `settings`")
    rule = _rule(asked, start, base, examples) | {"tasks": {name: to_table(task) for name, task in asked.items()}}
    recipe = convert(put(rule, settings, MultitaskRecipe), MultitaskRecipe, argument("settings"))
    tasks = {}
    for name, task in recipe.tasks.items():
        if task.length > base.encoder.longest:
            raise UserError(
                f"{name}: length {task.length} exceeds the {base.encoder.longest} positions of the model",
                remedy="set a smaller length in its settings",
            )
        check_effects(recipe.single(task), base.encoder)
        check_step(recipe.batch, task, examples[name].train)
        tasks[name] = task.settle(examples[name].train, examples[name].labels).with_pooling(base.pooling)
    return msgspec.structs.replace(recipe, tasks=tasks)


def _rule(
    asked: Mapping[str, AnyTask], start: InitialModel, base: Model, examples: Mapping[str, Examples]
) -> dict[str, Any]:
    """Return the default recipe, without the tasks."""
    rates, sequences, steps = [], [], 0
    for name, task in asked.items():
        per_sample = task.examples_per_sample(examples[name].train)
        number = len(examples[name].train)
        rule: dict[str, Any] = defaults(
            task.kind,
            base.encoder.settings,
            number,
            pretrained=start.pretrained,
            tokens=base.tokens,
            contrasted=task.contrasts(examples[name].train),
            per_sample=per_sample,
        )
        rates.append(rule["optimizer"]["learning_rate"])
        sequences.append(rule["batch"]["sequences"])
        steps += math.ceil(rule["budget"]["epochs"] * number / per_sample / rule["batch"]["sequences"])
    return {
        "batch": {"sequences": max(sequences)},
        "optimizer": rule["optimizer"] | {"learning_rate": min(rates)},
        "schedule": rule["schedule"],
        "budget": {"steps": steps},
    }
