"""What a server accepts, and how it refuses the rest.

Every limit exists so that no request, and no number of them, can exhaust the memory or the time of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy", "Unauthorized", "NotFound"]
"""`error_type` of an error; the first five are those of Text Embeddings Inference."""


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
        message: what is wrong, and what to do.
        retry: number of seconds after which to try again; None: do not.
    """

    def __init__(self, status: int, kind: Kind, message: str, *, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.retry = status, kind, message, retry


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
