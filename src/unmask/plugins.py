"""What other packages add: objectives, tasks, layouts, maskings and families, by Python's entry points.

A package that has, in its pyproject.toml,

    [project.entry-points."unmask.objectives"]
    my_objective = "my_package.my_objective:MyObjectiveSettings"

adds `[objective.my_objective]` to the recipes of whoever has installed it (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from unmask.errors import UserError

_Kind = TypeVar("_Kind")


def with_plugins(group: str, own: Mapping[str, _Kind]) -> dict[str, _Kind]:
    """Return what stands in a table of ours, and what installed packages add to it.

    Args:
        group: of the entry points.
        own: by name.

    Raises:
        UserError: a package cannot be imported, or uses a name that is taken.
    """
    found = dict(own)
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = point.dist.name if point.dist is not None else point.module
        if point.name in found:
            raise UserError(f"the package {package} adds '{point.name}' to {group}, which is there already")
        try:
            found[point.name] = point.load()
        except Exception as error:  # whatever the code of somebody else raises
            raise UserError(
                f"'{point.name}' of the package {package} cannot be imported ({error})",
                remedy=f"repair it, or remove it: pip uninstall {package}",
            ) from error
    return found
