"""Refusals of requests: what is wrong, and what to do; and their bodies, in the shape of the API of each route.

A message must not contain what the client sent, or anything of the machine: it goes back to clients and to logs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal

import msgspec

from unmask.support.messages import Argument, Reference, argument, in_request, rendered
from unmask.tasks.routes import Request

Kind = Literal["Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy", "Unauthorized", "NotFound"]
"""`error_type` of an error; the first five are those of Text Embeddings Inference."""


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
