"""What is compared: arms, tasks and a budget, from a TOML file or from the words of a command.

An *arm* is a way to a model: a recipe that is pretrained on the text, a checkpoint as it is, adapted to the text, or as
the teacher of a student, random weights, or a student of another arm; and how the tasks are learned from it.

    text = ["articles.txt"]
    budget = "30min"
    seeds = 3

    [arms.bert]
    recipe = "bert-mini"

    [arms.adapted]
    model = "DIRECTORY"
    way = "adapt"

    [tasks.sentiment]
    task = "classification"
    train = ["train.tsv"]
    test = ["test.tsv"]

As words, arms are `bert-mini`, `DIRECTORY`, `DIRECTORY+adapt`, `DIRECTORY+distill`, `random` and `DIRECTORY+random`,
each with `@frozen`, `@average`, `@rnn` or `@finetuned` where the tasks are not to be learned as the rule for defaults
has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from unmask.data.labelled.table import as_sources
from unmask.data.text.documents import TextOptions
from unmask.recipes.recipe import shipped
from unmask.support.choices import DownstreamKind, exists
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument
from unmask.support.settings import convert, read_toml
from unmask.workflows.comparing.design import MAX_ARMS, Design, combined, name_of
from unmask.workflows.finetuning.job import LabelledFiles

Way = Literal["", "pretrain", "adapt", "distill", "random", "student"]
"""How an arm comes to its model; "": a checkpoint as it is; "student": it has another arm as its teacher."""
Use = Literal["", "finetuned", "frozen", "average", "rnn"]
"""How tasks are learned from the model: by the rule for defaults, by training all parameters, or on frozen features
under a linear layer, an average or an RNN."""
ONE_OF = "random"
"""The arm of random weights in words."""
STUDENT, HEADLESS_STUDENT = "distilbert-mini", "tinybert-mini"
"""Recipes of students, if an arm names none: of teachers that have a masked-LM head, and of others."""
NAME = re.compile(r"\w[\w.+@=,: -]*")
"""Names of arms and tasks."""


@contextmanager
def errors_of(name: str, kind: Literal["arm", "task"] = "arm") -> Iterator[None]:
    """Let errors of users name the arm, or the task, that they are about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{kind} '{name}': {error.message}") from error


class Budget(msgspec.Struct, frozen=True):
    """What each arm may spend on pretraining, adaptation or distillation, besides learning the tasks.

    Attributes:
        amount: how much.
        unit: of what: minutes on this machine, tokens or floating-point operations of training.
    """

    amount: float
    unit: Literal["minutes", "tokens", "flops"]

    def times(self, factor: float) -> Budget:
        """Return a multiple of the budget."""
        return Budget(self.amount * factor, self.unit)

    @property
    def written(self) -> str:
        """The budget, rounded up, as `read_budget` reads it."""
        amount, unit = self.amount, {"minutes": "min", "tokens": "tok", "flops": "flop"}[self.unit]
        if self.unit == "minutes" and amount < 1:
            amount, unit = 60 * amount, "s"
        size = 10.0 ** (math.floor(math.log10(amount)) - 3)  # four digits
        return f"{math.ceil(amount / size) * size:g}{unit}"

    def __str__(self) -> str:
        if self.unit == "minutes":
            amount, unit = (60 * self.amount, "second") if self.amount < 1 else (self.amount, "minute")
            return f"{amount:g} {unit}{'' if amount == 1 else 's'}"
        return f"{self.amount:,.0f} tokens" if self.unit == "tokens" else f"{self.amount:.3g} FLOPs"


