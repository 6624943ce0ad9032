"""Runs that an earlier version of this program started, so that they can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Earlier:
    """How runs that an earlier version started are compared with what is asked for today.

    Attributes:
        recipe: turns the recipe of a run into today's; gets it as it was written, and what to call it in errors.
        inputs: by name of an input, what gives its fingerprint as it was defined before.
    """

    recipe: Callable[[Mapping[str, Any], str], Mapping[str, Any]]
    inputs: Mapping[str, Callable[[], str]] = field(default_factory=dict)
