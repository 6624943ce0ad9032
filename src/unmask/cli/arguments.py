"""The options of a command, made from the signature and the docstring of its function.

The source of a function is read, not imported, so that `--help` and completion do not wait for torch. Types decide how
an option is written: bool is a flag, Literal a choice, a sequence takes several words, and a mapping KEY=VALUE. Options
of several words or values may be repeated, and have those of all.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from unmask.support import choices
from unmask.support.choices import DownstreamKind
from unmask.support.errors import UserError
from unmask.support.messages import argument, flag

REQUIRED = object()
"""The default of a parameter that has none."""
PATHS = {"Path", "Files", "Data", "TaskTables", "Sequence[str | Path]"}
"""Types whose values can be files or directories."""
SEQUENCES = ("Sequence", "Files", "Data")
"""Types that take several words."""
LISTS = ("ColumnNames", "LabelNames")
"""Types that take a word whose parts are separated by commas."""
ALIASES = {**vars(choices), "DownstreamKind": DownstreamKind}
"""Literals by the names that signatures give them."""
METAVARS = {
    **dict.fromkeys(
        ("text", "data", "train", "dev", "labelled", "unlabelled", "heldout", "files", "exclude_overlap"), "FILE"
    ),
    **dict.fromkeys(("model", "models", "teacher", "init", "masked_lm", "against", "quality"), "MODEL"),
    **dict.fromkeys(("texts", "text_b", "question", "passage", "title", "history"), "TEXT"),
    **{"clean": "RULE", "settings": "KEY=VALUE", "columns": "text=…,label=…", "runs": "RUN", "folders": "FOLDER"},
}
"""What stands for values in help; others are their parameter in capitals, or N for numbers."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        name: its name.
        types: the parts of its type, such as "str", "None" and "Sequence[str]".
        default: its default, or `REQUIRED`.
        text: its documentation.
    """

    name: str
    types: tuple[str, ...]
    default: Any
    text: str

    @property
    def values(self) -> tuple[str, ...]:
        """The values to choose from; empty if they are not listed."""
        for part in self.types:
            if part.startswith("Literal["):
                return tuple(map(str, ast.literal_eval(f"({part[8:-1]},)")))
            if listed := get_args(ALIASES.get(part)):
                return tuple(value for value in listed if isinstance(value, str))
        return ()

    @property
    def is_path(self) -> bool:
        """Whether its values can be files or directories."""
        return bool(PATHS & {*self.types})

    @property
    def outer(self) -> set[str]:
        """The types without what they contain: "Sequence" for "Sequence[str]"."""
        return {part.partition("[")[0] for part in self.types}


def source(target: str) -> tuple[str, str]:
    """Return the source of the module of a function MODULE:NAME, which is not imported, and the function's name."""
    module, _, name = target.partition(":")
    package, *inner = module.split(".")
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent.joinpath(*inner) if inner else Path(spec.origin)  # no package inside is imported
    return path.with_suffix(".py").read_text(encoding="utf8"), name


def summary(target: str) -> str:
    """Return the first line of the docstring of a function MODULE:NAME, as a phrase; quicker than `parameters_of`."""
    text, name = source(target)
    line = re.search(rf'^def {name}\(.*?"""(.+?)\.?(?:"""|$)', text, re.DOTALL | re.MULTILINE)
    assert line is not None
    return line[1][0].lower() + line[1][1:]


@cache
def parameters_of(target: str) -> tuple[Parameter, ...]:
    """Return the parameters of a function MODULE:NAME."""
    text, name = source(target)
    nodes = ast.parse(text).body
    (node,) = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
    texts = dict(_documented(inspect.cleandoc(ast.get_docstring(node) or "")))
    first = [REQUIRED] * (len(node.args.args) - len(node.args.defaults))
    defaults = [*first, *map(ast.literal_eval, node.args.defaults)]
    defaults += [REQUIRED if default is None else ast.literal_eval(default) for default in node.args.kw_defaults]
    parameters = zip([*node.args.args, *node.args.kwonlyargs], defaults, strict=True)
    return tuple(
        Parameter(arg.arg, tuple(_parts(arg.annotation)), default, texts.get(arg.arg, ""))
        for arg, default in parameters
    )


def _documented(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters that a docstring lists under "Args:", with their texts."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.DOTALL | re.MULTILINE)
    for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE):
        yield name, " ".join(text.split())


def _parts(annotation: ast.expr | None) -> Iterator[str]:
    """Yield the parts of a union."""
    if isinstance(annotation, ast.BinOp):
        yield from _parts(annotation.left)
        yield from _parts(annotation.right)
    elif annotation is not None:
        yield ast.unparse(annotation)


