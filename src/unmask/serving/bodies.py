"""Bodies: requests, decoded as msgspec types, and responses; what is wrong with a request is said by its field.

A message has the field, and what it has to hold; never a value that the client sent, which must not reach the logs. The
name of a field that is unknown is repeated if it looks like a name.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw, inspect
from starlette.responses import Response

from unmask.data.text.json_keys import check_keys
from unmask.serving.refusals import Refusal, invalid
from unmask.support.messages import argument
from unmask.tasks.routes import Request

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What names of fields look like."""


def decode(decoder: msgspec.json.Decoder[Any], content: bytes) -> Any:
    """Decode a request.

    Raises:
        Refusal: it is not JSON or has a key twice (400), or is not as described (422).
    """
    try:
        try:
            request = decoder.decode(content)
        except msgspec.ValidationError as error:
            raise invalid(explain(decoder.type, content)) from error
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal(400, "Validation", "the body is not valid JSON in UTF-8") from error
    try:
        check_keys(content, value)
    except ValueError as error:
        raise Refusal(400, "Validation", "a key occurs twice in an object of the body") from error
    return request


def json_response(value: Any) -> Response:
    """Return a value as a response."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def fields_of(value: bytes | Raw) -> dict[str, Raw]:
    """Return the fields of a JSON object; empty if it is none."""
    try:
        return msgspec.json.decode(value, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def explain(kind: type[Request], content: bytes) -> str:
    """Return why a body, which is valid JSON, is no request of a type.

    Raises:
        msgspec.DecodeError: the body is not valid JSON.
    """
    if not content.lstrip().startswith(b"{"):
        return "the body is not a JSON object"
    msgspec.json.decode(content, type=Raw)
    return _mistake(kind, Raw(content), "") or "the request is not as described; see /openapi.json"


def describe(kind: Any) -> str:
    """Return what a type of a field allows, such as "a string or a list of strings"."""
    return _described(inspect.type_info(kind))


def _mistake(kind: Any, value: Raw, path: str) -> str:
    """Return what is wrong with the field at a path, such as `inputs[1]`; "" if it is as described."""
    if path and _fits(value, kind):
        return ""
    struct = next((choice for choice in _choices(kind) if _is_struct(choice)), None)
    if struct is not None and _fits(value, dict[str, Raw]):
        return _mistake_of_object(struct, msgspec.json.decode(value, type=dict[str, Raw]), path)
    items = next(map(_type_of_items, filter(_is_list, _choices(kind))), None)
    if items is not None and _fits(value, list[Raw]):
        for index, item in enumerate(msgspec.json.decode(value, type=list[Raw])):
            if mistake := _mistake(items, item, f"{path}[{index}]"):
                return mistake
    return f"{argument(path)}: expected {describe(kind)}"


def _mistake_of_object(struct: type[msgspec.Struct], values: dict[str, Raw], path: str) -> str:
    """See `_mistake`."""
    prefix = f"{path}." if path else ""
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if struct.__struct_config__.forbid_unknown_fields and (unknown := values.keys() - fields.keys()):
        named = next((argument(prefix + name) for name in sorted(unknown) if NAME.fullmatch(name)), "")
        owner = argument(path) if path else "this route"
        start = f"{named}: unknown field" if named else "the request has an unknown field"
        return f"{start}; the fields of {owner} are {', '.join(map(argument, fields))}"
    for name, field in fields.items():
        if name not in values and field.required:
            return f"{argument(prefix + name)} is missing"
    mistakes = (_mistake(fields[name].type, value, prefix + name) for name, value in values.items() if name in fields)
    return next(filter(None, mistakes), "")


def _fits(value: Raw, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def _choices(kind: Any) -> Iterator[Any]:
    """Yield the types of a union, without annotations."""
    origin, parameters = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from _choices(parameters[0])
    elif origin in (Union, types.UnionType):
        for choice in parameters:
            yield from _choices(choice)
    else:
        yield kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_list(kind: Any) -> bool:
    """Return whether a type is that of lists, and has one of its items."""
    return get_origin(kind) in (list, tuple) and bool(get_args(kind))


def _type_of_items(kind: Any) -> Any:
    return get_args(kind)[0]


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
