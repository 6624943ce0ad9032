"""A recipe is data: one TOML file says what to train.

In: the name of a shipped recipe or a file, and settings from the command line. Out: frozen, typed settings; each
table is described beside the code that it configures.
"""

from __future__ import annotations

import math
import shutil
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from unmask.batches.layouts import LAYOUTS, AnyLayout
from unmask.batches.maskings import MASKINGS, AnyMasking
from unmask.batches.token_masking import TokenMaskingSettings
from unmask.durable import replace_file
from unmask.encoders.downstream import DownstreamSettings
from unmask.errors import UserError, nearest
from unmask.families import FAMILIES, AnyBody
from unmask.lock import is_locked
from unmask.migration import migrate, migrate_text, refuse_old, refuse_old_settings
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import ObjectiveSettings
from unmask.requirements import Part, check
from unmask.settings import Overrides, check_overrides, convert, put, write
from unmask.tasks import AnyTask
from unmask.tokenizers.train import CASED, Trained
from unmask.training.settings import TrainingSettings


class TokenizerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [tokenizer]: serves raw text only, for a corpus brings its own.

    Attributes:
        kind: "wordpiece", "bpe" (byte-level) or "unigram" (SentencePiece's).
        vocabulary: how many pieces.
        lowercase: and strip accents; a byte-level BPE never does.
    """

    kind: Trained = "wordpiece"
    vocabulary: int = 30522
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.kind in CASED and self.lowercase:
            raise ValueError(f'lowercase has no effect on kind = "{self.kind}": set it to false')


Objectives = msgspec.defstruct(
    "Objectives",
    [(name, settings | None, None) for name, settings in OBJECTIVES.items()],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
"""The recipe's [objective.NAME] tables."""


class Recipe(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an encoder is pretrained.

    Attributes:
        name: what it is called.
        tokenizer, encoder, layout, masking, objective: its tables.
    """

    name: str
    tokenizer: TokenizerSettings = TokenizerSettings()
    encoder: AnyBody
    layout: AnyLayout
    masking: AnyMasking = TokenMaskingSettings()
    objective: Objectives  # type: ignore[valid-type]

    def __post_init__(self) -> None:
        lengths = [stage.length for stage in self.layout.all_stages]
        if max(lengths) > self.encoder.positions:
            raise ValueError(f"layout: the length {max(lengths)} exceeds encoder.positions {self.encoder.positions}")
        if min(lengths) < 8:
            raise ValueError("layout: the length must be at least 8")
        if not self.objectives:
            raise ValueError("at least one [objective.NAME] is needed")
        _check_weights(self.objectives)
        if self.budget.epochs is not None or self.budget.patience is not None:
            raise ValueError("a pretraining budget is given in steps, tokens or minutes, and knows no patience")
        if self.masking.keeps_all:
            raise ValueError("masking.replace has every token stay, so that the answers could be read")
        if self.layout.num_streams and self.batch.sequences != self.layout.num_streams:
            streams = self.layout.num_streams
            raise ValueError(
                f"a step reads a window of each of layout.streams = {streams}: pass --set batch.sequences={streams}"
            )
        parts = [
            Part("encoder", gives=self.encoder.gives, asks=self.encoder.asks),
            Part("masking", gives=self.masking.gives),
            Part("layout", gives=self.layout.gives, without=self.layout.without),
        ]
        check([*parts, *objective_parts(self.objectives)], _offers())

    @property
    def objectives(self) -> dict[str, ObjectiveSettings]:
        """The settings of the objectives that the recipe has, by name."""
        return named(self.objective)


class FinetuningRecipe(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is fine-tuned; `finetuning.defaults` fills it by rule.

    Attributes:
        task: its table: what is learnt, and how examples become samples.
        dropout: in the encoder and before the last layer; None keeps the encoder's own.
        objective: what is learnt beside the task, such as GPT's language model (Radford et al. 2018, equation 5).
        reset: draw the pooler and so many of the uppermost layers anew (Zhang et al. 2021, section 5); None: nothing.
        frozen: the encoder stays as it is, and its features are computed once.
        downstream: the small model over the encoder's layers; None: the task's head sits on the encoder itself.
    """

    task: AnyTask
    objective: Objectives = Objectives()  # type: ignore[valid-type]
    reset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    frozen: bool = False
    downstream: DownstreamSettings | None = None

    def __post_init__(self) -> None:
        _check_weights(self.objectives)

    @property
    def objectives(self) -> dict[str, ObjectiveSettings]:
        """The settings of the objectives beside the task, by name."""
        return named(self.objective)


def named(objective: Any) -> dict[str, ObjectiveSettings]:
    """Return what stands in [objective.NAME] tables, by name."""
    given = {name: getattr(objective, name) for name in OBJECTIVES}
    return {name: settings for name, settings in given.items() if settings is not None}


def objective_parts(objectives: Mapping[str, ObjectiveSettings]) -> list[Part]:
    """Return what objectives ask for and take."""
    return [Part(f"objective.{name}", asks=one.asks, takes=one.takes) for name, one in objectives.items()]


def _check_weights(objectives: Mapping[str, ObjectiveSettings]) -> None:
    for name, settings in objectives.items():
        if not all(0 < weight < math.inf for weight in settings.weights):
            raise ValueError(f"objective.{name}: a weight must be above 0; to leave it away say {name} = false")


def _offers() -> dict[str, list[str]]:
    """Return which settings give what objectives may ask for, and which ask for what a layout gives."""
    offers: dict[str, list[str]] = {}
    for kind, masking in MASKINGS.items():
        for name in masking.gives:
            offers.setdefault(name, []).append(f"masking.kind={kind}")
    for layout in LAYOUTS.values():
        for name, setting in layout.offers.items():
            offers.setdefault(name, []).append(setting)
    for kind, family in FAMILIES.items():
        for name in family.settings.capabilities:
            offers.setdefault(name, []).append(f"encoder.kind={kind}")
    for objective, settings in OBJECTIVES.items():
        for name in settings.asks:
            offers.setdefault(f"ask {name}", []).append(f"objective.{objective}.weight=1")
    return offers


def shipped() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(source: str | Path, settings: Overrides | None = None) -> Recipe:
    """Read a shipped recipe or a file, with settings such as {"budget.steps": 100} put over it.

    Raises:
        UserError: no such recipe, not TOML, an unknown key, a value out of place.
    """
    settings = settings or {}
    check_overrides(settings)
    text, place = recipe_text(source)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", file=place) from error
    refuse_old(table, place)
    refuse_old_settings(settings)
    return convert(put(table, settings, Recipe), Recipe, place)


def migrate_file(path: Path, out: Path | None = None) -> list[str]:
    """Rewrite a recipe of an earlier version as one of today's, its comments and its order kept.

    Args:
        path: a recipe, or a run, whose recipe.toml is meant.
        out: where to write it; None: in its place, what it was is kept as FILE.old.

    Returns:
        What has changed, a line each; nothing where it is of today's version.

    Raises:
        UserError: it cannot be read, no family of today has its settings together, or the run is in use; nothing is
            written.
    """
    if path.is_dir() and is_locked(path / ".lock"):
        raise UserError("another program is writing to this run", file=path, remedy="wait for it")
    path = path / "recipe.toml" if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf8")
    except UnicodeDecodeError as error:
        raise UserError("not text in UTF-8", file=path) from error
    try:
        new, changes = migrate_text(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", file=path) from error
    except ValueError as error:
        raise UserError(str(error), file=path) from error
    table = tomllib.loads(new)
    convert(table, FinetuningRecipe if "task" in table else Recipe, str(path))
    if not changes:
        return []
    if out is None:
        kept = path.with_name(f"{path.name}.old")
        if kept.exists():
            raise UserError(
                "is there already, and would be overwritten", file=kept, remedy="move it away, or pass --out"
            )
        shutil.copy2(path, kept)
    replace_file(out or path, new.encode())
    return changes


def resolve_migrated(kind: type[msgspec.Struct], table: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the resolved recipe of a run that an earlier version may have written, as today's version resolves it.

    Args:
        kind: of the recipe.
        table: as it was written.
        place: what to call it in errors.

    Raises:
        UserError: no recipe of today is the same.
    """
    try:
        return tomllib.loads(write(convert(migrate(table), kind, place)))
    except ValueError as error:
        raise UserError(str(error), file=place) from error


def recipe_text(source: str | Path) -> tuple[str, str]:
    """Return a recipe as it stands, and what to call it in errors."""
    if str(source) in shipped():
        return (_folder() / f"{source}.toml").read_text(encoding="utf8"), f"recipe {source}"
    try:
        return Path(source).read_text(encoding="utf8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"no shipped recipe and no readable file is called '{source}'", remedy=nearest(str(source), shipped())
        ) from error


def _folder() -> Path:
    return cast(Path, resources.files("unmask") / "recipes")
