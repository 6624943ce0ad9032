"""What is wrong with a request, by its fields.

Input: the type of a request, and its body that msgspec has refused; or a request with a text that is refused. Output:
the field, and what it has to hold; never what the client sent, which must not reach the logs.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw, inspect

from unmask.support.messages import argument
from unmask.tasks.routes import Request


def explain(kind: type[Request], content: bytes) -> str:
    """Return why a body, which is valid JSON, is no request of a type.

    Raises:
        msgspec.DecodeError: the body is not valid JSON.
    """
    if not content.lstrip().startswith(b"{"):
        return "the body is not a JSON object"
    values = msgspec.json.decode(content, type=dict[str, Raw])
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if not values.keys() <= fields.keys():
        return f"the request has an unknown field; the fields of this route are {', '.join(map(argument, fields))}"
    for name, field in fields.items():
        if name not in values and field.required:
            return f"{argument(name)} is missing"
    for name, value in values.items():
        if not _fits(value, fields[name].type):
            path, expected = _locate(value, fields[name].type, name)
            return f"{argument(path)}: expected {describe(expected)}"
    return "the request is not as described; see /openapi.json"


def field_of(request: Request, texts: Collection[str]) -> str:
    """Return a reference to the first field of a request that holds one of the texts; to all fields if none does."""
    names = request.__struct_fields__
    holding = [name for name in names if not set(texts).isdisjoint(_strings(getattr(request, name)))]
    return argument(holding[0]) if holding else " or ".join(map(argument, names))


def main_field(request: Request) -> str:
    """Return a reference to the largest field of a request, of those that it must have and of lists of texts."""
    sizes = {}
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        if field.required or (isinstance(value, list | dict) and any(_strings(value))):
            sizes[field.name] = len(msgspec.json.encode(value))
    return argument(max(sizes, key=lambda name: sizes[name], default=request.__struct_fields__[0]))


def too_long(request: Request, most: str) -> str:
    """Return the message about a text with more tokens than the model reads; `most` is their number, with its noun."""
    truncation = f", or pass {argument('truncate', True)}" if hasattr(request, "truncate") else ""
    return f"{main_field(request)}: a text is too long; this model reads {most}; shorten it{truncation}"


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a field, also those in lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))


def _fits(value: Raw, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def _locate(value: Raw, kind: Any, path: str) -> tuple[str, Any]:
    """Return where a value differs from its type, such as `inputs[1]`, and the type that is expected there."""
    items = _type_of_items(kind)
    if items is not None and _fits(value, list[Raw]):
        for index, item in enumerate(msgspec.json.decode(value, type=list[Raw])):
            if not _fits(item, items):
                return _locate(item, items, f"{path}[{index}]")
    return path, kind


def _type_of_items(kind: Any) -> Any:
    """Return the type of the items of the lists that a type allows; None if it allows none."""
    origin, parameters = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_of_items(parameters[0])
    if origin in (Union, types.UnionType):
        return next((items for choice in parameters if (items := _type_of_items(choice)) is not None), None)
    return parameters[0] if origin in (list, tuple) else None


def describe(kind: Any) -> str:
    """Return what a type of a field allows, such as "a string or a list of strings"."""
    return _described(inspect.type_info(kind))


def _described(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _described(inner)
        case inspect.UnionType(types=choices):
            return " or ".join(map(_described, choices))
        case inspect.LiteralType(values=values):
            return " or ".join(msgspec.json.encode(value).decode() for value in values)
        case inspect.StrType(max_length=most):
            return "a string" + (f" of at most {most} characters" if most is not None else "")
        case inspect.IntType(ge=least, le=most):
            return "a whole number" + (f" from {least} to {most:,}" if None not in (least, most) else "")
        case inspect.FloatType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.DictType(value_type=inner):
            return f"an object in which each value is {_described(inner)}"
        case inspect.StructType(fields=fields):
            return f"an object of {', '.join(field.encode_name for field in fields)}"
        case inspect.TupleType(item_types=parts):
            return f"a list of {len(parts)}: {', '.join(map(_described, parts))}"
        case inspect.CollectionType(item_type=inner, min_length=least, max_length=most):
            bounds = [f" of at least {least}"] if least else []
            bounds += [f" of at most {most}"] if most is not None else []
            return f"a list{' and'.join(bounds)} in which each item is {_described(inner)}"
    return "another value; see /openapi.json"
