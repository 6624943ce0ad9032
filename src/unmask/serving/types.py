"""Requests and responses of the server, as msgspec types: they decode, check and document; and its limits.

`/embed` is that of Text Embeddings Inference, `/v1/embeddings` is OpenAI's. A field that is unknown is refused rather
than ignored. `model` is the name of one of the models; without it, the first one that has the route. Those of tasks are
in tasks/routes.py.

The limits exist so that no request, and no number of them, can exhaust the memory or the time of the machine.

What is wrong with a request is said by its fields: the field, and what it has to hold; never what the client sent,
which must not reach the logs.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, inspect

from unmask.inference.fill import Mask
from unmask.support.messages import argument, in_request, rendered
from unmask.tasks.explained import Explanation
from unmask.tasks.routes import Request, Texts

Kind = Literal["Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy", "Unauthorized", "NotFound"]
"""`error_type` of an error; the first five are those of Text Embeddings Inference."""
Layers = Annotated[tuple[Annotated[int, Meta(ge=-1000, le=1000)], ...], Meta(min_length=1, max_length=100)]
EmbedResponse = list[list[float]]
FillResponse = list[list[Mask]]
ExplainResponse = list[Explanation]


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Attributes:
        body: maximum size of a request's body in bytes.
        bodies: maximum size of all bodies that are being read or processed, in bytes.
        requests: maximum number of requests that are read or processed at the same time.
        inputs: maximum number of texts in a request.
        characters: maximum length of a text in characters, which is checked before it is tokenized.
        request_tokens: maximum number of tokens of a request, after texts are truncated or split into windows.
        batch_tokens: maximum number of tokens that are computed together.
        queue_tokens: maximum number of tokens that wait or are computed, per model.
        values: maximum number of numbers in a response of `/features`.
        logits: maximum number of logits of a request: masks times tokens of the vocabulary, or what is classified times
            labels, of `/explain` once without each word.
        candidates: maximum number of candidates in a response of `/fill`: masks times `top`.
        words: maximum number of words whose contribution is computed by `/explain`: the text is read without each.
        wait: time in seconds that an idle model waits for more texts to compute together.
        header_seconds: time in which a request's line and headers must arrive.
        body_seconds: time in which a request's body must arrive.
        seconds: time in which a response must be computed.
        drain_seconds: time in which open requests are finished when the server stops.
    """

    body: int = 2_000_000
    bodies: int = 64_000_000
    requests: int = 2048
    inputs: int = 128
    characters: int = 100_000
    request_tokens: int = 65_536
    batch_tokens: int = 8192
    queue_tokens: int = 524_288
    values: int = 500_000
    logits: int = 33_000_000
    candidates: int = 50_000
    words: int = 128
    wait: float = 0.002
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    seconds: float = 60.0
    drain_seconds: float = 30.0


class Refusal(Exception):
    """A response other than the one that was asked for.

    Its message must not contain what the client sent, or anything of the machine: it goes back to clients and to logs.

    Args:
        status: HTTP status.
        kind: see `Kind`.
        message: what is wrong, and what to do, with references to the fields of the request (`support.messages`).
        retry: number of seconds after which to try again; None: do not.
    """

    def __init__(self, status: int, kind: Kind, message: str, *, retry: int | None = None) -> None:
        self.message = rendered(message, in_request)
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


class EmbedRequest(Request):
    """Texts whose vectors are wanted.

    Attributes:
        inputs: one text or several.
        normalize: whether the vectors have length 1.
        truncate: whether texts that are too long are truncated at their end; otherwise they are refused.
        dimensions: number of first dimensions to return; None: all.
    """

    inputs: Texts
    normalize: bool = True
    truncate: bool = False
    dimensions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class FillRequest(Request):
    """Texts with `[MASK]`.

    Attributes:
        inputs: one text or several.
        top: number of candidates for each mask.
    """

    inputs: Texts
    top: Annotated[int, Meta(ge=1, le=100)] = 5


class FeaturesRequest(Request):
    """Texts whose hidden states are wanted.

    Attributes:
        inputs: one text or several.
        layers: layer numbers; 0 is the embeddings, negative numbers count from the last layer.
        truncate: see `EmbedRequest`.
    """

    inputs: Texts
    layers: Layers = (-1,)
    truncate: bool = False


class ExplainRequest(Request):
    """A text, or a pair `[text, text]`, whose prediction is explained."""

    inputs: str | Annotated[list[str], Meta(min_length=2, max_length=2)]


class TextFeatures(msgspec.Struct):
    """The hidden states of a text.

    Attributes:
        word_ids: index of each token's word; -1 for special tokens.
        values: hidden states by layer, token and dimension.
    """

    word_ids: list[int]
    values: list[list[list[float]]]


class OpenAIRequest(Request):
    """A request of OpenAI's embeddings.

    Attributes:
        input: a text, several, or token ids of one or several texts, without special tokens.
        encoding_format: numbers, or their little-endian float32 bytes in base64.
        dimensions: see `EmbedRequest`.
        user: not used, and not stored.
    """

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    user: str | None = None


class OpenAIEmbedding(msgspec.Struct):
    """A vector; see `OpenAIRequest.encoding_format`."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Usage(msgspec.Struct):
    """Number of tokens that were read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class OpenAIResponse(msgspec.Struct):
    """The vectors of OpenAI's embeddings, in the order of the input."""

    data: list[OpenAIEmbedding]
    model: str
    usage: Usage
    object: Literal["list"] = "list"


class Info(msgspec.Struct, kw_only=True):
    """A model and its limits, as Text Embeddings Inference describes them.

    Attributes:
        model_id: its name.
        model_dtype: precision of the computation.
        model_type: `{"embedding": {"pooling"}}`, `{"classifier": {"id2label", "label2id"}}` or `{"reranker": {…}}`
            likewise, or `{"TASK": {}}` for other tasks.
        routes: routes that it has.
        max_input_length: maximum number of tokens of a text.
        max_batch_tokens: maximum number of tokens that are computed together.
        max_concurrent_requests: maximum number of requests at the same time.
        max_client_batch_size: maximum number of texts in a request.
        version: version of unmask.
    """

    model_id: str
    model_dtype: str
    model_type: dict[str, dict[str, Any]]
    routes: list[str]
    max_input_length: int
    max_batch_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int
    auto_truncate: bool = False
    version: str = ""


class Server(Info, kw_only=True):
    """The first model, with all others in `models`."""

    models: list[Info]


class Failure(msgspec.Struct):
    """An error: what is wrong, and of which kind."""

    error: str
    error_type: Kind


FeaturesResponse = list[TextFeatures]


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


def describe(kind: Any) -> str:
    """Return what a type of a field allows, such as "a string or a list of strings"."""
    return _described(inspect.type_info(kind))


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
