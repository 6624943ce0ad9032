"""Recipes: TOML files that define a training run.

Input: the name of a shipped recipe or a file, and settings from the command line. Output: frozen, typed settings; each
table is documented beside the code that it configures.

Their types give the JSON Schema, with which editors complete and check TOML files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec

from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.registries import LAYOUTS, MASKINGS, AnyLayout, AnyMasking
from unmask.data.tokenizers.train import TokenizerSettings
from unmask.families import FAMILIES, AnyBody
from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import ObjectiveSettings
from unmask.objectives.teacher import TEACHER
from unmask.recipes.requirements import RecipePart, check
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument, in_recipe, setting
from unmask.support.settings import Overrides, check_overrides, convert, flatten, parse_toml, put, to_table
from unmask.tasks import AnyTask
from unmask.training.settings import TrainingSettings

Objectives = msgspec.defstruct(
    "Objectives",
    [(name, settings | None, None) for name, settings in OBJECTIVES.items()],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
"""The recipe's [objective.NAME] tables."""


class StageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of the recipe's [[stages]], consecutive parts of a run.

    Attributes:
        share: share of the run's steps.
        layout, masking, objective: settings that override those in the recipe's tables of these names.
        corpus: directory of the corpus that it reads; "": that of the run.
    """

    share: float
    layout: dict[str, Any] = {}
    masking: dict[str, Any] = {}
    objective: dict[str, Any] = {}
    corpus: str = ""

    @property
    def overrides(self) -> dict[str, Any]:
        """What it overrides, by dotted keys."""
        return flatten({"layout": self.layout, "masking": self.masking, "objective": self.objective})


class Recipe(TrainingSettings, frozen=True, kw_only=True, dict=True):
    """A pretraining recipe.

    Attributes:
        name: name of the recipe.
        tokenizer, encoder, layout, masking, objective: its tables; with stages, those of the last one.
        stages: consecutive parts of the run; empty: a single one.
        initial_share: share of the weights of the model that a run starts from in those that it ends with, the rest
            being the trained ones (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models", equation 1); those
            of new heads, and of all where the vocabulary or the layers are changed, are the trained ones. "auto" is the
            least with which general text is kept, if it is scored, otherwise 0.7 to 0.9, the more, the more often the
            text is read; see workflows/pretraining/start.py.
        initial_embeddings: what token embeddings are before training, unless the run starts from a model: random, or
            vectors from which tokens occur near each other in the text ("cooccurrence"), with the biases of decoders at
            the frequencies of the tokens; see workflows/pretraining/token_vectors.py.
    """

    name: str
    tokenizer: TokenizerSettings = TokenizerSettings()
    encoder: AnyBody
    layout: AnyLayout
    masking: AnyMasking = TokenMaskingSettings()
    objective: Objectives  # type: ignore[valid-type]
    stages: tuple[StageSettings, ...] = ()
    initial_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] | Literal["auto"] = 0.0
    initial_embeddings: Literal["random", "cooccurrence"] = "random"

    def __post_init__(self) -> None:
        length = self.layout.length
        self.encoder.check_length(length)
        if length < 8:
            raise ValueError("layout: the length must be at least 8")
        self.masking.check_length(length, self.layout.remember)
        if not self.objectives:
            raise ValueError("at least one [objective.NAME] is needed")
        _check_weights(self.objectives)
        if self.budget.epochs is not None or self.budget.patience is not None:
            raise ValueError("a pretraining budget is given in steps, tokens or minutes, and has no patience")
        if self.masking.keeps_all:
            raise ValueError("masking.replace keeps every token, so that the input contains the answers")
        if self.initial_embeddings == "cooccurrence" and TOKEN_EMBEDDINGS not in self.encoder.provides:
            raise ValueError(
                "initial_embeddings: this encoder has no token embeddings: "
                f"pass {setting('initial_embeddings', 'random')}"
            )
        if self.layout.num_streams and self.batch.sequences != self.layout.num_streams:
            streams = self.layout.num_streams
            raise ValueError(
                f"a step reads one window of each of the {streams} layout.streams: "
                f"pass {setting('batch.sequences', streams)}"
            )
        layout = self.layout
        parts = [
            RecipePart("encoder", provides=self.encoder.provides, requires=self.encoder.requires),
            RecipePart("masking", provides=self.masking.provides),
            RecipePart(
                "teacher", provides=frozenset({TEACHER})
            ),  # whether there is one is checked when objectives are built
            *objective_parts(self.objectives),
            RecipePart("layout", provides=layout.provides, requires=layout.requires, without=layout.without),
        ]
        check(parts, _offers())
        if self.stages:
            self._check_stages()

    @property
    def objectives(self) -> dict[str, ObjectiveSettings]:
        """Settings of the objectives of the recipe, with stages those of the last one, by name."""
        return _by_name(self.objective)

    @property
    def all_objectives(self) -> dict[str, ObjectiveSettings]:
        """Settings of the objectives of all stages, by name, each as in the last stage that has it."""
        by_name = {name: objective for stage in self.every_stage for name, objective in stage.objectives.items()}
        return {name: by_name[name] for name in OBJECTIVES if name in by_name}

    @cached_property  # in the dict, which is no setting
    def every_stage(self) -> tuple[Recipe, ...]:
        """The recipe of each stage: all its settings, and no stages."""
        return tuple(self._at(number) for number in range(len(self.stages))) if self.stages else (self,)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each stage."""
        return tuple(stage.share for stage in self.stages) or (1.0,)

    def _at(self, number: int) -> Recipe:
        """Return the recipe of a stage.

        Raises:
            UserError: the settings of the stage are invalid or not compatible.
        """
        table = to_table(self) | {"stages": []}
        source = f"stages[{number}]"
        try:
            return convert(put(table, self.stages[number].overrides, Recipe), Recipe, "")
        except UserError as error:
            text = error.text(in_recipe)  # what it tells to set is set in the stage
            remedy = f"or pass {setting('stages', [])} for a run without stages" if text != error.message else ""
            raise UserError(text, file=source, remedy=remedy) from error

    def _check_stages(self) -> None:
        """Raise a ValueError if the stages are not consistent with each other."""
        if not all(0 < share <= 1 for share in self.shares) or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError("the shares of the stages must be positive and sum to 1")
        last = self.stages[-1]
        if last.layout or last.masking or last.objective:
            raise ValueError(
                f"stages[{len(self.stages) - 1}] is the last stage, whose settings are the recipe's own: write them in "
                "[layout], [masking] and [objective], and what differs before in the earlier stages"
            )
        if last.corpus:
            raise ValueError(
                f"stages[{len(self.stages) - 1}] is the last stage, which reads the corpus of the run: "
                f"name that by {argument('corpus')}"
            )
        try:
            stages = self.every_stage
        except UserError as error:
            raise ValueError(error.message) from error
        if len(stages) > 1 and any(stage.layout.num_streams for stage in stages):
            raise ValueError(f"contiguous streams have a single stage: remove the stages ({setting('stages', [])})")
        built = {
            name: msgspec.structs.replace(objective, weight=1.0) for name, objective in self.all_objectives.items()
        }
        for number, stage in enumerate(stages):
            for name, objective in stage.objectives.items():
                if msgspec.structs.replace(objective, weight=1.0) != built[name]:
                    raise ValueError(
                        f"stages[{number}]: objective.{name} differs between stages: only its weight can, as its head "
                        "is built once"
                    )


class DistillationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [distillation], if a student learns a task from a teacher.

    Attributes:
        gold: weight of the loss of the examples' own labels, beside the teacher's predictions; 0: they are not used.
        intermediate: share of the steps, at the beginning, in which only layers are matched (Jiao et al. 2020, section
            3.2); 0: they are matched throughout, beside the predictions; None: they are not matched.
    """

    gold: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    intermediate: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


class FinetuningRecipe(TrainingSettings, frozen=True, kw_only=True):
    """A fine-tuning recipe; `finetuning.defaults` fills it by rule.

    Attributes:
        task: the task, and how examples become samples.
        dropout: dropout rate of the encoder and before the last layer; None keeps the encoder's own.
        objective: auxiliary objectives, such as GPT's language modeling (Radford et al. 2018, equation 5).
        reset: number of top layers to reinitialize along with the pooler (Zhang et al. 2021, section 5); None: nothing.
        frozen: whether the encoder is not trained; its features are then computed once.
        downstream: the small model on the encoder's layers; None: the task head is on the encoder itself.
        probe: whether the head begins as the logistic regression on the features of the encoder as it is; if
            budget.epochs is 0, that is all that is learned.
        distillation: how the task is learned from a teacher; None: there is none.
    """

    task: AnyTask
    objective: Objectives = Objectives()  # type: ignore[valid-type]
    reset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    frozen: bool = False
    downstream: DownstreamSettings | None = None
    probe: bool = False
    distillation: DistillationSettings | None = None

    def __post_init__(self) -> None:
        _check_weights(self.objectives)
        if self.budget.epochs == 0 and not self.probe:
            raise ValueError("a budget must be positive, unless probe = true fits the head")
        if self.probe and self.distillation is not None:
            raise ValueError("probe fits a head to labels: it does not go with distillation")
        if self.distillation is not None:
            matched, share = "layer_matching" in self.objectives, self.distillation.intermediate
            if matched != (share is not None):
                raise ValueError("distillation.intermediate and objective.layer_matching belong together")
            if share and self.budget.patience is not None:
                raise ValueError("budget.patience goes with a single part: set distillation.intermediate to 0")
        if self.optimizer.average and self.budget.patience is not None:
            raise ValueError("optimizer.average has no effect with budget.patience, which takes the best weights")

    @property
    def objectives(self) -> dict[str, ObjectiveSettings]:
        """Settings of the auxiliary objectives, by name."""
        return _by_name(self.objective)


def objective_parts(objectives: Mapping[str, ObjectiveSettings]) -> list[RecipePart]:
    """Return the objectives as parts that ask for names and take them."""
    return [
        RecipePart(f"objective.{name}", requires=objective.requires, exclusive=objective.exclusive)
        for name, objective in objectives.items()
    ]


def shipped() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(source: str | Path, settings: Overrides | None = None) -> Recipe:
    """Read a shipped recipe or a file, overridden by settings such as {"budget.steps": 100}.

    Raises:
        UserError: the recipe does not exist, is not valid TOML, or has an unknown key or an invalid value.
    """
    settings = settings or {}
    check_overrides(settings)
    table, name = recipe_table(source)
    return convert(put(table, settings, Recipe), Recipe, name)


def as_recipe(recipe: Recipe | str | Path, settings: Overrides | None = None) -> Recipe:
    """Return a recipe with some settings changed, read first if it is the name of a shipped one or a file.

    Raises:
        UserError: see `read_recipe`.
    """
    if not isinstance(recipe, Recipe):
        return read_recipe(recipe, settings)
    check_overrides(settings or {})
    return convert(put(to_table(recipe), settings, Recipe), Recipe, recipe.name) if settings else recipe


def recipe_table(source: str | Path) -> tuple[dict[str, Any], str]:
    """Return a recipe as a table, and its name in errors.

    Raises:
        UserError: it does not exist, or is not valid TOML.
    """
    text, name = recipe_text(source)
    return _parse(text, name), name


def recipe_text(source: str | Path) -> tuple[str, str]:
    """Return the text of a recipe, and its name in errors."""
    if str(source) in shipped():
        return (_folder() / f"{source}.toml").read_text(encoding="utf8"), f"recipe {source}"
    try:
        return Path(source).read_text(encoding="utf8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"no shipped recipe or readable file '{source}'", remedy=nearest(str(source), shipped())
        ) from error


def purpose(source: str | Path) -> str:
    """Return what a recipe is for: the beginning of its first comment, up to a colon or the end of a sentence."""
    lines = recipe_text(source)[0].splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"[:;] |\.(?= [A-Z]|$)", comment, maxsplit=1)[0]


def recipe_schema() -> dict[str, Any]:
    """Return the schema of recipes: those of fine-tuning are recognized by their [task].

    Where a setting may be unset, the schema has `false` for it, as recipes do, because TOML has no null.
    """
    (pretraining, finetuning), components = msgspec.json.schema_components(
        (Recipe, FinetuningRecipe), ref_template="#/$defs/{name}"
    )
    del components["AdamWSettings"]["required"]  # the `kind` of the optimizer, which has a default
    schema: dict[str, Any] = _without_null(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Recipe of unmask",
            "type": "object",
            "if": {"required": ["task"]},
            "then": finetuning,
            "else": pretraining,
            "$defs": components,
        }
    )
    return schema


def _by_name(objective: Any) -> dict[str, ObjectiveSettings]:
    """Return the settings in [objective.NAME] tables, by name."""
    tables = {name: getattr(objective, name) for name in OBJECTIVES}
    return {name: settings for name, settings in tables.items() if settings is not None}


def _check_weights(objectives: Mapping[str, ObjectiveSettings]) -> None:
    for name, settings in objectives.items():
        if not all(0 < weight < math.inf for weight in settings.part_weights(name).values()):
            raise ValueError(f"objective.{name}: a weight must be above 0; to remove the objective, set {name} = false")


def _offers() -> dict[str, list[Mapping[str, Any]]]:
    """Return the settings that give what objectives ask for, and those that ask for what layouts give; see `check`."""
    offers: dict[str, list[Mapping[str, Any]]] = {}
    for kind, masking in MASKINGS.items():
        for name in masking.provides:
            offers.setdefault(name, []).append({"masking.kind": kind})
    for layout in LAYOUTS.values():
        for name, values in layout.offers.items():
            offers.setdefault(name, []).append(values)
    for kind, family in FAMILIES.items():
        for name in family.settings.capabilities:
            offers.setdefault(name, []).append({"encoder.kind": kind})
    for objective, settings in OBJECTIVES.items():
        for name in settings.requires:
            offers.setdefault(f"ask {name}", []).append({f"objective.{objective}.weight": 1})
    return offers


def _parse(text: str, name: str) -> dict[str, Any]:
    """Parse TOML; the `kind` of the optimizer is "adamw" if it is not set."""
    table = parse_toml(text, name)
    if isinstance(optimizer := table.get("optimizer"), dict):
        optimizer.setdefault("kind", "adamw")
    return table


def _folder() -> Path:
    return cast(Path, resources.files("unmask") / "recipes")


def _without_null(value: Any) -> Any:
    """Return a schema in which false takes the place of null."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value == {"type": "null"}:
        return {"const": False}
    return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
