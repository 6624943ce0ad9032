"""Plug-ins: objectives, tasks, layouts, maskings and families that other packages provide as entry points.

A package with these lines in its pyproject.toml,

    [project.entry-points."unmask.objectives"]
    my_objective = "my_package.my_objective:MyObjectiveSettings"

makes `[objective.my_objective]` available in recipes wherever it is installed (docs/extending.md).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from pkgutil import resolve_name
from types import FunctionType
from typing import Any, TypeVar, cast, get_type_hints

from unmask.support.errors import UserError

_Kind = TypeVar("_Kind")
OURS = __name__.partition(".")[0]
ALIKE = 0.9
"""How alike names of members are, of 1, that are taken for the same, such as `sample` and `samples`."""


class Registry(Mapping[str, _Kind]):
    """A registry of one kind of component by name: the built-in ones, then those of installed packages.

    Plug-ins are imported on first access, so that their modules can import those of unmask, and so that names are known
    without importing them.

    Args:
        group: name of the group of entry points.
        built_in: built-in components by name, or "module:name" of components to import on first access.
        base: the class of which plug-ins are subclasses or instances, or "module:name" of it.

    Raises:
        UserError: the name of a plug-in is taken; on access, also if a plug-in cannot be imported, or if it is nothing
            of this kind, or if its `kind` differs from its name, or if it lacks a member that its base class declares
            as abstract, or has one that is almost named like one of its base class.
    """

    def __init__(self, group: str, built_in: Mapping[str, _Kind | str], base: type | str = object) -> None:
        self._components: dict[str, Any] = dict(built_in)
        self._base = base
        for point in installed(group):
            if point.name in self._components:
                raise UserError(
                    f"the package {_package(point)} adds '{point.name}' to {group}, but this name is taken",
                    remedy=f"rename it there, or remove the package: pip uninstall {_package(point)}",
                )
            self._components[point.name] = point

    @property
    def base(self) -> type:
        """The class of which plug-ins are subclasses or instances."""
        return cast(type, resolve_name(self._base) if isinstance(self._base, str) else self._base)

    def __getitem__(self, name: str) -> _Kind:
        component = self._components[name]
        if isinstance(component, EntryPoint):
            component = self._components[name] = _load(component, self.base)
        if isinstance(component, str):
            component = self._components[name] = resolve_name(component)
        return cast(_Kind, component)

    def __contains__(self, name: object) -> bool:
        return name in self._components

    def __iter__(self) -> Iterator[str]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)


@cache
def _points() -> Sequence[EntryPoint]:
    """Return the entry points of all our groups; looking through all packages takes many milliseconds."""
    found = entry_points()
    groups = [group for group in found.groups if group.startswith(f"{OURS}.")]
    return [point for group in groups for point in found.select(group=group)]


def installed(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group, ordered by name."""
    return sorted((point for point in _points() if point.group == group), key=lambda point: point.name)


def _load(point: EntryPoint, base: type) -> object:
    """Return the component of an entry point, a subclass or an instance of a class."""
    remedy = f"fix it, or remove it: pip uninstall {_package(point)}"
    try:
        component = point.load()
    except Exception as error:  # third-party code may raise anything
        raise UserError(
            f"'{point.name}' of the package {_package(point)} cannot be imported ({error})", remedy=remedy
        ) from error
    if not isinstance(component, base) and not (isinstance(component, type) and issubclass(component, base)):
        raise UserError(
            f"'{point.name}' of the package {_package(point)} is no {base.__name__}",
            remedy=f"name one in its entry point instead of {point.value}",
        )
    config = getattr(getattr(component, "settings", component), "__struct_config__", None)
    kind = getattr(config, "tag", None)
    if kind not in (None, point.name):
        raise UserError(
            f"'{point.name}' of the package {_package(point)} has a different kind, '{kind}'",
            remedy=f"give its settings tag={point.name!r}",
        )
    if missing := missing_members(component):
        raise UserError(
            f"'{point.name}' of the package {_package(point)} lacks {', '.join(missing)}",
            remedy="define what its base class declares",
        )
    if misspelt := misspelt_members(component):
        wrong, right = next(iter(misspelt.items()))
        raise UserError(
            f"'{point.name}' of the package {_package(point)} defines {wrong}, which nothing calls",
            remedy=f"name it {right}, as its base class does; or, if it is something else, begin its name with _",
        )
    return component


def missing_members(part: Any) -> list[str]:
    """Return the abstract members that a part lacks, and those that a class lacks which its `build` returns.

    Python itself finds them in subclasses of `ABC` alone, which structs and modules of torch are not.
    """
    return [
        f"{kind.__name__}.{name}"
        for kind in _classes(part)
        for name in dir(kind)
        if getattr(getattr(kind, name, None), "__isabstractmethod__", False)
    ]


def misspelt_members(part: Any) -> dict[str, str]:
    """Return the public methods and properties that are almost named like some of unmask's classes, with their names.

    These would never be called: they are misspelt, or had this name in an earlier version. A part that overrides the
    other member, too, knows both names.

    Args:
        part: the part; the class that its `build` returns is looked at, too.
    """
    misspelt = dict[str, str]()
    for kind in _classes(part):
        if (package := _top(kind)) == OURS:
            continue
        own = set(chain.from_iterable(_members(base) for base in kind.__mro__ if _top(base) == package))
        ours = set(chain.from_iterable(_members(base) for base in kind.__mro__ if _top(base) == OURS))
        for name in sorted(own - ours):
            if near := difflib.get_close_matches(name, ours - own, n=1, cutoff=ALIKE):
                misspelt[f"{kind.__name__}.{name}"] = near[0]
    return misspelt


def _classes(part: Any) -> list[type]:
    """Return a part, if it is a class, or the class of its settings, and the class of its package that `build` returns.

    A package that says of `build` that it returns one of unmask's classes, such as `Objective`, does not say which.
    """
    settings = getattr(part, "settings", part)
    classes = [part, *([settings] if settings is not part else [])]
    with suppress(Exception):  # annotations may name what is imported for type checkers only
        built = get_type_hints(settings.build)["return"]
        classes += [built] if _top(built) != OURS or _top(settings) == OURS else []
    return [kind for kind in classes if isinstance(kind, type)]


def _top(kind: type) -> str:
    """Return the package of a class."""
    return kind.__module__.partition(".")[0]


def _members(kind: type) -> set[str]:
    """Return the names of the public methods and properties that a class itself defines."""
    kinds = (FunctionType, property, classmethod, staticmethod)
    return {name for name, member in vars(kind).items() if isinstance(member, kinds) and not name.startswith("_")}


def packages() -> dict[str, str]:
    """Return the versions of the installed packages that provide plug-ins, by name."""
    return {point.dist.name: point.dist.version for point in _points() if point.dist is not None}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
