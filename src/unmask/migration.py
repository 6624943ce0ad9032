"""Recipes written by earlier versions: what was renamed, and the same recipe in today's words.

Until 0.1 there was one kind of encoder, "transformer", whose family followed from its settings; and `lm_weight` stood
for `[objective.causal_lm]` of a fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.errors import UserError

OLD_KIND = "transformer"


def refuse_old(table: Mapping[str, Any], place: str) -> None:
    """Refuse a recipe of an earlier version.

    Args:
        table: as it is written.
        place: what to call it.

    Raises:
        UserError: it is one; says how to rewrite it.
    """
    encoder = table.get("encoder")
    if isinstance(encoder, Mapping) and encoder.get("kind", OLD_KIND) == OLD_KIND:
        kind = migrate(table)["encoder"]["kind"]
        raise UserError(
            f'encoder.kind = "transformer" is of an earlier version; today it is "{kind}"',
            file=place,
            remedy=f"rewrite it: unmask recipes migrate {place}",
        )


def refuse_old_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a fine-tuning (dotted keys) that have another name today.

    Raises:
        UserError: there is one; says the new name.
    """
    if "lm_weight" in settings:
        weight = settings["lm_weight"]
        today = f"objective.causal_lm.weight={weight}" if weight else "objective.causal_lm=false"
        raise UserError("lm_weight is of an earlier version", remedy=f"set {today}")


def migrate(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe in today's words; one that is in them already stays as it is."""
    new = dict(table)
    encoder = table.get("encoder")
    if isinstance(encoder, Mapping) and encoder.get("kind", OLD_KIND) == OLD_KIND:
        new["encoder"] = _encoder(encoder)
    if "lm_weight" in table:
        weight = new.pop("lm_weight")
        if weight:
            new["objective"] = {"causal_lm": {"weight": weight}}
    return new


def _encoder(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return [encoder] with the family that its settings stood for."""
    kind = _family(old)
    new = {"kind": kind, **{key: value for key, value in old.items() if key not in ("kind", "pooling", "causal")}}
    gone: dict[str, tuple[str, ...]] = {
        "gpt": ("segments", "feed_forward", "offset", "embedding", "shared"),
        "distilbert": ("segments", "epsilon", "offset", "embedding", "shared"),
        "albert": ("offset",),
        "electra": ("offset", "shared"),
        "roberta": ("embedding", "shared"),
        "bert": ("offset", "embedding", "shared"),
    }
    new = {key: value for key, value in new.items() if key not in gone[kind]}
    was: dict[str, dict[str, Any]] = {  # what held where a key was left away, and is another today
        "albert": {"shared": "none"},
        "roberta": {"segments": 2, "epsilon": 1e-12},
        "gpt": {"epsilon": 1e-12},
    }
    return {**new, **{key: value for key, value in was.get(kind, {}).items() if key not in new}}


def _family(old: Mapping[str, Any]) -> str:
    if old.get("causal") or old.get("pooling") == "none":
        return "gpt"
    if old.get("pooling") == "relu":
        return "distilbert"
    if old.get("pooling") == "gelu":
        return "electra"
    if old.get("shared", "none") != "none" or old.get("embedding") is not None:
        return "albert"
    return "roberta" if old.get("offset") else "bert"
