"""HTTP connections: uvicorn's, with limits of time and size for the line and the headers of requests.

If all places are taken, a new client gets that of the connection that has waited longest for its client.

Requests that are answered by the thousand go around the messages of ASGI: an `Exchange`, which a request has beside
them, says whether its body has arrived, calls back when the client leaves, and sends a whole response at once.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

LARGEST = 32_768
"""Maximum size of a request's line and headers in bytes."""

PROBE, PROBES = 0.1, 2
"""Seconds between interim responses to a client that sends no more, and their number: the first makes the machine of a
client that has left reset the connection, and the second notices it."""


FIRST, NEXT, BODY = range(3)
"""What a connection waits for, in the order in which connections are closed for new ones."""


EXCHANGE = "unmask.exchange"
"""Name of the `Exchange` among the extensions of a request's scope."""


class Exchange:
    """A request with its response to come, on a connection of `BoundedProtocol`.

    Args:
        connection: the connection.
        cycle: uvicorn's state of the request.
    """

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self._connection, self._cycle = connection, cycle

    @property
    def has_body(self) -> bool:
        """Whether the body has arrived."""
        return not self._cycle.more_body

    def when_gone(self, tell: Callable[[], None] | None) -> None:
        """Call a function as soon as the client has gone; None: no more."""
        self._connection.gone = tell
        if tell is not None and (self._cycle.disconnected or self._connection.transport.is_closing()):
            tell()

    async def respond(self, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a successful response in one piece, as `RequestResponseCycle.send` does in two messages.

        Args:
            headers: its headers, but for the length.
            body: its body.
        """
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        length = (b"content-length", b"%d" % len(body))
        lines = [b"%s: %s\r\n" % header for header in (*cycle.default_headers, length, *headers)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        cycle.transport.write(b"".join((STATUS_LINE[200], *lines, b"\r\n", body)))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def exchange_of(scope: Scope) -> Exchange | None:
    """Return the exchange of a request; None: its connection is of another server, such as a test client's."""
    exchange: Exchange | None = scope.get("extensions", {}).get(EXCHANGE)
    return exchange


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed if headers are too large or too slow, or if the client does not read the response.

    uvicorn limits none of these. The attributes of the class are set on a subclass; see `bounded`.

    Attributes:
        seconds: time in which a request's line and headers must arrive.
        gone: called when the connection is lost; None: nothing is.
        waiting: connections of the server that wait for their clients: for the first request, for another one, and for
            a body; of each, the one that has waited longest comes first.
    """

    seconds = 10.0
    gone: Callable[[], None] | None = None
    waiting: tuple[dict[BoundedProtocol, None], ...]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: TimerHandle | None = None
        self._in_headers = True
        self._received = 0
        self._size = 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to wait for the first request."""
        self._make_place()
        super().connection_made(cast(Any, transport))
        self._wait_for(FIRST)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._wait_for(None)
        super().connection_lost(exc)
        if self.gone is not None:
            self.gone()

    def data_received(self, data: bytes) -> None:
        """Read data; refuse headers that do not end."""
        if self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers:
            if self._received > LARGEST:
                self.send_400_response("the headers are too large")
            self._expect()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has sent all of a request and closed its side of the connection."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        if not self.pipeline and cycle.scope["http_version"] == "1.1":
            self.loop.call_later(PROBE, self._probe, PROBES)
        return True

    def _probe(self, times: int) -> None:
        """Write interim responses, so that a client that has closed both sides of the connection is noticed."""
        if times and not self.cycle.response_started and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(PROBE, self._probe, times - 1)

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        super().on_message_begin()
        self._size = 0
        self._in_headers = True

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
        cast(Any, self.scope)["extensions"] = {EXCHANGE: Exchange(self, self.cycle)}
        self._wait_for(None if self.pipeline else BODY)  # None: an earlier request is not answered yet
        if self.parser.should_upgrade():  # the parser reads nothing after these headers
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Compute the response, unless the request was answered early."""
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._wait_for(None)

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to read the response."""
        super().on_response_complete()
        if self.cycle.more_body:  # of a request that was answered early; uvicorn discards the rest, however slow it is
            self._expect()
        if self.cycle.response_complete and not self.transport.is_closing():  # not that of a request before the last
            self._wait_for(NEXT)
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

    def _make_place(self) -> None:
        """Close a connection that waits, if one more would be the last for uvicorn, which refuses its requests."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency - 1:
            return
        longest = next(chain.from_iterable(self.waiting), None)
        if longest is not None:
            longest._wait_for(None)
            self.connections.discard(longest)
            longest.transport.close()

    def _wait_for(self, what: int | None) -> None:
        """Begin to wait for a first request, another one, or a body; None: for nothing."""
        for connections in self.waiting:
            connections.pop(self, None)
        if what is not None:
            self.waiting[what][self] = None

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
    """Return the protocol of one server, with a time in which a request's line and headers must arrive."""
    return type("BoundedProtocol", (BoundedProtocol,), {"seconds": seconds, "waiting": ({}, {}, {})})
