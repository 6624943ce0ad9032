"""A recipe is data: one TOML file says what to train.

In: the name of a shipped recipe or a file, and settings from the command line. Out: frozen, typed settings; each
table is described beside the code that it configures. An unknown key is an error that proposes the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec

from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.full_sentences import FullSentencesSettings
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.no_masking import NoMaskingSettings
from unmask.batches.sentence_pairs import LABELS, SentencePairsSettings
from unmask.batches.single import SingleSettings
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.batches.token_masking import TokenMaskingSettings
from unmask.encoders.downstream import DownstreamSettings
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError, nearest
from unmask.objectives import OBJECTIVES
from unmask.tasks import AnyTask
from unmask.tokenizers.train import CASED, Trained
from unmask.training.settings import TrainingSettings

KEPT = {
    "layout.kind": ("length", "stages"),
    "masking.kind": ("rate", "final_rate", "replace"),
    "schedule.kind": ("warmup",),
}
"""What stays of a table when --set changes its kind."""
EITHER = {
    "batch": ("tokens", "sequences"),
    "layout": ("length", "stages"),
    "budget": ("steps", "tokens", "minutes", "epochs"),
}
"""Keys of a table of which setting one replaces the other."""

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


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
    encoder: TransformerSettings
    layout: SentencePairsSettings | DocumentSentencesSettings | FullSentencesSettings | SingleSettings
    masking: (
        TokenMaskingSettings | WholeWordMaskingSettings | NgramMaskingSettings | SpanMaskingSettings | NoMaskingSettings
    ) = TokenMaskingSettings()
    objective: Objectives  # type: ignore[valid-type]

    def __post_init__(self) -> None:
        lengths = [stage.length for stage in self.layout.all_stages]
        if max(lengths) > self.encoder.positions:
            raise ValueError(f"layout: the length {max(lengths)} exceeds encoder.positions {self.encoder.positions}")
        if min(lengths) < 8:
            raise ValueError("layout: the length must be at least 8")
        if not self.objectives:
            raise ValueError("at least one [objective.NAME] is needed")
        for name, settings in self.objectives.items():
            if min(settings.weight, getattr(settings, "generator_weight", 1.0)) <= 0:
                raise ValueError(f"objective.{name}: a weight must be above 0; to leave it away say {name} = false")
        if self.budget.epochs is not None or self.budget.patience is not None:
            raise ValueError("a pretraining budget is given in steps, tokens or minutes, and knows no patience")
        hides = not isinstance(self.masking, NoMaskingSettings)
        if self.encoder.causal and (hides or self.objectives.keys() != {"causal_lm"}):
            raise ValueError(
                "encoder.causal reads from left to right, which goes with objective.causal_lm alone and "
                'masking.kind = "none"'
            )
        if not self.encoder.causal and (not hides or "causal_lm" in self.objectives):
            raise ValueError(
                'objective.causal_lm and masking.kind = "none" go with encoder.causal = true: what sees both sides '
                "would read its answers"
            )
        others = sorted({"masked_lm", "span_boundary"} & self.objectives.keys())
        if "replaced_token" in self.objectives and others:
            raise ValueError(
                f"objective.replaced_token fills the hidden places, where objective.{others[0]} would read its "
                f"answers, and its generator learns masked_lm by itself: pass --set objective.{others[0]}=false"
            )
        second = self.layout.second if isinstance(self.layout, SentencePairsSettings) else None
        for given, name in LABELS.items():
            if (name in self.objectives) != (second == given):
                raise ValueError(
                    f'objective.{name} goes with layout.kind = "sentence_pairs" and layout.second = "{given}"; '
                    f"without it pass --set layout.kind=document_sentences --set objective.{name}=false"
                )

    @property
    def objectives(self) -> dict[str, Any]:
        """The settings of the objectives that the recipe has, by name."""
        given = {name: getattr(self.objective, name) for name in OBJECTIVES}
        return {name: settings for name, settings in given.items() if settings is not None}


class FinetuningRecipe(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is fine-tuned; `finetuning.defaults` fills it by rule.

    Attributes:
        task: its table: what is learnt, and how examples become samples.
        dropout: in the encoder and before the last layer; None keeps the encoder's own.
        lm_weight: of the language model that GPT learns beside a task (Radford et al. 2018, equation 5); None, 0: none.
        reset: draw the pooler and so many of the uppermost layers anew (Zhang et al. 2021, section 5); None: nothing.
        frozen: the encoder stays as it is, and its features are computed once.
        downstream: the small model over the encoder's layers; None: the task's head sits on the encoder itself.
    """

    task: AnyTask
    lm_weight: Annotated[float, msgspec.Meta(ge=0)] | None = None
    reset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    frozen: bool = False
    downstream: DownstreamSettings | None = None


def shipped() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(source: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """Read a shipped recipe or a file, with settings KEY=VALUE put over it.

    Raises:
        UserError: no such recipe, not TOML, an unknown key, a value out of place.
    """
    text, place = recipe_text(source)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", file=place) from error
    return convert(put(table, settings), Recipe, place)


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


def put(table: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Put settings "a.b=value" into a table, values in TOML's syntax (quotes around text may be left away).

    Setting one unit of [budget] or of [batch] replaces the other, as do `layout.length` and `layout.stages`. Setting
    another `layout.kind` or `schedule.kind` drops the old one's other keys, but for lengths and warm-up; so
    does another `masking.kind`, but for rate and replacement.

    Raises:
        UserError: not KEY=VALUE.
    """
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: not KEY=VALUE", remedy="for example --set budget.steps=100")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        *path, last = key.split(".")
        if len(path) == 1 and last in (either := EITHER.get(path[0], ())):
            table[path[0]] = {k: v for k, v in table.get(path[0], {}).items() if k not in either}
        if key == "masking.kind" and value == "none":
            table[path[0]] = {}
        elif key in KEPT and value != table.get(path[0], {}).get("kind"):
            table[path[0]] = {k: v for k, v in table.get(path[0], {}).items() if k in KEPT[key]}
        if path == ["objective"] and value is False:
            table.get("objective", {}).pop(last, None)
            continue
        inner = table
        for name in path:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {setting}: '{name}' is no table")
        inner[last] = value
    return table


def convert(table: dict[str, Any], kind: type[_Settings], place: str) -> _Settings:
    """Turn a table into typed settings.

    Raises:
        UserError: an unknown key (the nearest known one is proposed), a value of the wrong type or out of range.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        text = str(error).replace("$.", "").replace(" - at `$`", "")
        unknown = re.search(r"unknown field `(.+?)`", text)
        known = _keys(kind)
        remedy = nearest(unknown[1], known) if unknown else ""
        if unknown and unknown[1] in known:
            remedy = f"`{unknown[1]}` belongs to another table, or to another kind of this one"
        raise UserError(
            text.replace("Object contains unknown field", "unknown key"), file=place, remedy=remedy
        ) from error


def write(settings: msgspec.Struct) -> str:
    """Return settings as TOML, every one resolved; what is not set is left away."""
    return msgspec.toml.encode(_without_none(msgspec.to_builtins(settings))).decode()


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value


def _keys(kind: Any) -> set[str]:
    """All keys of a settings type and of its tables."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return {field.name for field in fields}.union(*(_keys(field.type) for field in fields))
    return set().union(*(_keys(inner) for inner in getattr(kind, "__args__", ())))


def _folder() -> Path:
    return cast(Path, resources.files("unmask") / "recipes")
