import time
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.serving.conftest import FAST
from unmask.serving import run
from unmask.serving.protocol import LARGEST, BoundedProtocol

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
        assert status(server.ask(GET + b"Connection: close\r\n\r\n")) == 200
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
