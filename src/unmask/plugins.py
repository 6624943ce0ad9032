"""What other packages add: objectives, tasks, layouts, maskings and families, by Python's entry points.

A package that has, in its pyproject.toml,

    [project.entry-points."unmask.objectives"]
    my_objective = "my_package.my_objective:MyObjectiveSettings"

adds `[objective.my_objective]` to the recipes of whoever has installed it (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

from unmask.errors import UserError

_Kind = TypeVar("_Kind")


class Table(Mapping[str, _Kind]):
    """What there is of one kind by name: ours, then what installed packages add.

    Their modules are imported when what they add is asked for, not before: so they can import ours, and names are
    known without them.

    Args:
        group: of the entry points.
        own: what we have by name, or "module:name" of what is to be imported when it is asked for.

    Raises:
        UserError: a package uses a name that is taken; when it is asked for, also that what a package adds cannot be
            imported, or has another `kind` than its name.
    """

    def __init__(self, group: str, own: Mapping[str, _Kind | str]) -> None:
        self._found: dict[str, Any] = dict(own)
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            if point.name in self._found:
                raise UserError(
                    f"the package {_package(point)} adds '{point.name}' to {group}, where this name is taken",
                    remedy=f"rename it there, or remove the package: pip uninstall {_package(point)}",
                )
            self._found[point.name] = point

    def __getitem__(self, name: str) -> _Kind:
        found = self._found[name]
        if isinstance(found, EntryPoint):
            found = self._found[name] = _load(found)
        if isinstance(found, str):
            found = self._found[name] = resolve_name(found)
        return cast(_Kind, found)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _load(point: EntryPoint) -> object:
    """Return what a package adds."""
    remedy = f"fix it, or remove it: pip uninstall {_package(point)}"
    try:
        found = point.load()
    except Exception as error:  # whatever the code of somebody else raises
        raise UserError(
            f"'{point.name}' of the package {_package(point)} cannot be imported ({error})", remedy=remedy
        ) from error
    config = getattr(getattr(found, "settings", found), "__struct_config__", None)
    kind = getattr(config, "tag", None)
    if kind not in (None, point.name):
        raise UserError(
            f"'{point.name}' of the package {_package(point)} has another kind, '{kind}'",
            remedy=f"give its settings tag={point.name!r}",
        )
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
