"""Migration of recipes written by earlier versions.

Before 0.1 there was one kind of encoder, "transformer", whose family followed from its settings; `lm_weight` stood for
`[objective.causal_lm]` in fine-tuning; `encoder.init_std` was called `deviation`; and `layout.stages` were stages that
differ in their length alone.

Input: a recipe, as a table or as text. Output: the same recipe for the current version; text keeps its comments and
order.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.errors import UserError

OLD_KIND = "transformer"
OLD_STD, STD = "deviation", "init_std"
NONE = "none"
OLD_SEGMENTS = 2
OLD_EPSILON = 1e-12
"""Defaults of the earlier version."""

_HEADER = re.compile(r"\s*\[")
_KEY = re.compile(r"""\s*(?P<quote>["']?)(?P<key>[\w-]+)(?P=quote)\s*=""")


def refuse_old(table: Mapping[str, Any], source: str) -> None:
    """Raise an error if a recipe was written by an earlier version.

    Args:
        table: the recipe.
        source: name of the recipe in errors.

    Raises:
        UserError: the recipe is of an earlier version; the message says how to rewrite it.
    """
    if not is_old(table):
        return
    if not _is_old_encoder(table):
        renamed = {
            ("lm_weight", "objective.causal_lm.weight"): "lm_weight" in table,
            (f"encoder.{OLD_STD}", f"encoder.{STD}"): _has_old_std(table),
            ("layout.stages", "stages"): _has_old_stages(table),
        }
        old, new = next(names for names, found in renamed.items() if found)
        raise UserError(
            f"{old} is of an earlier version, and is now called {new}",
            file=source,
            remedy=f"rewrite the recipe: unmask recipes migrate {source}",
        )
    try:
        kind = migrate(table)["encoder"]["kind"]
    except ValueError as error:
        raise UserError(f"[encoder] is of an earlier version, and {error}", file=source) from error
    old = f'encoder.kind = "{OLD_KIND}"' if "kind" in table["encoder"] else "[encoder] without a kind"
    raise UserError(
        f'{old} is of an earlier version, and is now "{kind}"',
        file=source,
        remedy=f"rewrite the recipe: unmask recipes migrate {source}",
    )


def refuse_old_settings(settings: Mapping[str, Any]) -> None:
    """Raise an error if a setting (a dotted key) has been renamed since an earlier version.

    Raises:
        UserError: there is such a setting; the message gives the new one.
    """
    kinds: dict[str, dict[Any, str]] = {
        "encoder.kind": {OLD_KIND: "bert"},
        "encoder.pooling": {"tanh": "bert", "gelu": "electra", "relu": "distilbert", NONE: "gpt"},
        "encoder.causal": {True: "gpt", False: "bert"},
    }
    for key, kind in kinds.items():
        if key in settings and (key != "encoder.kind" or settings[key] == OLD_KIND):
            new = kind.get(settings[key], "gpt, bert, electra or distilbert")
            raise UserError(
                f"--set {key}={_value(settings[key])} is of an earlier version, as recipes now name the family",
                remedy=f"set encoder.kind={new}",
            )
    if f"encoder.{OLD_STD}" in settings:
        new = f"encoder.{STD}={settings[f'encoder.{OLD_STD}']}"
        raise UserError(f"encoder.{OLD_STD} is of an earlier version", remedy=f"set {new}")
    if "layout.stages" in settings:
        try:
            length, stages = _migrate_stages(settings["layout.stages"])
            new = f"layout.length={length} and stages={_value(stages)}"
        except (KeyError, IndexError, TypeError):
            new = "layout.length=512 and stages=[{share=0.9,layout={length=128}},{share=0.1}]"
        raise UserError("layout.stages is of an earlier version", remedy=f"set {new}")
    if "lm_weight" in settings:
        weight = settings["lm_weight"]
        new = f"objective.causal_lm.weight={weight}" if weight else "objective.causal_lm=false"
        raise UserError("lm_weight is of an earlier version", remedy=f"set {new}")


def is_old(table: Mapping[str, Any]) -> bool:
    """Return whether a recipe was written by an earlier version."""
    return "lm_weight" in table or _is_old_encoder(table) or _has_old_std(table) or _has_old_stages(table)


def migrate(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe converted to the current version; a recipe of the current version is returned unchanged.

    Raises:
        ValueError: no current family has this combination of settings; the message names them.
    """
    new = dict(table)
    if _has_old_std(table):
        new["encoder"] = _rename_std(table["encoder"])
    if _is_old_encoder(table):
        new["encoder"] = _migrate_encoder(new["encoder"])
    if "lm_weight" in table:
        weight = new.pop("lm_weight")
        if weight:
            new["objective"] = {**table.get("objective", {}), "causal_lm": {"weight": weight}}
    if _has_old_stages(table):
        length, new["stages"] = _migrate_stages(table["layout"]["stages"])
        new["layout"] = {**{key: value for key, value in new["layout"].items() if key != "stages"}, "length": length}
    return new


def migrate_text(text: str) -> tuple[str, list[str]]:
    """Return the text of a recipe converted to the current version, and one line per change.

    Raises:
        ValueError: the text is not TOML or not written with one key per line, or no current family has this combination
            of settings.
    """
    table = tomllib.loads(text)
    new = migrate(table)
    if not is_old(table):
        return text, []
    text = text if text.endswith("\n") else f"{text}\n"
    lines, changes = text.splitlines(keepends=True), list[str]()
    if _has_old_std(table):
        start, stop = _find(lines, "encoder")
        renamed = [re.sub(OLD_STD, STD, line, count=1) if _is_key(line, {OLD_STD}) else line for line in lines]
        lines[start:stop] = renamed[start:stop]
        changes.append(f"renamed encoder.{OLD_STD} to encoder.{STD}")
    if _is_old_encoder(table):
        lines = _edit_encoder(lines, _rename_std(table["encoder"]), new["encoder"], changes)
    if "lm_weight" in table:
        start = next((at for at, line in enumerate(lines) if _HEADER.match(line)), len(lines))
        lines = [*_without(lines[:start], {"lm_weight"}), *lines[start:]]
        changes.append(f"removed lm_weight = {table['lm_weight']}")
        if table["lm_weight"]:
            weight = f"weight = {table['lm_weight']}"
            lines.append(f"\n[objective.causal_lm]\n{weight}\n")
            changes.append(f"added [objective.causal_lm] {weight}")
    if _has_old_stages(table):
        lines = _edit_stages(lines, new["layout"]["length"], new["stages"])
        changes.append("replaced layout.stages by layout.length and [[stages]]")
    text = "".join(lines)
    if tomllib.loads(text) != new:
        raise ValueError("its keys cannot be edited: write each table separately, with one key per line")
    return text, changes


def _is_old_encoder(table: Mapping[str, Any]) -> bool:
    encoder = table.get("encoder")
    return isinstance(encoder, Mapping) and encoder.get("kind", OLD_KIND) == OLD_KIND


def _has_old_std(table: Mapping[str, Any]) -> bool:
    encoder = table.get("encoder")
    return isinstance(encoder, Mapping) and OLD_STD in encoder


def _has_old_stages(table: Mapping[str, Any]) -> bool:
    layout = table.get("layout")
    return isinstance(layout, Mapping) and bool(layout.get("stages"))


def _migrate_stages(old: Sequence[Mapping[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    """Return the length of the last stage, and the stages, of which the others override it."""
    lengths = [stage["length"] for stage in old]
    stages = [{"share": stage["share"], "layout": {"length": stage["length"]}} for stage in old]
    return lengths[-1], [*stages[:-1], {"share": old[-1]["share"]}]


def _rename_std(encoder: Mapping[str, Any]) -> dict[str, Any]:
    return {STD if key == OLD_STD else key: value for key, value in encoder.items()}


def _migrate_encoder(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return [encoder] with the kind that follows from its settings, without settings that this family lacks.

    Raises:
        ValueError: no family has this combination of settings.
    """
    kind = _family(old)
    fixed: dict[str, Any] = {  # settings with a single value in the new families
        "offset": 0,
        "embedding": None,
        "shared": NONE,
    }
    if kind in ("gpt", "distilbert"):
        fixed["segments"] = 0
    if kind == "gpt":
        fixed["feed_forward"] = 4 * old.get("width", 0)
    if kind == "distilbert":
        fixed["epsilon"] = OLD_EPSILON
    for own in {"albert": ("embedding", "shared"), "electra": ("embedding",), "roberta": ("offset",)}.get(kind, ()):
        del fixed[own]
    for key, value in fixed.items():
        held = old.get(key, {"segments": OLD_SEGMENTS, "epsilon": OLD_EPSILON}.get(key, value))
        if held != value and (held, value) != (False, None):
            allowed = "does not exist" if value in (None, 0, NONE) else f"is always {_value(value)}"
            raise ValueError(
                f"no family has both {key} = {_value(held)} and {_origin(kind, old)}: the latter belongs to {kind}, "
                f"where {key} {allowed}"
            )
    removed = {"kind", "pooling", "causal", *fixed}
    new = {"kind": kind, **{key: value for key, value in old.items() if key not in removed}}
    defaults: dict[str, dict[str, Any]] = {  # defaults that have changed
        "albert": {"shared": NONE},
        "roberta": {"segments": OLD_SEGMENTS, "epsilon": OLD_EPSILON},
        "gpt": {"epsilon": OLD_EPSILON},
    }
    return {**new, **{key: value for key, value in defaults.get(kind, {}).items() if key not in new}}


def _family(old: Mapping[str, Any]) -> str:
    if old.get("causal") or old.get("pooling") == NONE:
        return "gpt"
    if old.get("pooling", "tanh") != "tanh":
        return {"relu": "distilbert", "gelu": "electra"}.get(old["pooling"], "bert")
    if old.get("offset"):
        return "roberta"
    return "albert" if old.get("shared", NONE) != NONE or old.get("embedding") else "bert"


def _origin(kind: str, old: Mapping[str, Any]) -> str:
    """Return the setting from which the family follows."""
    key = {"roberta": "offset", "gpt": "causal", "albert": "shared" if "shared" in old else "embedding"}.get(kind)
    key = key or "pooling"
    return f"{key} = {_value(old.get(key, {'causal': True}.get(key)))}"


def _edit_encoder(lines: list[str], old: Mapping[str, Any], new: Mapping[str, Any], changes: list[str]) -> list[str]:
    """Return the lines of a recipe with those of [encoder] edited, and append the changes to `changes`."""
    start, stop = _find(lines, "encoder")
    inside = _without(lines[start:stop], old.keys() - new.keys())
    kind = f'kind = "{new["kind"]}"'
    at = next((at for at, line in enumerate(inside) if _is_key(line, {"kind"})), None)
    if at is None:
        inside.insert(0, f"{kind}\n")
    else:
        inside[at] = re.sub(r"kind(\s*)=(\s*)([\"'])\w+\3", lambda found: kind, inside[at], count=1)
    changes.append(f"replaced encoder.kind = {_value(old.get('kind', OLD_KIND))} by {_value(new['kind'])}")
    changes += [f"removed encoder.{key} = {_value(old[key])}" for key in old if key not in new]
    for key in [key for key in new if key not in old and key != "kind"]:
        last = max(at for at, line in enumerate(inside) if _KEY.match(line))
        inside.insert(last + 1, f"{key} = {_value(new[key])}\n")
        changes.append(f"added encoder.{key} = {_value(new[key])}, the former default")
    return [*lines[:start], *inside, *lines[stop:]]


def _edit_stages(lines: list[str], length: int, stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a recipe with a length in place of the stages in [layout], which may take several lines."""
    start, stop = _find(lines, "layout")
    first = next((at for at in range(start, stop) if _is_key(lines[at], {"stages"})), stop)
    ends = (end for end in range(first + 1, stop + 1) if _is_toml("".join(lines[first:end])))
    added = [
        "".join(["\n[[stages]]\n", *(f"{key} = {_value(value)}\n" for key, value in one.items())]) for one in stages
    ]
    return [*lines[:first], f"length = {length}\n", *lines[next(ends, stop) :], *added]


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _find(lines: list[str], table: str) -> tuple[int, int]:
    """Return the range of the lines of a table, excluding its header."""
    header = re.compile(rf"\s*\[\s*{table}\s*\]")
    start = next((at + 1 for at, line in enumerate(lines) if header.match(line)), len(lines))
    return start, next((at for at in range(start, len(lines)) if _HEADER.match(lines[at])), len(lines))


def _without(lines: list[str], keys: set[str]) -> list[str]:
    return [line for line in lines if not _is_key(line, keys)]


def _is_key(line: str, keys: set[str]) -> bool:
    found = _KEY.match(line)
    return found is not None and found["key"] in keys


def _value(value: Any) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}={_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
