"""Whether the parts of a recipe go together: each says what it asks for and what it gives; one check of sets decides.

Names are those of labels ("masked", "next_sentence") and of a body's capabilities (encoders/encoder.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A table of a recipe.

    Attributes:
        name: of the table, "objective.masked_lm" for example.
        gives: what others can ask for.
        asks: what others must give.
        takes: what of it is left for nobody else.
        without: the setting (KEY=VALUE) without which it would not give what nobody asks for; "": it may.
    """

    name: str
    gives: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    without: str = ""


def check(parts: Sequence[Part], offers: Mapping[str, Sequence[str]]) -> None:
    """Refuse parts of which one asks for what none gives, or for what another takes, or gives what none asks for.

    Args:
        parts: of a recipe.
        offers: to each name the settings (KEY=VALUE) that give it.

    Raises:
        ValueError: says what is missing and what to set.
    """
    given = frozenset().union(*(part.gives for part in parts))
    asked = frozenset().union(*(part.asks for part in parts))
    for part in parts:
        for name in sorted(part.asks - given):
            ways = [_say(offers[name])] if name in offers else []
            if part.name.startswith("objective."):
                ways.append(f"--set {part.name}=false")
            raise ValueError(
                f"{part.name} needs {name}, which nothing in this recipe gives"
                + (f": pass {', or '.join(ways)}" if ways else "")
            )
        for other in parts:
            if other is not part and (taken := sorted(part.takes & other.asks)):
                raise ValueError(
                    f"{part.name} leaves nothing of what is {taken[0]} for {other.name}: pass --set {other.name}=false"
                )
        if part.without and (idle := sorted(part.gives - asked)):
            askers = _say(offers.get(f"ask {idle[0]}", ()))
            raise ValueError(
                f"{part.name} gives {idle[0]}, which no objective asks for: pass --set {part.without}"
                + (f", or {askers}" if askers else "")
            )


def _say(ways: Sequence[str]) -> str:
    """Return settings (KEY=VALUE) as options of the command line; other values of the same key are in parentheses."""
    values: dict[str, list[str]] = {}
    for way in ways:
        key, _, value = way.rpartition("=")
        values.setdefault(key, []).append(value)
    return " or ".join(
        f"--set {key}={first}" + (f" (or {', '.join(others)})" if others else "")
        for key, (first, *others) in values.items()
    )
