"""What other packages add: objectives, tasks, layouts, maskings and families, by Python's entry points.

A package that has, in its pyproject.toml,

    [project.entry-points."unmask.objectives"]
    my_objective = "my_package.my_objective:MyObjectiveSettings"

adds `[objective.my_objective]` to the recipes of whoever has installed it (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from unmask.errors import UserError

_Kind = TypeVar("_Kind")


def with_names(group: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return a table of ours of "module:name" with what installed packages add to it; nothing is imported.

    Raises:
        UserError: a package uses a name that is taken.
    """
    found = dict(own)
    for point in _points(group):
        if point.name in found:
            raise UserError(f"the package {_package(point)} adds '{point.name}' to {group}, which is there already")
        found[point.name] = point.value
    return found


def with_plugins(group: str, own: Mapping[str, _Kind]) -> dict[str, _Kind]:
    """Return what stands in a table of ours, and what installed packages add to it.

    Args:
        group: of the entry points.
        own: by name.

    Raises:
        UserError: a package cannot be imported, or uses a name that is taken.
    """
    with_names(group, dict.fromkeys(own, ""))
    found = dict(own)
    for point in _points(group):
        try:
            found[point.name] = point.load()
        except Exception as error:  # whatever the code of somebody else raises
            raise UserError(
                f"'{point.name}' of the package {_package(point)} cannot be imported ({error})",
                remedy=f"repair it, or remove it: pip uninstall {_package(point)}",
            ) from error
    return found


def _points(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda point: point.name)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
