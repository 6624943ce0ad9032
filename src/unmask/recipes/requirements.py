"""Compatibility of the parts of a recipe: each declares what it gives and asks for, and one check compares the sets.

Names are those of labels ("masked", "next_sentence") and of capabilities of the body (nn/encoders/encoder.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A table of a recipe.

    Attributes:
        name: name of the table, for example "objective.masked_lm".
        gives: names that other parts can ask for.
        asks: names that other parts must give.
        takes: names among these that no other part can use beside it.
        without: the setting (KEY=VALUE) with which the part gives nothing; "" if it may give what no part asks for.
    """

    name: str
    gives: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    without: str = ""


def check(parts: Sequence[Part], offers: Mapping[str, Sequence[str]]) -> None:
    """Check that everything asked for is given and not taken by another part, and that nothing is given needlessly.

    Args:
        parts: the parts of a recipe.
        offers: the settings (KEY=VALUE) that give each name; under "ask NAME", those that ask for it.

    Raises:
        ValueError: the parts are incompatible; the message names what is missing and what to set.
    """
    given = frozenset().union(*(part.gives for part in parts))
    asked = frozenset().union(*(part.asks for part in parts))
    for part in parts:
        for name in sorted(part.asks - given):
            ways = [_options(offers[name])] if name in offers else []
            if part.name.startswith("objective."):
                ways.append(f"--set {part.name}=false")
            raise ValueError(
                f"{part.name} needs {describe(name)}, which nothing in this recipe provides"
                + (f": pass {', or '.join(ways)}" if ways else "")
            )
        for other in parts:
            if other is not part and (taken := sorted(part.takes & other.asks)):
                raise ValueError(
                    f"{part.name} leaves no {describe(taken[0])} for {other.name}: pass --set {other.name}=false"
                )
        if part.without and (idle := sorted(part.gives - asked)):
            askers = _options(offers.get(f"ask {idle[0]}", ()))
            raise ValueError(
                f"{part.name} provides {describe(idle[0])}, which no objective uses: pass --set {part.without}"
                + (f", or {askers}" if askers else "")
            )


def describe(name: str) -> str:
    """Return how messages refer to a name: capabilities are phrases already, names of labels are not."""
    if name == "masked":
        return "masked tokens"
    return f"'{name}' labels" if name.isidentifier() else name


def _options(ways: Sequence[str]) -> str:
    """Return settings (KEY=VALUE) as command-line options, with further values of the same key in parentheses."""
    values: dict[str, list[str]] = {}
    for way in ways:
        key, _, value = way.rpartition("=")
        values.setdefault(key, []).append(value)
    return " or ".join(
        f"--set {key}={first}" + (f" (or {', '.join(others)})" if others else "")
        for key, (first, *others) in values.items()
    )
