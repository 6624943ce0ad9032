"""The outermost layer of a server: checks hosts, keys and headers, counts, and turns every error into a response.

No error reaches the web server behind it, whose traceback would show what users sent.

API keys: read from a file or the environment, stored and compared as digests in constant time.

Bodies of requests are read within limits of size and time, and of all bodies and requests together.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from unmask.serving.bodies import Refusal, failure_at, overloaded, too_large
from unmask.serving.metrics import Meter
from unmask.serving.protocol import exchange_of
from unmask.serving.types import Limits
from unmask.support.errors import UserError
from unmask.support.messages import argument

VARIABLE = "UNMASK_API_KEY"
"""Environment variable with a key."""
SHORTEST = 16
"""Minimum number of characters of a key."""


class Keys:
    """The API keys of a server; without any, everybody may ask.

    Args:
        keys: the keys.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes) -> bool:
        """Return whether the value of an Authorization header, `Bearer KEY`, has one of the keys."""
        if not self._digests:
            return True
        scheme, _, key = authorization.partition(b" ")
        presented = _digest(key.strip())
        matches = False
        for digest in self._digests:  # all of them, so that the time does not depend on which one it is
            matches |= hmac.compare_digest(digest, presented)
        return matches and scheme.lower() == b"bearer"


def read_keys(path: str | Path | None) -> Keys:
    """Return the keys in a file, one per line, and in the environment variable.

    Raises:
        UserError: the file cannot be read or has no key, or a key is short or has other than visible ASCII characters.
    """
    keys = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else []
    if path is not None:
        try:
            lines = Path(path).read_text(encoding="utf8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError("the keys cannot be read", file=path, remedy="name a file with one key per line") from error
        listed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not listed:
            raise UserError("no key", file=path, remedy="write one per line")
        keys += listed
    for key in keys:
        if len(key) < SHORTEST or not all("!" <= character <= "~" for character in key):
            raise UserError(
                f"a key has fewer than {SHORTEST} characters, or others than visible ASCII",
                file=path,
                remedy="generate one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
    return Keys(keys)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of all responses."""
JSON_HEADERS = ((b"content-type", b"application/json"), *HEADERS)
"""Headers of a successful response in JSON."""
ANY = "*"
"""Stands for all hosts."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine's loopback interface."""


Inner = Callable[[Scope, Receive, Send], Awaitable[bytes | None]]
"""An ASGI application, which may also return the body of a successful response, in JSON, for `Guard` to send."""


class Guard:
    """An ASGI application around another one.

    Args:
        app: the application.
        keys: keys of which each request needs one.
        hosts: names, without port, by which clients may address the server; a page of another site that resolves its
            own name to this machine's address is refused. `ANY` allows all.
        meter: metrics.
        routes: paths that metrics count by name, such as `/models/{name}`.
        public: paths that are read (GET) without a key.
    """

    def __init__(
        self,
        app: Inner,
        *,
        keys: Keys,
        hosts: Collection[str],
        meter: Meter,
        routes: Collection[str],
        public: Collection[str],
    ) -> None:
        self._app, self._keys, self._hosts, self._meter = app, keys, hosts, meter
        self._routes, self._public = frozenset(routes), frozenset(public)
        self._patterns = [(compile_path(route)[0], route) for route in routes if "{" in route]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        scope["app"] = self._app  # the router raises an error where there is no route, instead of answering
        started, path = time.monotonic(), scope["path"]
        route = path if path in self._routes else self._pattern(path)
        status = 499  # as if the client had left, unless a response begins

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in HEADERS if header[0] not in names)]
            await send(message)

        self._meter.enter()
        try:
            self._check(scope["headers"], "" if scope["method"] == "POST" else path)
            body = await self._app(scope, receive, answer)
            if body is not None and (exchange := exchange_of(scope)) is not None:
                status = 200
                await exchange.respond(JSON_HEADERS, body)
            elif body is not None:
                await Response(body, media_type="application/json")(scope, receive, answer)
        except Refusal as refusal:
            await refuse(refusal, path)(scope, receive, answer)
        except HTTPException as error:  # of the router: there is no such route (404), or only with others (405)
            allowed = error.headers or {}
            failure = Refusal(404, "NotFound", "there is no such route; /openapi.json lists the routes")
            if allowed:
                failure = Refusal(405, "Validation", f"this route takes {allowed['Allow']}")
            response = refuse(failure, path)
            response.headers.update(allowed)
            await response(scope, receive, answer)
        except Exception as error:
            self._meter.failure(route, error)
            if status == 499:
                await refuse(Refusal(500, "Backend", "internal error"), path)(scope, receive, answer)
        finally:
            self._meter.leave(route, status, time.monotonic() - started)

    def _pattern(self, path: str) -> str:
        """Return the route with parameters that a path belongs to; "other" if there is none."""
        return next((route for pattern, route in self._patterns if pattern.match(path)), "other")

    def _check(self, headers: Iterable[tuple[bytes, bytes]], path: str) -> None:
        """Check the headers of a request.

        Args:
            headers: its headers.
            path: the path that it reads; "" if it posts.

        Raises:
            Refusal: its length or its host is stated twice, its body belongs to another protocol, the host is unknown,
                or the key is missing or wrong.
        """
        first: dict[bytes, bytes] = {}  # the first value of each name
        hosts = 0
        for name, value in headers:
            hosts += name == b"host"
            first.setdefault(name, value)
        if b"content-length" in first and b"transfer-encoding" in first:
            raise Refusal(400, "Validation", "Content-Length and Transfer-Encoding exclude each other")
        has_body = first.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in first
        if has_body and b"upgrade" in first.get(b"connection", b"").lower():
            raise Refusal(400, "Validation", "send the request without Upgrade: its body is not read with it")
        if hosts > 1:  # a proxy may have checked the other one
            raise Refusal(400, "Validation", "there are several Host headers")
        if ANY not in self._hosts and host_name(first.get(b"host", b"").decode("latin1")) not in self._hosts:
            others = f"its operator adds others by {argument('allow_host')}"
            raise Refusal(403, "Unauthorized", f"this host is not one of the server's names; {others}")
        if path not in self._public and not self._keys.allow(first.get(b"authorization", b"")):
            raise Refusal(401, "Unauthorized", "send an API key: Authorization: Bearer KEY")


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    name = host.lower()
    return name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]


def refuse(refusal: Refusal, path: str) -> Response:
    """Return a refusal as the response of a route."""
    headers = {} if refusal.retry is None else {"retry-after": str(refusal.retry)}
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.status == 408:
        headers["connection"] = "close"
    body = msgspec.json.encode(failure_at(path).of(refusal))
    return Response(body, refusal.status, headers, media_type="application/json")


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
