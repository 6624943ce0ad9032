import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import pytest

from tests.serving.conftest import FAST
from unmask.serving import run
from unmask.serving.protocol import LARGEST, BoundedProtocol
from unmask.serving.served import Served

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def status(answer):
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def expired(monkeypatch):
    """The limits, in seconds, of the times that have run out."""
    found, late = [], BoundedProtocol._late

    def expire(connection):
        found.append(connection.seconds)
        late(connection)

    monkeypatch.setattr(BoundedProtocol, "_late", expire)
    return found


@pytest.mark.parametrize("sent", [b"", b"GET /hea", GET, GET + b"X-Slow: "])
def test_S6_headers_that_do_not_end_are_given_up(live, expired, sent):
    with live("masked") as server:
        assert server.ask(sent) == b""
    assert expired == [FAST.header_seconds]


@pytest.mark.parametrize(("line", "expected"), [(b"POST /nothing", 404), (b"GET /health", 200)])
def test_S6_a_body_that_is_not_needed_does_not_keep_the_connection_open(live, expired, line, expected):
    with live("masked") as server:
        sent = line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc"
        assert status(server.ask(sent)) == expected
    assert expired == [FAST.header_seconds]


def test_S6_headers_that_drip_are_given_up(live, expired):
    with live("masked") as server, server.connect() as connection:
        connection.sendall(GET)
        with pytest.raises(OSError):
            for _ in range(1000):
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.05)
    assert expired == [FAST.header_seconds]


def test_the_time_starts_again_with_each_request_of_a_connection(live, expired):
    with live("masked") as server, server.connect() as connection:
        for _ in range(3):
            connection.sendall(GET + b"\r\n")
            assert status(connection.recv(4096)) == 200
            time.sleep(0.25)
        assert expired == []
        connection.sendall(GET)
        assert connection.recv(4096) == b""
    assert expired == [FAST.header_seconds]


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X-Big: " + b"a" * (LARGEST + 1) + b"\r\n\r\n",
        GET + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(40)) + b"\r\n",
        b"GET /" + b"a" * (LARGEST + 1) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET + b"X-Open: " + b"a" * 3 * LARGEST,
        GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        GET + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"CONNECT other:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET.replace(b"1.1", b"9.9") + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda sent: sent[:60].decode("latin1"),
)
def test_S16_huge_and_contradictory_headers_are_refused(live, sent, capsys):
    with live("masked") as server:
        assert 400 <= status(server.ask(sent)) < 500
        assert status(server.ask(CLOSED)) == 200
    assert "Traceback" not in capsys.readouterr().err


def test_a_client_that_does_not_read_is_given_up(live, http, monkeypatch):
    monkeypatch.setattr(run, "KEEP_ALIVE", 0.3)
    limits = replace(FAST, body=10**6, values=10**6, inputs=300, request_tokens=10**5, batch_tokens=10**4)
    with live("masked", limits=limits) as server, server.connect() as connection:
        texts = [" ".join(["dog"] * 38)] * 300  # 12,000 tokens, 3 layers: some 10 MB
        connection.sendall(http("/features", {"inputs": texts, "layers": [0, 1, 2]}))
        end = time.monotonic() + 20
        while b'route="/features",status="200"' not in server.service.meter.text():
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.6)
        found = b""
        with suppress(ConnectionError):
            while received := connection.recv(1 << 20):
                found += received
    head, _, body = found.partition(b"\r\n\r\n")
    assert len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


@pytest.mark.parametrize("delay", [0.0, 0.25])
def test_a_client_that_closes_its_side_gets_the_answer(live, http, monkeypatch, delay):
    compute = Served.compute
    monkeypatch.setattr(Served, "compute", lambda *arguments: time.sleep(delay) or compute(*arguments))
    sent = http("/embed", {"inputs": "the dog"}, "Connection: keep-alive").replace(b"Connection: close\r\n", b"")
    with live("masked") as server, server.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        found = b"".join(iter(lambda: connection.recv(65536), b""))
    while found.startswith(b"HTTP/1.1 100"):  # interim responses, which any client of HTTP/1.1 skips
        found = found.partition(b"\r\n\r\n")[2]
    head, _, body = found.partition(b"\r\n\r\n")
    assert status(head) == 200 and b"connection: close" in head.lower()
    assert len(json.loads(body)[0]) == 16


