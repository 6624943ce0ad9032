"""Reading a request's body within its limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from unmask.serving.limits import Limits, Refusal, overloaded, too_large

__all__ = ["ClientDisconnect", "Gate"]


class Gate:
    """Admits requests while their number, and the size of all bodies in memory, are within the limits.

    Args:
        limits: `requests`, `bodies`, `body` and `body_seconds`.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = self._bytes = 0

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request.

        Raises:
            Refusal: there are too many (429).
        """
        if self._requests >= self._limits.requests:
            raise overloaded("too many requests; try again later")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Yield a reader of a body, which counts as long as the body is needed."""
        reader = Reader(self, self._limits)
        try:
            yield reader
        finally:
            self._bytes -= reader.size

    def reserve(self, size: int) -> None:
        """Count bytes.

        Raises:
            Refusal: all bodies together are too large (429).
        """
        if self._bytes + size > self._limits.bodies:
            raise overloaded("too many large requests; try again later")
        self._bytes += size


class Reader:
    """Reads one body; `size` is the number of bytes that it has counted."""

    def __init__(self, gate: Gate, limits: Limits) -> None:
        self._gate, self._limits, self.size = gate, limits, 0

    async def __call__(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            Refusal: it is not JSON (415), too large (413), too slow (408), or all bodies together are too large (429).
            ClientDisconnect: the client has gone.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "Validation", "send Content-Type: application/json")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limits.body:
            raise self._too_large()
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.stream():
                    if self.size + len(chunk) > self._limits.body:
                        raise self._too_large()
                    self._gate.reserve(len(chunk))
                    self.size += len(chunk)
                    chunks.append(chunk)
        except TimeoutError as error:
            raise Refusal(408, "Validation", "the body did not arrive in time") from error
        return b"".join(chunks)

    def _too_large(self) -> Refusal:
        return too_large(f"the body has more than {self._limits.body:,} bytes")
