"""Reading a request's body, within limits of size and time, and of all bodies and requests together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from unmask.serving.refusals import Refusal, overloaded, too_large
from unmask.serving.types import Limits

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

    async def __call__(self, scope: Scope, receive: Receive, *, arrived: bool = False) -> bytes:
        """Return the body of a request.

        Args:
            scope: the request.
            receive: returns its next part.
            arrived: whether all of it has arrived, so that no time needs to be limited.

        Raises:
            Refusal: it is not JSON, or compressed (415), too large (413), too slow (408), or all bodies together are
                too large (429).
            ClientDisconnect: the client has gone.
        """
        names = b"content-type", b"content-encoding", b"content-length"
        kind, encoding, declared = (_header(scope, name) for name in names)
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "Validation", "send Content-Type: application/json")
        if encoding.strip().lower() not in (b"", b"identity"):
            raise Refusal(415, "Validation", "send the body uncompressed, without Content-Encoding")
        if declared.isdigit() and int(declared[:20]) > self._limits.body:
            raise self._too_large()
        if arrived:
            return await self._read(receive)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._read(receive)
        except TimeoutError as error:
            raise Refusal(408, "Validation", "the body did not arrive in time") from error

    async def _read(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            if self.size + len(chunk) > self._limits.body:
                raise self._too_large()
            self._gate.reserve(len(chunk))
            self.size += len(chunk)
            chunks.append(chunk)
        return b"".join(chunks)

    def _too_large(self) -> Refusal:
        return too_large(f"the body has more than {self._limits.body:,} bytes")


def _header(scope: Scope, name: bytes) -> bytes:
    """Return the value of the first header of a name; empty if there is none."""
    return next((value for header, value in scope["headers"] if header == name), b"")
