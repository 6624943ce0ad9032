"""Bodies: requests, decoded as msgspec types, and responses; what is wrong with a request is said by its field.

A message has the field, and what it has to hold; never a value that the client sent, which must not reach the logs. The
name of a field that is unknown is repeated if it looks like a name.

Refusals say what is wrong, and what to do; their bodies have the shape of the API of each route. A message must not
contain what the client sent, or anything of the machine: it goes back to clients and to logs.
"""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Raw, inspect
from starlette.responses import Response

from unmask.data.text.json_keys import check_keys
from unmask.support.messages import Argument, Reference, argument, in_request, rendered
from unmask.tasks.routes import Request

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What names of fields look like."""
Kind = Literal["Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy", "Unauthorized", "NotFound"]
"""`error_type` of an error; the first five are those of Text Embeddings Inference."""


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


class Refusal(Exception):
    """A response other than the one that was asked for.

    Its message must not contain what the client sent, or anything of the machine: it goes back to clients and to logs.

    Args:
        status: HTTP status.
        kind: see `Kind`.
        message: what is wrong, and what to do, with references to the fields of the request (`support.messages`).
        retry: number of seconds after which to try again; None: do not.

    Attributes:
        field: the field of the request with which the message begins; None if it does with none.
    """

    def __init__(self, status: int, kind: Kind, message: str, *, retry: int | None = None) -> None:
        names: list[str] = []

        def write(reference: Reference) -> str:
            names.append(reference.name if isinstance(reference, Argument) else "")
            return in_request(reference)

        self.message = rendered(message, write)
        self.field = names[0] if names and self.message.startswith(f"`{names[0]}`") else None
        super().__init__(self.message)
        self.status, self.kind, self.retry = status, kind, retry


def invalid(message: str) -> Refusal:
    """Return the refusal of a request that is well-formed JSON, but cannot be processed (422)."""
    return Refusal(422, "Validation", message)


def too_large(message: str) -> Refusal:
    """Return the refusal of a request that exceeds a limit (413)."""
    return Refusal(413, "Validation", message)


def overloaded(message: str, retry: int = 1) -> Refusal:
    """Return the refusal of a request for which there is no capacity now (429)."""
    return Refusal(429, "Overloaded", message, retry=retry)


def unhealthy(message: str) -> Refusal:
    """Return the refusal of a request that took too long, or came while the server stops (503)."""
    return Refusal(503, "Unhealthy", message, retry=1)


class Failure(msgspec.Struct):
    """An error, as of Text Embeddings Inference: what is wrong, and of which kind."""

    error: str
    error_type: Kind

    @classmethod
    def of(cls, refusal: Refusal) -> Failure:
        """Return a refusal in this shape."""
        return cls(refusal.message, refusal.kind)


class OpenAIError(msgspec.Struct):
    """What is wrong.

    Attributes:
        message: what is wrong, and what to do.
        type: "invalid_request_error", "rate_limit_error" or "server_error".
        param: the field of the request.
        code: the kind of the error in a word; null where there is none.
    """

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIFailure(msgspec.Struct):
    """An error as of OpenAI's API."""

    error: OpenAIError

    @classmethod
    def of(cls, refusal: Refusal) -> OpenAIFailure:
        """Return a refusal in this shape."""
        kind = {429: "rate_limit_error"}.get(
            refusal.status, "server_error" if refusal.kind in ("Backend", "Unhealthy") else "invalid_request_error"
        )
        code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(refusal.status)
        if refusal.status == 404 and refusal.field == "model":
            code = "model_not_found"
        return cls(OpenAIError(refusal.message, kind, refusal.field, code))


class CohereFailure(msgspec.Struct):
    """An error as of Cohere's API."""

    message: str

    @classmethod
    def of(cls, refusal: Refusal) -> CohereFailure:
        """Return a refusal in this shape."""
        return cls(refusal.message)


AnyFailure = type[Failure] | type[OpenAIFailure] | type[CohereFailure]


def failure_at(path: str) -> AnyFailure:
    """Return the shape of errors of a route: that of the API to which it belongs."""
    if path in ("/v1/rerank", "/v2/rerank"):
        return CohereFailure
    return OpenAIFailure if path.startswith("/v1/") else Failure


def field_of(request: Request, texts: Collection[str]) -> str:
    """Return a reference to the first field of a request that holds one of the texts; to all fields if none does."""
    names = request.__struct_fields__
    holding = [name for name in names if not set(texts).isdisjoint(_strings(getattr(request, name)))]
    return argument(holding[0]) if holding else " or ".join(map(argument, names))


def main_field(request: Request) -> str:
    """Return a reference to the largest field of a request, of those that it must have and of lists of texts.

    Texts and lists come before objects, such as parameters.
    """
    sizes = {}
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        if field.required or (isinstance(value, list | dict) and any(_strings(value))):
            sizes[field.name] = (not isinstance(value, msgspec.Struct), len(msgspec.json.encode(value)))
    return argument(max(sizes, key=lambda name: sizes[name], default=request.__struct_fields__[0]))


def too_long(request: Request, most: str, texts: Collection[str] = ()) -> str:
    """Return the message about a text with more tokens than the model reads.

    Args:
        request: the request.
        most: the number of tokens, with its noun.
        texts: those that are too long; empty: they are in the largest field.
    """
    truncation = f", or pass {argument('truncate', True)}" if hasattr(request, "truncate") else ""
    field = field_of(request, texts) if texts else main_field(request)
    return f"{field}: a text is too long; this model reads {most}; shorten it{truncation}"


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a field, also those in lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        yield from _strings(msgspec.structs.astuple(value))
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))
