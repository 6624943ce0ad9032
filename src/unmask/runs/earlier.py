"""Support for resuming runs that were started by an earlier version of this program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Earlier:
    """Conversions for comparing runs of earlier versions with the current recipe and inputs.

    Attributes:
        recipe: converts the recipe of a run to the current format, given its contents and its name for errors.
        inputs: by name of an input, a function that returns its fingerprint as an earlier version defined it.
    """

    recipe: Callable[[Mapping[str, Any], str], Mapping[str, Any]]
    inputs: Mapping[str, Callable[[], str]] = field(default_factory=dict)