UNITS: dict[str, tuple[float, Literal["minutes", "tokens", "flops"]]] = {
    "s": (1 / 60, "minutes"),
    "min": (1, "minutes"),
    "h": (60, "minutes"),
    "tok": (1, "tokens"),
    "flop": (1, "flops"),
}
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def read_budget(text: str) -> Budget:
    """Return a budget, such as 30min, 2h, 200Mtok or 1e16flop; a number without a unit is refused.

    Raises:
        UserError: it is not written so, or not positive.
    """
    match = re.fullmatch(r"\s*([\d.]+(?:e\+?\d+)?)\s*([kMGTP]?)(s|min|h|tok|flop)s?\s*", str(text))
    remedy = "write for example 30min, 200Mtok or 1e16flop"
    if match is None or (match[2] and match[3] in ("s", "min", "h")):
        raise UserError(f"{argument('budget', text)}: not an amount with a unit", remedy=remedy)
    try:
        amount = float(match[1])
    except ValueError as error:
        raise UserError(f"{argument('budget', text)}: not a number", remedy=remedy) from error
    size, unit = UNITS[match[3]]
    if not 0 < amount < float("inf"):
        raise UserError(f"{argument('budget', text)}: not a positive amount", remedy=remedy)
    return Budget(amount * PREFIXES[match[2]] * size, unit)


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to a model.

    Attributes:
        recipe: what is pretrained on the text, or the shape and the objectives of a student, or the shape of random
            weights.
        model: the checkpoint that is used, adapted to the text, or taught from; of random weights, the one whose shape
            and vocabulary they have, if no recipe says.
        teacher: another arm, which first learns each task, and from which a student then learns it.
        layers: number of the teacher's layers that form the student; None: the recipe says what it is like.
        way: how its model comes about; by default a recipe is pretrained, and a model is used as it is.
        use: how tasks are learned from its model; "": by the rule for defaults, which depends on the number of labels.
        settings: settings of the recipe that differ, by dotted keys.
        task_settings: settings of fine-tuning that differ.
    """

    recipe: str = ""
    model: str = ""
    teacher: str = ""
    layers: int | None = None
    way: Way = ""
    use: Use = ""
    settings: dict[str, Any] = {}
    task_settings: dict[str, Any] = {}

    @property
    def trains(self) -> bool:
        """Whether its model is trained on the text, within the budget."""
        return self.way in ("pretrain", "adapt", "distill")

    @property
    def frozen(self) -> bool | None:
        """`frozen` of fine-tuning."""
        return None if not self.use else self.use != "finetuned"

    @property
    def downstream(self) -> DownstreamKind | None:
        """`downstream` of fine-tuning."""
        return self.use if self.use in ("average", "rnn") else None

    def checked(self, name: str) -> Arm:
        """Return the arm with its way.

        Raises:
            UserError: its parts contradict each other.
        """
        if self.teacher:
            if self.model or self.way not in ("", "student") or self.use:
                raise UserError(
                    f"arm '{name}': model, way and use have no effect on a student of another arm", remedy="remove them"
                )
            return msgspec.structs.replace(self, way="student", recipe=self.recipe or STUDENT)
        if self.layers is not None or self.way == "student":
            raise UserError(f"arm '{name}': only a student has layers of its teacher", remedy="name an arm in teacher")
        way = self.way or ("pretrain" if self.recipe else "")
        if not self.recipe and not self.model:
            raise UserError(f"arm '{name}': neither a recipe nor a model", remedy="name one of them")
        if way in ("", "adapt", "distill") and not self.model:
            raise UserError(f"arm '{name}': there is no model to {way or 'use'}", remedy="name a model")
        if (way == "pretrain" or (way == "random" and self.recipe)) and self.model:
            raise UserError(
                f"arm '{name}': a model is not used by '{way}'", remedy="remove it, or choose way = 'adapt'"
            )
        if way == "" and self.recipe:
            raise UserError(f"arm '{name}': a recipe has no effect on a checkpoint as it is", remedy="remove it")
        if (way == "" or (way == "random" and self.model)) and self.settings:
            raise UserError(f"arm '{name}': settings have no effect without training", remedy="use task_settings")
        return msgspec.structs.replace(self, way=way)


class TaskData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task with its files.

    Attributes:
        task: one of `unmask.tasks.TASKS`.
        train: labeled files to train on.
        test: labeled files that decide; they are read once for each model, at its end. Empty: a tenth of `train`.
        metric: the metric that decides; "": that of the task.
        columns: mapping of our column names to those of the files.
        format: format of the files, if the suffix does not determine it.
        encoding: encoding of the files; None: UTF-8, or what a byte-order mark declares.
        examples: numbers of training examples, drawn at random, from each of which the arms learn; empty: from all.
        unlabelled: files of texts without labels, or of examples whose labels are ignored, which students also learn
            from.
        settings: settings of fine-tuning that differ, by dotted keys.
    """

    task: str = "classification"
    train: list[str]
    test: list[str] = []
    metric: str = ""
    columns: dict[str, str] = {}
    format: str | None = None
    encoding: str | None = None
    examples: list[int] = []
    unlabelled: list[str] = []
    settings: dict[str, Any] = {}

    @property
    def limit(self) -> int | None:
        """The number of training examples of a task of `Comparison.named_tasks`; None: all."""
        return self.examples[0] if self.examples else None

    @property
    def files(self) -> LabelledFiles:
        """Its files as fine-tuning reads them."""
        train, test = (as_sources(files, self.encoding) for files in (self.train, self.test))
        return LabelledFiles(train, test, self.columns, self.format, role="test")


