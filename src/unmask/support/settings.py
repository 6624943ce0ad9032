"""Settings: parse KEY=VALUE, override TOML tables, convert tables into typed settings and back into text.

Errors refer to keys and types as recipes do; for an unknown key they suggest the most similar known one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument, setting

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of settings",
}
"""Names of msgspec's types in messages."""

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


Overrides = Mapping[str, Any]
"""Settings that override others, by dotted keys: `{"budget.steps": 100, "masking.kind": "span"}`.

False unsets a key."""


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Parse settings "a.b=value" of a command line, with values in TOML syntax (strings may be unquoted).

    Raises:
        UserError: a setting is not of the form KEY=VALUE.
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(
                f"{argument('settings', text)}: not KEY=VALUE", remedy=f"for example {setting('budget.steps', 100)}"
            )
        try:
            typed = tomllib.loads(f"x = {value}")["x"]
        except (ValueError, RecursionError):  # no TOML, or numbers of thousands of digits, or too deep
            typed = value
        if overrides.get(key) != typed:  # the last value wins, in its position in the order
            overrides.pop(key, None)
        overrides[key] = typed
    return overrides


def parse_toml(text: str, source: str | Path) -> dict[str, Any]:
    """Parse TOML; numbers of thousands of digits and deep nesting are not valid either.

    Raises:
        UserError: it is not valid; the error names the source.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid TOML: {error}", file=source) from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: it cannot be read, or is not valid; the error names it.
    """
    try:
        text = Path(path).read_text(encoding="utf8")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=path, remedy="name a .toml file") from error
    except ValueError as error:  # not UTF-8, or no path
        raise UserError(f"not valid TOML: {error}", file=path) from error
    return parse_toml(text, path)


def check_overrides(settings: object) -> None:
    """Check that settings are a mapping, and not for example a list of "a.b=value".

    Raises:
        UserError: they are not a mapping; the message shows how to write them.
    """
    if isinstance(settings, Mapping):
        return
    entries = settings if isinstance(settings, list | tuple) else [settings]
    texts = [text for text in entries if isinstance(text, str) and "=" in text]
    raise UserError(
        f"settings must be a mapping from keys to values, not {type(settings).__name__}",
        remedy=f"write {parse_overrides(texts) or {'budget.steps': 100}}",
    )


def with_minutes(settings: Overrides, key: str, minutes: float | None) -> Overrides:
    """Return settings with a time to train, if one is given as an argument; `key` is its setting.

    Raises:
        UserError: they have one already.
    """
    check_overrides(settings)
    if minutes is None:
        return settings
    if key in settings:
        raise UserError(
            f"{argument('minutes', minutes)} and {setting(key, settings[key])} are the same setting",
            remedy="remove one of them",
        )
    return {key: minutes, **settings}