def add_parameters(
    parser: argparse.ArgumentParser,
    parameters: Sequence[Parameter],
    words: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] | None = None,
    path_completion: Any = None,
) -> None:
    """Add the options of a function to a parser.

    Args:
        parser: the parser.
        parameters: those of the function.
        words: parameters whose values are given without a flag, in this order.
        values: values of parameters that are strings, if only some are possible.
        path_completion: what completes names of files in shells (`shtab.FILE`); None: no script is made of the parser.
    """
    for parameter in sorted(parameters, key=lambda each: words.index(each.name) if each.name in words else len(words)):
        listed, plain = (values or {}).get(parameter.name) or parameter.values, parameter.name in words
        options: dict[str, Any] = {"help": _help(parameter)}
        if "bool" in parameter.outer:
            optional = parameter.default is None
            options["action"] = argparse.BooleanOptionalAction if optional else "store_true"
            options["default"] = parameter.default
        else:
            number = next((kind for kind in (int, float) if kind.__name__ in parameter.outer), None)
            metavar = METAVARS.get(parameter.name) or ("N" if number else parameter.name.upper())
            options |= {"choices": listed} if listed else {"metavar": metavar}
            options |= {"type": number} if number else {}
            if parameter.name == "precision" and "int8" not in listed:
                options["type"] = _of_torch
            options["default"] = None if parameter.default is REQUIRED else parameter.default
            if parameter.outer & {*SEQUENCES}:
                options["nargs"] = "+" if parameter.default is REQUIRED or not plain else "*"
                options |= {} if plain else {"action": _Gather}
            elif plain and parameter.default is not REQUIRED:
                options["nargs"] = "?"
            elif parameter.outer & {*LISTS}:
                options["action"] = _Gather
            elif "Overrides" in parameter.outer:
                options |= {"action": "append", "default": []}
        if plain:
            action = parser.add_argument(parameter.name, **options)
        else:
            required = parameter.default is REQUIRED
            action = parser.add_argument(flag(parameter.name), dest=parameter.name, required=required, **options)
        if path_completion and parameter.is_path:
            action.complete = path_completion  # type: ignore[attr-defined]


class _Gather(argparse.Action):
    """Adds the words of an option that is repeated to those before, or its text after a comma."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not self.default:
            values = f"{before},{values}" if isinstance(values, str) else [*before, *values]
        setattr(namespace, self.dest, values)


def _of_torch(precision: str) -> str:
    """Return a precision; training has no int8.

    Raises:
        ArgumentTypeError: it is int8.
    """
    if precision == "int8":
        raise argparse.ArgumentTypeError("int8 is for finished models: unmask predict, embed, serve, evaluate, export")
    return precision


def _help(parameter: Parameter) -> str:
    """Return the help of an option, with its default."""
    shown = "" if parameter.default in (REQUIRED, None, False, ()) else f" (default: {parameter.default})"
    return (parameter.text.removesuffix(".") + shown).replace("%", "%%")


def parsed(parameters: Sequence[Parameter], options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a function from a parsed command line.

    Raises:
        UserError: a KEY=VALUE, a column or a number of a list is not written as one.
    """
    values = {parameter.name: getattr(options, parameter.name) for parameter in parameters}
    for parameter in parameters:
        for kind, convert in CONVERTERS.items():
            if kind in (*parameter.outer, *parameter.types):
                values[parameter.name] = convert(parameter.name, values[parameter.name])
    return values


def _numbers(kind: type[float], example: str, name: str, words: Sequence[str]) -> tuple[float, ...]:
    """Return numbers that are separated by commas or spaces."""
    try:
        return tuple(kind(part) for text in words for part in text.split(",") if part)
    except ValueError as error:
        raise UserError(
            f"{argument(name, list(words))}: not numbers", remedy=f"pass for example {flag(name)}={example}"
        ) from error


def _overrides(name: str, texts: Sequence[str]) -> dict[str, Any]:
    from unmask.support.settings import parse_overrides

    return parse_overrides(texts)


def _columns(name: str, text: str | None) -> dict[str, str]:
    from unmask.data.labelled.labelled_file import parse_columns

    return parse_columns(text or "")


CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "Overrides": _overrides,
    "ColumnNames": _columns,
    "Sequence[int]": partial(_numbers, int, "-4,-3,-2,-1"),
    "Sequence[float]": partial(_numbers, float, "0.8,0.2"),
}
"""What makes values of words, by type."""