@pytest.mark.parametrize(
    "sent", [b"", b"GET /hea", GET, b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_half_a_request_is_not_answered(live, sent):
    with live("masked") as server, server.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            assert connection.recv(65536) == b"" or sent.startswith(b"POST")


def test_several_hosts_are_refused(live):
    rng = np.random.default_rng(0)
    with live("masked") as server:
        for _ in range(40):
            hosts = rng.choice(["localhost", "LOCALHOST:80", "evil.example", ""], int(rng.integers(2, 4)))
            lines = [f"Host: {host}\r\n".encode() for host in hosts]
            sent = b"GET /health HTTP/1.1\r\n" + b"".join(lines) + b"Connection: close\r\n\r\n"
            assert status(server.ask(sent)) == 400


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


def test_another_protocol_is_not_spoken_and_its_connection_closed(live, http):
    with live("masked") as server:
        assert status(server.ask(GET + UPGRADE + b"\r\n" + GET + b"\r\n")) == 200
        found = server.ask(http("/embed", {"inputs": "the dog"}).replace(b"Connection: close\r\n", UPGRADE))
    assert status(found) == 400 and b"without Upgrade" in found
    assert found.count(b"HTTP/1.1") == 1, "the body is not taken for a request"


PLACES = 20
FEW = replace(FAST, requests=PLACES // 2, header_seconds=60, body_seconds=60)
"""Limits of a server that has a place for 19 connections."""
LINE, CLOSED = GET + b"\r\n", GET + b"Connection: close\r\n\r\n"


def send(connection, sent, expected):
    """Send bytes, and check the status of what comes back: until then the server has read them."""
    connection.sendall(sent)
    assert status(connection.recv(4096)) == expected


def is_closed(connection):
    """Return whether the server has closed a connection; what it has sent is read."""
    connection.setblocking(False)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:  # it had not read everything
        return True
    finally:
        connection.settimeout(10)


@pytest.fixture
def connections():
    """Connections that are closed at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(connections):
    """Make connections to a server."""
    return lambda server, number: [connections.enter_context(server.connect()) for _ in range(number)]


@pytest.mark.parametrize("sent", [b"", b"GET /hea", GET + b"X-Slow: "])
def test_S21_new_clients_get_the_places_of_the_oldest_idle_connections(live, connect, sent):
    with live("masked", limits=FEW) as server:
        idle = connect(server, 200)
        for connection in idle:
            with suppress(ConnectionError):  # closed for those after it
                connection.sendall(sent)
        for _ in range(30):
            assert status(server.ask(CLOSED)) == 200
        remaining = PLACES - 2  # and one of a client
        assert [is_closed(connection) for connection in idle] == [True] * (200 - remaining) + [False] * remaining


@pytest.fixture
def half(http):
    """Half a request, to which the server answers with 100, and the other half."""
    request = http("/embed", {"inputs": "a"}, "Expect: 100-continue")
    return request[:-10], request[-10:]


def test_S21_half_a_request_is_closed_last_and_one_that_is_computed_never(live, http, connect, half, monkeypatch):
    compute, go_on = Served.compute, threading.Event()

    def wait(*arguments, **options):
        assert go_on.wait(20)
        return compute(*arguments, **options)

    monkeypatch.setattr(Served, "compute", wait)
    with live("masked", limits=FEW) as server:
        computed, begun, resting = connect(server, 5), connect(server, 5), connect(server, 5)
        for connection in computed:
            connection.sendall(http("/embed", {"inputs": "a"}))
        for connection in begun:
            send(connection, half[0], 100)
        for connection in resting:
            send(connection, LINE, 200)
        idle = connect(server, 100)
        assert status(server.ask(CLOSED)) == 200
        assert [is_closed(connection) for connection in idle] == [True] * 97 + [False] * 3
        assert not any(map(is_closed, resting + begun + computed))
        send(resting[0], LINE, 200)  # from now on it has waited for the shortest time
        others = []
        for _ in range(1 + 3 + 3):  # the first finds a free place
            others += connect(server, 1)
            send(others[-1], LINE, 200)
        assert all(map(is_closed, idle))
        assert [is_closed(connection) for connection in resting] == [False] + [True] * 3 + [False]
        assert not any(map(is_closed, others + begun))
        for _ in range(2 + 7 + 2):
            begun += connect(server, 1)
            send(begun[-1], half[0], 100)
        assert all(map(is_closed, resting + others))
        assert [is_closed(connection) for connection in begun] == [True] * 2 + [False] * 14
        go_on.set()
        assert all(status(connection.recv(4096)) == 200 for connection in computed)
        for connection in begun[2:]:
            send(connection, half[1], 200)


def test_S21_bodies_that_do_not_arrive_keep_no_request_out(live, http, connect, connections, half):
    with live("masked", limits=FEW) as server:
        for _ in range(100):
            send(*connect(server, 1), half[0], 100)
        for _ in range(30):
            assert status(server.ask(http("/embed", {"inputs": "a"}))) == 200
        connections.close()  # so that the end of the server does not wait for them
