import asyncio
import gzip
import socket
import time
from dataclasses import replace

import psutil
import pytest

from tests.serving.conftest import FAST, LIMITS
from unmask.serving.bodies import Refusal
from unmask.serving.guard import Gate
from unmask.serving.types import Limits

HEAD = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def status(answer):
    return int(answer.split(b" ", 2)[1])


def test_S2_a_big_body_is_refused_before_it_is_read(live, client):
    big = b'{"inputs": "' + b"a" * LIMITS.body + b'"}'
    found = client("masked").post("/embed", content=big, headers={"content-type": "application/json"})
    assert found.status_code == 413 and found.json()["error_type"] == "Validation"
    with live("masked") as server:
        assert status(server.ask(HEAD + b"Content-Length: 1000000000000\r\n\r\n")) == 413
        for digits in (b"9" * 30, b"-1", b"1x", b"0x10"):
            assert 400 <= status(server.ask(HEAD + b"Content-Length: " + digits + b"\r\n\r\n")) < 500


def test_S2_a_big_chunked_body_is_refused_in_flat_memory(live):
    chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    with live("masked") as server, server.connect() as connection:
        before, sent = psutil.Process().memory_info().rss, 0
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(50_000):  # 3 GB, if it were read until the end
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass
        assert psutil.Process().memory_info().rss - before < 20_000_000
        assert sent < 50_000, "the connection is closed"
        assert status(server.ask(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)) == 413


@pytest.mark.parametrize(
    ("content", "encoding", "status", "message"),
    [
        (gzip.compress(b'{"inputs": "a"}', mtime=0), "gzip", 415, "uncompressed, without Content-Encoding"),
        (b'{"inputs": "a"}', "br", 415, "uncompressed, without Content-Encoding"),
        (b'{"inputs": "a"}', "Identity", 200, ""),
        (b'{"inputs": "\xe9"}', "identity", 400, "not valid JSON in UTF-8"),
        (b"", "identity", 400, "not valid JSON in UTF-8"),
        (b'{"inputs": "a", "inputs": "a"}', "identity", 400, "a key occurs twice"),
    ],
)
def test_a_body_is_uncompressed_json_in_utf8_with_each_key_once(client, content, encoding, status, message):
    headers = {"content-type": "application/json", "content-encoding": encoding}
    found = client("masked").post("/embed", content=content, headers=headers)
    assert found.status_code == status and message in found.text


def test_a_client_that_sends_all_of_a_big_body_reads_why_it_is_refused(live):
    """The rest of the body is discarded: a connection that is closed while it arrives is reset."""
    body = b" " * 8_000_000
    with live("masked", limits=replace(FAST, header_seconds=20)) as server, server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert status(connection.recv(65536)) == 413
        connection.sendall(HEAD + b'Content-Length: 15\r\n\r\n{"inputs": "a"}')
        assert status(connection.recv(65536)) == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_S6_a_body_that_does_not_end_is_given_up(live, chunked, monkeypatch):
    timeout, limits = asyncio.timeout, []
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: limits.append(seconds) or timeout(seconds))
    length = b"Transfer-Encoding: chunked\r\n\r\n4\r\n" if chunked else b"Content-Length: 100\r\n\r\n"
    with live("masked") as server:
        assert status(server.ask(HEAD + length + b'{"in')) == 408
    assert FAST.body_seconds in limits


def test_a_client_that_leaves_within_the_body_is_forgotten(live, http):
    with live("masked", limits=replace(FAST, requests=1)) as server:
        with server.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
            time.sleep(0.1)
            connection.shutdown(socket.SHUT_RDWR)
        time.sleep(0.1)
        assert status(server.ask(http("/embed", {"inputs": "the dog"}))) == 200


def test_requests_and_all_bodies_together_are_limited():
    gate = Gate(Limits(requests=2, bodies=100))
    with gate.admit(), gate.admit(), pytest.raises(Refusal) as refused, gate.admit():
        pass
    assert refused.value.status == 429
    with gate.read() as reader:
        gate.reserve(80)
        reader.size += 80
        with pytest.raises(Refusal):
            gate.reserve(30)
    gate.reserve(100)


def test_a_field_twice_is_refused(client):
    one, headers = client("masked"), {"content-type": "application/json"}
    found = one.post("/embed", content=b'{"inputs": "a", "inputs": "b"}', headers=headers)
    assert found.status_code == 400 and "a key occurs twice" in found.json()["error"]
    text = '"inputs": \\"a\\": ' * 30
    assert one.post("/embed", json={"inputs": text[:300], "truncate": True}).status_code == 200
