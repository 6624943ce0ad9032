"""HTTP connections: uvicorn's, with limits of time and size for the line and the headers of requests."""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST = 32_768
"""Maximum size of a request's line and headers in bytes."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed if headers are too large or too slow, or if the client does not read the response.

    uvicorn limits none of these. `seconds` is set on a subclass; see `bounded`.
    """

    seconds = 10.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: TimerHandle | None = None
        self._in_headers = True
        self._received = 0
        self._size = 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(cast(Any, transport))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read data; refuse headers that do not end."""
        if self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        if self._in_headers and self._received > LARGEST and not self.transport.is_closing():
            self.send_400_response("the headers are too large")

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        super().on_message_begin()
        self._size = 0
        self._in_headers = True
        self._expect()

    def on_url(self, url: bytes) -> None:
        """Read a part of the path."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header."""
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._stop_waiting()
        self._in_headers, self._received = False, 0
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to read the response."""
        super().on_response_complete()
        if self.cycle.more_body:  # of a request that was answered early; uvicorn discards the rest, however slow it is
            self._expect()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.timeout_keep_alive, self._abort_if_unread)

    def _abort_if_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _count(self, data: bytes) -> None:
        """Count bytes of the line and the headers.

        Raises:
            ValueError: there are too many; the parser turns it into an error, to which uvicorn answers 400.
        """
        self._size += len(data)
        if self._size > LARGEST:
            raise ValueError("the headers are too large")

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded(seconds: float) -> type[BoundedProtocol]:
    """Return the protocol with a time in which a request's line and headers must arrive."""
    return type("BoundedProtocol", (BoundedProtocol,), {"seconds": seconds})