def by_size(name: str, data: TaskData) -> Iterator[tuple[str, TaskData]]:
    """Yield a task for each of its numbers of examples, with its name."""
    for limit in data.examples or (None,):
        named = f"{name}-{limit}" if len(data.examples) > 1 else name
        yield named, data if limit is None else msgspec.structs.replace(data, examples=[limit])


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a comparison is made of.

    Attributes:
        arms: the arms by name, or in words.
        tasks: the tasks by name; empty: arms are compared by how well they predict held-out text.
        text: files of raw text.
        budget: what each arm may spend on the text; see `read_budget`.
        seeds: how often everything is repeated: pretraining and fine-tuning.
        search: whether learning rates are searched, for each arm, on splits of training data.
        race: whether arms that are clearly worse stop early.
        outlook: whether arms are also trained with an eighth, a quarter and half of the budget, for an outlook on more.
        documents: what a document is in plain text; see `unmask.pretrain`.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        encoding: encoding of the text; None: UTF-8, or what a byte-order mark declares.
        vary: factors: settings with the values that are tried, of the first arm that is pretrained.
        design: how factors are combined; see `Design`.
        settings: settings of all recipes that differ.
        task_settings: settings of all fine-tuning that differ.
    """

    arms: dict[str, Arm] | list[str]
    tasks: dict[str, TaskData] = {}
    text: list[str] = []
    budget: str = ""
    seeds: int = 3
    search: bool = False
    race: bool = False
    outlook: bool = False
    documents: Literal["auto", "file", "blank-line", "line"] = "auto"
    field: str = "text"
    encoding: str | None = None
    vary: dict[str, list[Any]] = {}
    design: Design = "full"
    settings: dict[str, Any] = {}
    task_settings: dict[str, Any] = {}

    @property
    def basic_arms(self) -> dict[str, Arm]:
        """The arms by name, without those of factors.

        Raises:
            UserError: an arm is unknown, or its parts contradict each other.
        """
        if len(self.arms) > MAX_ARMS:
            raise UserError(f"{len(self.arms):,} arms, more than {MAX_ARMS:,}", remedy="compare fewer")
        if isinstance(self.arms, dict):
            arms = self.arms
        else:
            if repeated := [word for word in self.arms if self.arms.count(word) > 1]:
                raise UserError(f"arm '{repeated[0]}' is named twice", remedy="remove one of them")
            names = _short(self.arms)
            if repeated := [word for word, name in zip(self.arms, names, strict=True) if names.count(name) > 1]:
                raise UserError(
                    f"arms '{repeated[0]}' and '{repeated[1]}' would have the same name",
                    remedy="remove one of them, or name arms in a file",
                )
            arms = dict(zip(names, (read_arm(word, self.arms) for word in self.arms), strict=True))
        return {name: arm.checked(name) for name, arm in arms.items()}

    @property
    def reading(self) -> TextOptions:
        """How the text is read."""
        return TextOptions(self.field, self.documents, encoding=self.encoding)

    def located(self, locate: Callable[[str], str]) -> Comparison:
        """Return the comparison with all of its paths replaced; arms in words become arms by name."""
        arms = {
            name: msgspec.structs.replace(
                arm,
                model=arm.model and locate(arm.model),
                recipe=locate(arm.recipe) if arm.recipe.endswith(".toml") else arm.recipe,
            )
            for name, arm in self.basic_arms.items()
        }
        tasks = {
            name: msgspec.structs.replace(
                task, **{part: list(map(locate, getattr(task, part))) for part in ("train", "test", "unlabelled")}
            )
            for name, task in self.tasks.items()
        }
        return msgspec.structs.replace(self, arms=arms, tasks=tasks, text=list(map(locate, self.text)))

    def named_tasks(self) -> dict[str, TaskData]:
        """Return the tasks by name; one with several numbers of examples is a task for each of them.

        Raises:
            UserError: two have the same name, or a number is named twice.
        """
        tasks: dict[str, TaskData] = {}
        for name, data in self.tasks.items():
            if repeated := [number for number in data.examples if data.examples.count(number) > 1]:
                raise UserError(f"task '{name}': examples names {repeated[0]} twice", remedy="remove one of them")
            for named, sized in by_size(name, data):
                if named in tasks:
                    raise UserError(f"two tasks would be named '{named}'", remedy="choose another name for one of them")
                tasks[named] = sized
        return tasks

    def named_arms(self) -> dict[str, Arm]:
        """Return the arms by name, with those of the factors.

        Raises:
            UserError: an arm is unknown, or a factor has no arm to vary.
        """
        arms = self.basic_arms
        for name in (*arms, *self.tasks):
            if not NAME.fullmatch(name):
                raise UserError(f"'{name}' cannot be the name of an arm or a task", remedy="use letters and digits")
        if not self.vary:
            return arms
        base = next((name for name, arm in arms.items() if arm.way == "pretrain"), None)
        if base is None:
            raise UserError(f"{argument('vary')} has no effect: no arm is pretrained", remedy="name a recipe as an arm")
        varied = {
            name_of(self.vary, values): msgspec.structs.replace(
                arms[base], settings={**self.settings, **arms[base].settings, **settings}
            )
            for values, settings in combined(self.vary, self.design).items()
        }
        return varied | {name: arm for name, arm in arms.items() if name != base}


def _short(words: Sequence[str]) -> list[str]:
    """Return names of arms: the words, without the folders of directories where names remain different."""
    names = [re.sub(r"^.*/(?=[^/])", "", re.sub(r"/model/?(?=[+@]|$)", "", word.rstrip("/"))) for word in words]
    return [
        name if names.count(name) == 1 else re.sub(r"[^\w.+@=,:-]", "-", word).strip("-")
        for name, word in zip(names, words, strict=True)
    ]


def read_arm(word: str, words: Sequence[str]) -> Arm:
    """Return the arm that a word names.

    Args:
        word: such as "bert-mini", "DIRECTORY+adapt@frozen" or "random".
        words: all of them: random weights have the shape of the first one that is pretrained.

    Raises:
        UserError: there is no such recipe, directory, way or use.
    """
    base, _, use = word.partition("@")
    base, _, way = base.rpartition("+") if re.search(r"\+[a-z]+$", base) else (base, "", "")
    if use and use not in get_args(Use):
        raise UserError(f"arm '{word}': unknown use '{use}'", remedy=nearest(use, get_args(Use)[1:]))
    if way and way not in ("adapt", "distill", "random"):
        raise UserError(f"arm '{word}': unknown way '{way}'", remedy="choose adapt, distill or random")
    if base == ONE_OF or base.startswith(f"{ONE_OF}:"):
        if way:
            raise UserError(f"arm '{word}': random weights are neither adapted nor a teacher", remedy=f"write {base}")
        shapes = [shape for each in words if _is_recipe(shape := each.partition("@")[0])]
        recipe = base.partition(":")[2] or next(iter(shapes), "bert-mini")
        return Arm(recipe=recipe, way="random", use=use)  # type: ignore[arg-type]
    if _is_recipe(base):
        if way:
            raise UserError(f"arm '{word}': a recipe is neither adapted nor a teacher", remedy=f"write {base}")
        return Arm(recipe=base, use=use)  # type: ignore[arg-type]
    if "/" not in base and not (exists(Path(base)) and Path(base).is_dir()):
        raise UserError(f"arm '{word}': neither a recipe nor a directory", remedy=nearest(base, shipped()))
    return Arm(model=base, way=way, use=use)  # type: ignore[arg-type]


def _is_recipe(word: str) -> bool:
    return word in shipped() or word.endswith(".toml")


def read_comparison(path: str | Path) -> Comparison:
    """Return the comparison of a file, whose own paths are relative to it.

    Raises:
        UserError: it cannot be read, is not TOML, or has an unknown or invalid setting.
    """
    path, table = Path(path), read_toml(path)
    for name, kind in (("arms", Arm), ("tasks", TaskData)):
        for key, inner in table[name].items() if isinstance(table.get(name), dict) else ():
            if isinstance(inner, dict):  # errors in it then name it
                convert(inner, kind, f"{path}: {name}.{key}")
    comparison = convert(table, Comparison, str(path))

    return comparison.located(lambda name: str(path.parent / name) if exists(path.parent / name) else name)
