"""A recipe is data: one TOML file says what to train.

In: the name of a shipped recipe or a file, and settings from the command line. Out: frozen, typed settings; each
table is described beside the code that it configures. An unknown key is an error that proposes the nearest known one.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

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

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of settings",
}
"""What msgspec's types are called in messages."""

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
            weights = (settings.weight, getattr(settings, "generator_weight", 1.0))
            if not all(0 < weight < math.inf for weight in weights):
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
            if name in self.objectives and second != given:
                pairs = "" if second else "layout.kind=sentence_pairs --set "
                raise ValueError(
                    f'objective.{name} goes with layout.kind = "sentence_pairs" and layout.second = "{given}": '
                    f"pass --set objective.{name}=false, or --set {pairs}layout.second={given}"
                )
        for given, name in LABELS.items():
            if second == given and name not in self.objectives:
                raise ValueError(
                    f'layout.second = "{given}" is for objective.{name}: pass --set layout.second=next, or '
                    f"--set objective.{name}.weight=1"
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
        if len(path) == 1 and value is not False and last in (either := EITHER.get(path[0], ())):
            table[path[0]] = {k: v for k, v in table.get(path[0], {}).items() if k not in either}
        if key == "masking.kind" and value == "none":
            table[path[0]] = {}
        elif key in KEPT and value != table.get(path[0], {}).get("kind"):
            table[path[0]] = {k: v for k, v in table.get(path[0], {}).items() if k in KEPT[key]}
        inner = table
        for name in path:
            if inner.get(name) is False:
                inner[name] = {}
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {setting}: '{name}' is no table")
        inner[last] = value
    return table


def convert(table: dict[str, Any], kind: type[_Settings], place: str) -> _Settings:
    """Turn a table into typed settings. Where a key may be left away, false says that it is.

    Raises:
        UserError: an unknown key (the nearest known one is proposed), a value of the wrong type or out of range.
    """
    try:
        return msgspec.convert(_without_false(table, [kind]), kind)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), table, kind, place) from error


def write(settings: msgspec.Struct) -> str:
    """Return settings as TOML, every one resolved; what is not set is left away."""
    return msgspec.toml.encode(_without_none(msgspec.to_builtins(settings))).decode()


def write_lines(settings: msgspec.Struct) -> list[str]:
    """Return settings as KEY=VALUE, as `put` takes them, every one resolved; what is not set is false."""
    return list(_lines(msgspec.to_builtins(settings), ""))


