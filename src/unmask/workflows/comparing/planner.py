"""Which cells a comparison has: its inputs are read once, and each cell says what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_args

import msgspec

from unmask.data.labelled.table import as_sources
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.train import PADDING
from unmask.model.directory import find, read_settings
from unmask.model.model import load_model
from unmask.objectives.layer_matching import NAME as LAYER_MATCHING
from unmask.objectives.layer_matching import LayerMatchingSettings
from unmask.recipes.recipe import Recipe, as_recipe
from unmask.support.choices import BITS_PLL, RankedTask
from unmask.support.errors import UserError
from unmask.support.fingerprint import versions
from unmask.support.messages import argument
from unmask.support.settings import to_table
from unmask.training.settings import FORWARDS_PER_STEP
from unmask.workflows.comparing.cells import OUTLOOK, Cell, Contents, Plan
from unmask.workflows.comparing.checks import settle_scoring
from unmask.workflows.comparing.settings import (
    HEADLESS_STUDENT,
    STUDENT,
    Arm,
    Comparison,
    TaskData,
    by_size,
    errors_of,
    read_budget,
)
from unmask.workflows.comparing.vocabulary import shared_tokenizer, suited_tokenizer
from unmask.workflows.distillation.student import student_settings
from unmask.workflows.pretraining.checks import check_shape
from unmask.workflows.pretraining.default import DECAY, DECAY_FROM, SIZES, WEIGHT_DECAY, for_model
from unmask.workflows.pretraining.search import cost

LIBRARIES = ("torch", "tokenizers")
"""Libraries whose versions results depend on."""
HELD_OUT, MAX_PASSAGE = 20_000, 1_000
"""Number of characters of held-out text whose bits are measured, and of the longest passage of a document."""


class Planner:
    """Makes the cells of a comparison, whose inputs are read once.

    Args:
        comparison: the settings, which were checked.
        arms: its arms by name.
        precision: number format of the computation.
    """

    def __init__(self, comparison: Comparison, arms: Mapping[str, Arm], precision: str) -> None:
        self.comparison, self.arms = comparison, arms
        self.common = {"versions": versions(LIBRARIES), "precision": precision}
        self.contents = contents = Contents()
        self.text_paths = {"text": comparison.text, "reading": comparison.reading}
        self.of_text = {
            "versions": self.common["versions"],
            "text": contents.of_files("text", comparison.text),
            "reading": asdict(comparison.reading),
        }
        self.models = {arm.model: contents.of_model(arm.model) for arm in arms.values() if arm.model}
        self.vocabularies: dict[str, int] = {}
        teachers = {
            arm.model: load_model(arm.model) for arm in arms.values() if arm.way == "distill" and not arm.recipe
        }
        self.students = {
            name: STUDENT if "masked_lm" in teacher.heads else HEADLESS_STUDENT for name, teacher in teachers.items()
        }
        self.widths = {name: teacher.encoder.width for name, teacher in teachers.items()}
        self.tasks = comparison.named_tasks()
        self.files = {
            name: {"train": contents.of_files(name, data.train), "test": contents.of_files(name, data.test)}
            for name, data in self.tasks.items()
        }
        self.scoring: dict[str, dict[str, Any]] = {}
        for name, data in comparison.tasks.items():  # whose files are read once for all sizes
            names = [named for named, _ in by_size(name, data)]
            self.scoring |= dict.fromkeys(names, settle_scoring(comparison, name, data))
        self.trained: dict[tuple[str, int, float], Cell] = {}
        self.teachers = {arm.teacher for arm in arms.values() if arm.teacher}
        self.tokenizer = shared_tokenizer(comparison, arms)

    def plan(self) -> Plan:
        """Return all cells.

        Raises:
            UserError: two arms are the same, or the budget does not suffice for a step.
        """
        cells: dict[str, Cell] = {}
        scored: dict[str, tuple[str, str]] = {}
        costs: list[Cell] = []
        owners: dict[str, list[str]] = {}

        def add(cell: Cell) -> None:
            for needed in cell.needs.values():
                add(needed)
            cells.setdefault(cell.key, cell)
            if cell.arm not in owners.setdefault(cell.key, []):
                owners[cell.key].append(cell.arm)

        def add_scored(cell: Cell) -> None:
            name, task = scored.setdefault(cell.key, (cell.arm, cell.task))
            if name != cell.arm:
                raise UserError(f"arms '{name}' and '{cell.arm}' are the same", remedy="remove one of them")
            if task != cell.task:
                raise UserError(f"tasks '{task}' and '{cell.task}' are the same", remedy="remove one of them")
            add(cell)

        for task in self.tasks if any(arm.trains for arm in self.arms.values()) else ():
            add(self.overlap(task))
        for seed in range(self.comparison.seeds):
            for name, arm in self.arms.items():
                for task in self.tasks:
                    add_scored(self.score(name, arm, task, seed))
                    if seed == 0 and self._has_features(arm) and self.tasks[task].task in get_args(RankedTask):
                        add(self.look(name, arm, task))
                    if seed == 0 and arm.model and arm.way != "random":
                        add(self.familiarity(name, arm, task))
                if not self.tasks:
                    add_scored(self.bits(name, arm, seed))
                elif seed == 0 and self.comparison.text and self._has_features(arm):
                    add(self.bits(name, arm))
                if seed == 0:
                    costs.append(self.cost(name, arm))
        for share in OUTLOOK if self.comparison.outlook else ():
            for seed in range(self.comparison.seeds):
                for name, arm in self.arms.items():
                    for task in self.tasks if arm.trains else ():
                        add(self.score(name, arm, task, seed, share))
                    if arm.trains and not self.tasks:
                        add(self.bits(name, arm, seed, share))
        for cell in costs:
            add(cell)
        return Plan(self.comparison, self.arms, self.tasks, tuple(cells.values()), owners, self.contents)

    def score(self, name: str, arm: Arm, task: str, seed: int, share: float = 1.0) -> Cell:
        """Return the cell that learns a task and is scored."""
        keeps = share == 1 and (seed == 0 or name in self.teachers)
        if arm.teacher:
            return self._student(name, arm, task, seed, keeps=keeps)
        inputs, paths = self._learned(arm, self.tasks[task], task, seed)
        needs = self._start(name, arm, seed, share)
        if self.comparison.search and "optimizer.learning_rate" not in inputs["settings"]:
            needs["rate"] = self.rate(name, arm, task)
        return Cell("score", inputs, name, task, seed, share, paths, needs, keeps=keeps)

    def _student(self, name: str, arm: Arm, task: str, seed: int, *, keeps: bool) -> Cell:
        """Return the cell of a student that learns a task from another arm."""
        data, recipe = self.tasks[task], as_recipe(arm.recipe, arm.settings)
        inputs, paths = self._examples(arm, data, task, seed)
        inputs["student"] = {"recipe": _unnamed(recipe), "layers": arm.layers}
        inputs["unlabelled"] = self.contents.of_files(task, data.unlabelled)
        paths |= {
            "student": recipe,
            "name": arm.recipe,
            "changes": arm.settings,
            **self._student_shape(name, arm, recipe),
        }
        paths["unlabelled"] = as_sources(data.unlabelled, data.encoding)
        needs = {"teacher": self.score(arm.teacher, self.arms[arm.teacher], task, seed)}
        return Cell("score", inputs, name, task, seed, 1.0, paths, needs, keeps=keeps)

    def _student_shape(self, name: str, arm: Arm, recipe: Recipe) -> dict[str, Any]:
        """Return the shape of a student, and the number of its teacher's token ids, which it has, too.

        Raises:
            UserError: the teacher has fewer layers, or others than the objective compares.
        """
        teacher = self.arms[arm.teacher]
        recipe_of_its_own = teacher.way in ("pretrain", "distill")
        taught = self.recipe(arm.teacher, teacher, 0, 1.0) if recipe_of_its_own else self._shape(teacher)
        with errors_of(name):
            shape = student_settings(recipe.encoder, taught.encoder, arm.layers)
            matching = recipe.objectives.get(LAYER_MATCHING)
            parts = (self.comparison.task_settings, arm.task_settings, *(data.settings for data in self.tasks.values()))
            changed = any(key.startswith(f"objective.{LAYER_MATCHING}") for part in parts for key in part)
            if isinstance(matching, LayerMatchingSettings) and not changed:
                matching.mapping(shape.layers, taught.encoder.layers)
        return {"shape": shape, "vocabulary": self._vocabulary(teacher.model, taught)}

    def _vocabulary(self, model: str, recipe: Recipe) -> int:
        """Return the number of token ids of a checkpoint, or of the tokenizer of a recipe, if none is named."""
        if not model:
            return recipe.tokenizer.vocabulary
        if model not in self.vocabularies:
            self.vocabularies[model] = load_tokenizer(find(model)).size
        return self.vocabularies[model]

    @staticmethod
    def _has_features(arm: Arm) -> bool:
        """Return whether an arm has a model that has been trained before it learns a task."""
        return arm.way not in ("random", "student")

    def look(self, name: str, arm: Arm, task: str) -> Cell:
        """Return the cell that judges the features of a model without training."""
        data = self.tasks[task]
        inputs = {
            "versions": self.common["versions"],
            "files": self.files[task]["train"],
            **_read_as(data),
            "model": None if arm.trains else self.models[arm.model],
        }
        if data.limit is not None:
            inputs["examples"] = data.limit
        paths = {"files": data.files, "model": arm.model}
        return Cell("look", inputs, name, task, paths=paths, needs=self._start(name, arm, 0))

    def familiarity(self, name: str, arm: Arm, task: str) -> Cell:
        """Return the cell that looks whether the checkpoint of an arm knows the test texts better than training texts.

        It is the checkpoint as it is, even if the arm trains it further: what it has read before stays with it.
        """
        cell = self.look(name, Arm(model=arm.model), task)
        inputs = {key: value for key, value in cell.inputs.items() if key != "examples"}
        return replace(
            cell, kind="familiarity", inputs={**inputs, **self.common, "files": self.files[task], "pll": BITS_PLL}
        )

    def cost(self, name: str, arm: Arm) -> Cell:
        """Return the cell that measures the speed of an arm's model: the one that learned the first task, if any."""
        if self.tasks:
            return Cell(
                "cost", self.common, arm=name, needs={"score": self.score(name, arm, next(iter(self.tasks)), 0)}
            )
        inputs = self.common if arm.trains else {**self.common, "model": self.models[arm.model]}
        return Cell("cost", inputs, name, paths={"model": arm.model}, needs=self._start(name, arm, 0))

    def bits(self, name: str, arm: Arm, seed: int = 0, share: float = 1.0) -> Cell:
        """Return the cell that measures how well a model predicts held-out text."""
        inputs: dict[str, Any] = {
            **self.common,
            "model": None if arm.trains else self.models[arm.model],
            "pll": BITS_PLL,
        }
        if seed and not arm.trains:  # a checkpoint is the same for all seeds
            inputs["seed"] = seed
        needs = {**self._start(name, arm, seed, share), "heldout": self.heldout()}
        return Cell("bits", inputs, name, "", seed, share, {"model": arm.model}, needs)

    def heldout(self) -> Cell:
        """Return the cell that draws passages of the text that no arm is trained on."""
        inputs = {**self.of_text, "characters": HELD_OUT, "longest": MAX_PASSAGE}
        return Cell("heldout", inputs, paths={**self.text_paths, "decides": not self.tasks})

    def rate(self, name: str, arm: Arm, task: str) -> Cell:
        """Return the cell that chooses a learning rate of fine-tuning with the first seed."""
        inputs, paths = self._learned(arm, self.tasks[task], task, 0)
        inputs["metric"] = self.tasks[task].metric
        return Cell("rate", inputs, name, task, paths=paths, needs=self._start(name, arm, 0))

    def _start(self, name: str, arm: Arm, seed: int, share: float = 1.0) -> dict[str, Cell]:
        """Return the cells that make what tasks are learned from: the model, or the tokenizer of random weights."""
        if arm.trains:
            return {"model": self.pretraining(name, arm, seed, share)}
        if arm.way == "random" and self.comparison.text and not arm.model:
            return {"tokenizer": self.corpus(self._tokenizer_of(arm))}
        return {}

    def pretraining(self, name: str, arm: Arm, seed: int, share: float = 1.0) -> Cell:
        """Return the cell that trains the model of an arm on the text, the same one for all that need it."""
        if (known := self.trained.get((name, seed, share))) is not None:
            return known
        recipe = self.recipe(name, arm, seed, share)
        inputs: dict[str, Any] = {
            **self.common,
            "way": arm.way,
            "recipe": _unnamed(recipe),
            "model": self.models.get(arm.model),
            "search": self.comparison.search and arm.way != "distill",
        }
        needs = {"corpus": self.corpus(self.models[arm.model] if arm.model else self._tokenizer_of(arm), arm.model)}
        if arm.recipe in SIZES and not arm.model and WEIGHT_DECAY not in {**self.comparison.settings, **arm.settings}:
            inputs[WEIGHT_DECAY] = {"value": DECAY, "from": DECAY_FROM}
            if share != 1:  # runs of an outlook have that of the whole budget, so that their scores are of one curve
                inputs[WEIGHT_DECAY] |= {"share": share}
            if recipe.budget.minutes:  # the same for all seeds
                needs["speed"] = Cell("speed", self.common)
        paths = {"recipe": recipe, "model": arm.model}
        paths |= {"shape": recipe.encoder, "vocabulary": self._vocabulary(arm.model, recipe)}
        if not self.tasks:  # without held-out text nothing could be compared
            needs["heldout"] = self.heldout()
        cell = Cell("pretraining", inputs, name, "", seed, share, paths, needs, keeps=True)
        return self.trained.setdefault((name, seed, share), cell)

    def corpus(self, tokenizer: Mapping[str, Any] | str | None, model: str = "") -> Cell:
        """Return the cell that tokenizes the text with a tokenizer that is trained on it, or with that of a model."""
        paths = {**self.text_paths, "tokenizer": model}
        return Cell("corpus", {**self.of_text, "tokenizer": tokenizer}, paths=paths)

    def overlap(self, task: str) -> Cell:
        """Return the cell that looks for the test examples of a task in the text."""
        data = self.tasks[task]
        inputs = {**self.of_text, "files": self.files[task], **_read_as(data)}
        return Cell("overlap", inputs, task=task, paths={**self.text_paths, "files": data.files})

    def recipe(self, name: str, arm: Arm, seed: int, share: float) -> Recipe:
        """Return the recipe by which an arm is trained on the text with a share of the budget.

        Raises:
            UserError: a setting is unknown, or the budget does not suffice for a step.
        """
        with errors_of(name):
            return self._budgeted(self._unbudgeted(arm, seed), arm, share)

    def _unbudgeted(self, arm: Arm, seed: int) -> Recipe:
        """Return the recipe of an arm with the budget that it comes with."""
        changes: dict[str, Any] = {**self.comparison.settings, **arm.settings, "seed": seed}
        if arm.way == "adapt" and not arm.recipe:
            recipe, shape = for_model(arm.model, changes), read_settings(arm.model)
            check_shape(shape, recipe, arm.model)
            recipe = msgspec.structs.replace(recipe, encoder=shape)
        elif arm.way == "distill":
            recipe = as_recipe(arm.recipe or self.students[arm.model], changes)
            if (
                not arm.recipe
                and not any(key.startswith("objective.hidden_cosine") for key in changes)
                and recipe.encoder.width != self.widths[arm.model]
            ):
                recipe = as_recipe(recipe, {"objective.hidden_cosine": False})  # it compares equal widths
        else:
            recipe = as_recipe(arm.recipe, {**self._of_tokenizer(arm), **changes})
        return recipe

    def _budgeted(self, recipe: Recipe, arm: Arm, share: float) -> Recipe:
        """Return a recipe with a share of the budget of the comparison.

        Raises:
            UserError: it does not suffice for a step.
        """
        budget, step = read_budget(self.comparison.budget).times(share), step_tokens(recipe)
        unlimited = {"budget.max_minutes": False}  # of a recipe in a file, which has a budget of its own
        if budget.unit == "minutes":
            return as_recipe(recipe, {"budget.minutes": budget.amount, **unlimited})
        tokens = budget.amount if budget.unit == "tokens" else budget.amount / self.flops(arm, recipe)
        if tokens < step:
            amount = f"{budget} are" if budget.unit == "tokens" else f"{budget} are {tokens:,.0f} tokens,"
            part = "" if share == 1 else f" ({share:g} of the budget, with which the outlook begins)"
            raise UserError(
                f"{amount} less than a step of {step:,} tokens{part}",
                remedy=f"pass {argument('budget', budget.times(step / tokens / share).written)} or more",
            )
        return as_recipe(recipe, {"budget.tokens": float(f"{tokens:.6g}"), **unlimited})

    def flops(self, arm: Arm, recipe: Recipe) -> float:
        """Return the floating-point operations of a training step per token, with those of a teacher."""
        vocabulary = self._vocabulary(arm.model, recipe)
        if arm.way == "adapt":
            recipe = msgspec.structs.replace(recipe, encoder=read_settings(arm.model))
        flops = cost(recipe, vocabulary).flops
        if arm.way == "distill":
            teacher = self._shape(arm)
            length = min(recipe.layout.length, teacher.encoder.positions)
            teacher = as_recipe(teacher, {"layout.length": length})
            flops += cost(teacher, vocabulary).flops / FORWARDS_PER_STEP
        return flops

    def _examples(self, arm: Arm, data: TaskData, task: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the inputs and the paths of the examples and the settings that an arm learns a task by."""
        inputs = {
            **self.common,
            **_read_as(data),
            "files": self.files[task],
            "settings": {**self.comparison.task_settings, **data.settings, **arm.task_settings},
            "use": arm.use,
            "seed": seed,
        }
        if data.limit is not None:
            inputs["examples"] = data.limit
        return inputs, {"files": data.files}

    def _learned(self, arm: Arm, data: TaskData, task: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the inputs and the paths of what is learned from labels."""
        inputs, paths = self._examples(arm, data, task, seed)
        paths |= {"frozen": arm.frozen, "small": arm.downstream}
        inputs["settings"] = {**self.scoring[task], **inputs["settings"]}
        if arm.way == "random":
            paths["recipe"] = recipe = self._shape(arm)
            inputs["random"] = to_table(recipe)["encoder"]
            if arm.model:
                paths["tokenizer"], inputs["tokenizer"] = arm.model, self.models[arm.model]
            elif not self.comparison.text:
                paths["tokenizer"], inputs["tokenizer"] = next(iter(self.models.items()))
            paths |= {"shape": recipe.encoder, "vocabulary": self._vocabulary(paths.get("tokenizer", ""), recipe)}
        elif not arm.trains:
            paths["model"], inputs["model"] = arm.model, self.models[arm.model]
        return inputs, paths

    def _shape(self, arm: Arm) -> Recipe:
        """Return a recipe with the encoder of an arm of random weights: that of its recipe or of its checkpoint."""
        if arm.model:
            return msgspec.structs.replace(for_model(arm.model, {}), encoder=read_settings(arm.model))
        return as_recipe(arm.recipe, {**self._of_tokenizer(arm), **arm.settings})

    def _tokenizer_of(self, arm: Arm) -> dict[str, Any]:
        """Return the settings of the tokenizer of a recipe."""
        return to_table(as_recipe(arm.recipe, {**self._of_tokenizer(arm), **arm.settings}).tokenizer)

    def _of_tokenizer(self, arm: Arm) -> dict[str, Any]:
        """Return the settings with which a recipe reads the shared tokenizer, or its own if the arm names one.

        Raises:
            UserError: there is no such recipe.
        """
        own = any(key.startswith("tokenizer.") for key in arm.settings)
        tokenizer = suited_tokenizer(self.comparison, arm) if own else self.tokenizer
        recipe = as_recipe(arm.recipe, {**self.comparison.settings, **arm.settings})
        if tokenizer is None or recipe.tokenizer.kind == "words":
            return dict(self.comparison.settings)
        changes = {f"tokenizer.{key}": value for key, value in tokenizer.items()}
        if getattr(recipe.encoder, "offset", 0):  # positions begin after the padding token, as in fairseq
            changes["encoder.offset"] = PADDING[tokenizer["kind"]] + 1
        return {**self.comparison.settings, **changes}


def step_tokens(recipe: Recipe) -> int:
    """Return the number of tokens of a step, at most if it has a number of sequences."""
    return recipe.batch.tokens or (recipe.batch.sequences or 1) * recipe.layout.length


def _unnamed(recipe: Recipe) -> dict[str, Any]:
    """Return what a recipe says apart from its name and its tokenizer, which a corpus or a teacher has."""
    return {key: value for key, value in to_table(recipe).items() if key not in ("name", "tokenizer")}


def _read_as(data: TaskData) -> dict[str, Any]:
    """Return how the files of a task are read, on which all that is made of them depends."""
    return {"task": data.task, "columns": data.columns, "format": data.format, "encoding": data.encoding}