def put(table: dict[str, Any], settings: Overrides, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a table overridden by settings.

    The keys that a settings type lists in `either` are exclusive: setting one removes the others. Changing the `kind`
    of a table keeps only the keys that the new type lists in `kept`, or without such a list, those that it also has.
    An empty table leaves an existing one as it is.

    Args:
        table: the table, as parsed from TOML.
        settings: settings that override it.
        kind: type of the settings in the table.

    Raises:
        UserError: a key refers to a setting inside a value that is not a table.
    """
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for key, value in settings.items():
        *path, last = key.split(".")
        if len(path) == 1 and isinstance(inner := table.get(path[0]), dict):
            table[path[0]] = _without_replaced(inner, last, value, _structs(_types(kind, table, path[0], narrow=False)))
        inner = table
        for name in path:
            if inner.get(name) is False:
                inner[name] = {}
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UserError(f"{write_line(key, value)}: '{name}' is not a table")
        if value != {} or not isinstance(inner.get(last), dict):
            inner[last] = value
    return table


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a table, which may contain tables, as settings for `put`; the kind of each table comes first."""
    flat: dict[str, Any] = {}
    for key, value in sorted(table.items(), key=lambda item: item[0] != "kind"):
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {prefix + key: value}
    return flat


def _without_replaced(table: dict[str, Any], key: str, value: Any, types: Sequence[Any]) -> dict[str, Any]:
    """Return a table without the keys that setting a key replaces."""
    either = next((struct.either for struct in types if key in getattr(struct, "either", ())), ())
    if either and value is not False:
        return {name: inner for name, inner in table.items() if name not in either}
    new = [struct for struct in types if struct.__struct_config__.tag in (value, None)]
    if key != "kind" or value == table.get("kind") or not new:
        return table
    retained = getattr(new[0], "kept", None)
    return {name: inner for name, inner in table.items() if name in (_fields(new[0]) if retained is None else retained)}


def convert(table: dict[str, Any], kind: type[_Settings], source: str, whole: Any = None) -> _Settings:
    """Convert a table into typed settings; false unsets an optional key, and a whole number may be text.

    Args:
        table: the table, as parsed from TOML.
        kind: type of the settings.
        source: name of the table in errors.
        whole: type of the settings of which these are a part, whose keys are suggested, too; None: they are all.

    Raises:
        UserError: a key is unknown (the most similar known one is suggested), or a value is invalid.
    """
    try:
        return msgspec.convert(_as_meant(table, [kind]), kind)
    except msgspec.ValidationError as error:
        raise _user_error(str(error), table, whole or kind, source) from error


def write(settings: msgspec.Struct) -> str:
    """Return settings as TOML, including default values; settings that are None are omitted."""
    return msgspec.toml.encode(to_table(settings)).decode()


def to_table(settings: msgspec.Struct) -> dict[str, Any]:
    """Return settings as the table that `convert` reads, including default values; those that are None are omitted."""
    table: dict[str, Any] = _without_none(msgspec.to_builtins(settings))
    return table


def write_line(key: str, value: Any) -> str:
    """Return a setting as KEY=VALUE."""
    return f"{key}={value if isinstance(value, str) else _inline(False if value is None else value)}"


def write_lines(settings: msgspec.Struct) -> list[str]:
    """Return settings as KEY=VALUE, as `put` accepts them, including default values; None becomes false."""
    return list(_lines(settings, msgspec.to_builtins(settings), ""))


def _lines(settings: Any, table: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield the lines of a table; `settings` are the typed settings from which it was built."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines(getattr(settings, key, None), value, f"{prefix}{key}.")
        elif value is not None or key not in getattr(settings, "either", ()):
            yield f"{prefix}{key}={_inline(False if value is None else value)}"


def _inline(value: Any) -> str:
    """Return a value in TOML syntax on one line, without spaces, at which a shell would split it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}={_inline(inner)}" for key, inner in value.items() if inner is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value


def _as_meant(value: Any, types: Sequence[Any]) -> Any:
    """Return a value without optional keys that are set to false, unless they are booleans, and with text as text.

    A label may be a whole number: what is not quoted on a command line, `task.positive=1`, is one in TOML.
    """
    if not isinstance(value, dict):
        return value
    fields = {name: field for struct in _structs(_of_its_kind(types, value)) for name, field in _fields(struct).items()}
    members = {name: _members(fields.get(name)) for name in value}
    optional = {name for name in value if type(None) in get_args(fields.get(name)) and bool not in members[name]}
    return {
        name: str(inner) if type(inner) is int and members[name] == [str] else _as_meant(inner, members[name])
        for name, inner in value.items()
        if not (inner is False and name in optional)
    }


def _user_error(text: str, table: dict[str, Any], kind: Any, source: str) -> UserError:
    """Return msgspec's error message as a `UserError` in the terms of recipes."""
    text, path = re.fullmatch(r"(.*?)(?: - at `([^`]*)`)?", text, re.DOTALL).groups()  # type: ignore[union-attr]
    path = (path or "").removeprefix("$").removeprefix(".")
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        at = f" - at `{path}`" if path else ""
        return UserError(f"unknown key `{match[1]}`{at}", file=source, remedy=_right_key(match[1], table, kind, path))
    if match := re.fullmatch(r"Object missing required field `(.+)`", text):
        missing = f"{path}.{match[1]}".removeprefix(".")
        if _structs(_types(kind, table, missing)):
            remedy = "add it, as in the output of `unmask recipes show bert-mini`"
            return UserError(f"the table [{missing}] is missing", file=source, remedy=remedy)
        return UserError(f"the key `{missing}` is missing", file=source, remedy="add it")
    if match := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", text):
        types = _types(kind, table, path)
        choices = [*_choices(types), *("a whole number" for member in types if member is int)]
        if path.endswith(".kind"):  # msgspec does not list the tag among the fields
            choices = choices or [_tag(member) for member in _structs(_types(kind, table, path.removesuffix(".kind")))]
        return UserError(f"{path} cannot be '{match[1]}'", file=source, remedy=f"known: {', '.join(choices)}")
    if path and (match := re.fullmatch(r"Expected `(.+?)`( of length \d+| [<>]=? \S+)?(, got .+)?", text)):
        value = _value(table, path)
        names = [name for name in match[1].split(" | ") if name != "null"]
        words = WORDS | {"str": " or ".join(_choices(_types(kind, table, path))) or WORDS["str"]}
        wanted = " or ".join(words.get(name, name) for name in names) + (match[2] or "")
        whole = "int" in names and isinstance(value, float) and value.is_integer()
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        remedy = f"write {value:.0f}" if whole else ""
        return UserError(f"{path} must be {wanted}, not {shown}", file=source, remedy=remedy)
    return UserError(f"{text} - at `{path}`" if path else text, file=source)


def _right_key(name: str, table: dict[str, Any], kind: Any, path: str) -> str:
    """Return a suggestion for an unknown key: a similar key of this table, or the same key in another table."""
    types = _types(kind, table, path)
    kinds = [_tag(struct) for struct in _structs(_types(kind, table, path, narrow=False)) if name in _fields(struct)]
    if kinds:
        return f"it requires {path}.kind = {' or '.join(kinds)}"
    elsewhere = [key for key in dict.fromkeys(_dotted(kind)) if key.endswith(f".{name}") or key == name]
    if elsewhere:
        return "did you mean " + " or ".join(f"'{key}'" for key in elsewhere) + "?"
    return nearest(name, {key for struct in _structs(types) for key in _fields(struct)})


def _types(kind: Any, table: Any, path: str, *, narrow: bool = True) -> list[Any]:
    """Return the possible types of a value in a table; with `narrow`, only the type of its `kind`."""
    types = _members(kind)
    names = re.findall(r"[^.\[\]]+", path)
    for name in names:
        types = _of_its_kind(types, table)
        inner = [member for struct in _structs(types) for member in _members(_fields(struct).get(name))]
        types = [member for listed in types for member in _members(get_args(listed)[0])] if name.isdecimal() else inner
        table = _value(table, name)
    return _of_its_kind(types, table) if narrow else types


def _of_its_kind(types: Sequence[Any], table: Any) -> list[Any]:
    tag = table.get("kind") if isinstance(table, dict) else None
    return [struct for struct in _structs(types) if tag is not None and _tag(struct) == tag] or list(types)


def _members(kind: Any) -> list[Any]:
    """Return the types of a union except None, without their annotations."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for inner in get_args(kind) for member in _members(inner)]
    return [] if kind in (None, type(None)) else [kind]


def _structs(types: Sequence[Any]) -> list[Any]:
    return [kind for kind in types if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]


def _choices(types: Sequence[Any]) -> list[str]:
    return [str(choice) for kind in types if get_origin(kind) is Literal for choice in get_args(kind)]


@cache
def _fields(struct: Any) -> dict[str, Any]:
    """Return the types of the fields of a struct by name; msgspec compiles the annotations at each call."""
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _tag(struct: Any) -> str:
    return str(struct.__struct_config__.tag)


def _dotted(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield all dotted keys of a settings type, including its tables."""
    for struct in _structs(_members(kind)):
        for name, inner in _fields(struct).items():
            yield prefix + name
            yield from _dotted(inner, f"{prefix}{name}.")


def _value(table: Any, path: str) -> Any:
    for name in re.findall(r"[^.\[\]]+", path):
        table = table[int(name)] if isinstance(table, list | tuple) else table.get(name) if table else None
    return table
