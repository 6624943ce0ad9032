"""Compatibility of the parts of a recipe: each declares what it gives and asks for, and one check compares the sets.

Names are those of labels ("masked", "next_sentence") and of capabilities of the body (nn/encoders/encoder.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.support.messages import setting, settings


@dataclass(frozen=True)
class RecipePart:
    """A table of a recipe.

    Attributes:
        name: name of the table, for example "objective.masked_lm".
        provides: names that other parts can ask for.
        requires: names that other parts must give.
        exclusive: names among these that no other part can use beside it.
        without: the settings with which the part gives nothing; none if it may give what no part asks for.
    """

    name: str
    provides: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    without: Mapping[str, Any] = field(default_factory=dict)


def check(parts: Sequence[RecipePart], offers: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Check that everything asked for is given and not taken by another part, and that nothing is given needlessly.

    Args:
        parts: the parts of a recipe.
        offers: the settings that give each name; under "ask NAME", those that ask for it.

    Raises:
        ValueError: the parts are incompatible; the message names what is missing and what to set.
    """
    provided = frozenset().union(*(part.provides for part in parts))
    asked = frozenset().union(*(part.requires for part in parts))
    for part in parts:
        for name in sorted(part.requires - provided):
            ways = [_options(offers[name])] if name in offers else []
            if part.name.startswith("objective."):
                ways.append(setting(part.name, False))
            raise ValueError(
                f"{part.name} needs {describe(name)}, which nothing in this recipe provides"
                + (f": pass {', or '.join(ways)}" if ways else "")
            )
        for other in parts:
            if other is not part and (taken := sorted(part.exclusive & other.requires)):
                raise ValueError(
                    f"{part.name} leaves no {describe(taken[0])} for {other.name}: pass {setting(other.name, False)}"
                )
        if part.without and (idle := sorted(part.provides - asked)):
            askers = _options(offers.get(f"ask {idle[0]}", ()))
            raise ValueError(
                f"{part.name} provides {describe(idle[0])}, which no objective uses: pass {settings(part.without)}"
                + (f", or {askers}" if askers else "")
            )


def describe(name: str) -> str:
    """Return how messages refer to a name: capabilities are phrases already, names of labels are not."""
    if name == "masked":
        return "masked tokens"
    return f"'{name}' labels" if name.isidentifier() else name


def _options(ways: Sequence[Mapping[str, Any]]) -> str:
    """Return alternative settings in words; those that differ in their last value alone are one, with its values."""
    values: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for way in ways:
        *before, (key, value) = way.items()
        values.setdefault(repr((before, key)), (way, []))[1].append(str(value))
    return " or ".join(
        settings(way) + (f" (or {', '.join(others)})" if others else "") for way, (_, *others) in values.values()
    )