def _lines(table: dict[str, Any], prefix: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        elif value is not None or key not in EITHER.get(prefix.removesuffix("."), ()):
            yield f"{prefix}{key}={_inline(False if value is None else value)}"


def _inline(value: Any) -> str:
    """Return a value as TOML has it on one line, without spaces, which a shell would part."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}={_inline(inner)}" for key, inner in value.items() if inner is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value


def _without_false(value: Any, types: Sequence[Any]) -> Any:
    """Leave away what is said to be false and may be left away, unless it is one of true and false."""
    if not isinstance(value, dict):
        return value
    fields = {name: one for struct in _structs(_of_its_kind(types, value)) for name, one in _fields(struct).items()}
    members = {name: _members(fields.get(name)) for name in value}
    optional = {name for name in value if type(None) in get_args(fields.get(name)) and bool not in members[name]}
    return {
        name: _without_false(inner, members[name])
        for name, inner in value.items()
        if not (inner is False and name in optional)
    }


def _mistake(text: str, table: dict[str, Any], kind: Any, place: str) -> UserError:
    """Say what msgspec says, in the words of recipes."""
    text, _, path = text.partition(" - at `")
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    if found := re.fullmatch(r"Object contains unknown field `(.+)`", text):
        at = f" - at `{path}`" if path else ""
        return UserError(f"unknown key `{found[1]}`{at}", file=place, remedy=_right_key(found[1], table, kind, path))
    if found := re.fullmatch(r"Object missing required field `(.+)`", text):
        missing = f"{path}.{found[1]}".removeprefix(".")
        if _structs(_types(kind, table, missing)) and kind is Recipe:
            remedy = "add it, as in what `unmask recipes show bert-mini` prints"
            return UserError(f"the table [{missing}] is missing", file=place, remedy=remedy)
        return UserError(f"the key `{missing}` is missing", file=place, remedy="add it")
    if found := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", text):
        types = _types(kind, table, path)
        choices = [*_choices(types), *("a whole number" for one in types if one is int)]
        if path.endswith(".kind"):  # of a table, where the kind itself is no field
            choices = choices or [_tag(one) for one in _structs(_types(kind, table, path.removesuffix(".kind")))]
        return UserError(f"{path} cannot be '{found[1]}'", file=place, remedy=f"known: {', '.join(choices)}")
    if path and (found := re.fullmatch(r"Expected `(.+?)`( of length \d+| [<>]=? \S+)?(, got .+)?", text)):
        value = _value(table, path)
        names = [name for name in found[1].split(" | ") if name != "null"]
        words = WORDS | {"str": " or ".join(_choices(_types(kind, table, path))) or WORDS["str"]}
        wanted = " or ".join(words.get(name, name) for name in names) + (found[2] or "")
        whole = "int" in names and isinstance(value, float) and value.is_integer()
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        remedy = f"write {value:.0f}" if whole else ""
        return UserError(f"{path} must be {wanted}, not {shown}", file=place, remedy=remedy)
    return UserError(f"{text} - at `{path}`" if path else text, file=place)


def _right_key(name: str, table: dict[str, Any], kind: Any, path: str) -> str:
    """Say which key was probably meant: one of this table, or the same one where it belongs."""
    here = _types(kind, table, path)
    kinds = [_tag(one) for one in _structs(_types(kind, table, path, narrow=False)) if name in _fields(one)]
    if kinds:
        return f"it goes with {path}.kind = {' or '.join(kinds)}"
    elsewhere = [key for key in dict.fromkeys(_dotted(kind)) if key.endswith(f".{name}") or key == name]
    if elsewhere:
        return "did you mean " + " or ".join(f"'{key}'" for key in elsewhere) + "?"
    return nearest(name, {key for one in _structs(here) for key in _fields(one)})


def _types(kind: Any, table: Any, path: str, *, narrow: bool = True) -> list[Any]:
    """Return the types that a value of a table may have; with `narrow`, of a table's kinds only its own."""
    found = _members(kind)
    names = re.findall(r"[^.\[\]]+", path)
    for name in names:
        found = _of_its_kind(found, table)
        inner = [one for struct in _structs(found) for one in _members(_fields(struct).get(name))]
        found = [one for listed in found for one in _members(get_args(listed)[0])] if name.isdecimal() else inner
        table = _value(table, name)
    return _of_its_kind(found, table) if narrow else found


def _of_its_kind(types: Sequence[Any], table: Any) -> list[Any]:
    given = table.get("kind") if isinstance(table, dict) else None
    return [one for one in _structs(types) if given is not None and _tag(one) == given] or list(types)


def _members(kind: Any) -> list[Any]:
    """Return the types of a union but for None, without what is noted on them."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for inner in get_args(kind) for member in _members(inner)]
    return [] if kind in (None, type(None)) else [kind]


def _structs(types: Sequence[Any]) -> list[Any]:
    return [one for one in types if isinstance(one, type) and issubclass(one, msgspec.Struct)]


def _choices(types: Sequence[Any]) -> list[str]:
    return [str(choice) for one in types if get_origin(one) is Literal for choice in get_args(one)]


def _fields(struct: Any) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _tag(struct: Any) -> str:
    return str(struct.__struct_config__.tag)


def _dotted(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield all keys of a settings type and of its tables."""
    for struct in _structs(_members(kind)):
        for name, inner in _fields(struct).items():
            yield prefix + name
            yield from _dotted(inner, f"{prefix}{name}.")


def _value(table: Any, path: str) -> Any:
    for name in re.findall(r"[^.\[\]]+", path):
        table = table[int(name)] if isinstance(table, list | tuple) else table.get(name) if table else None
    return table


def _folder() -> Path:
    return cast(Path, resources.files("unmask") / "recipes")
