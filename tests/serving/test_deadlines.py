"""What waits for too long ends in the order in which it began; a client that leaves ends what waits for it."""

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.serving.conftest import FAST
from unmask.serving.served import Served
from unmask.serving.service import Deadlines


def test_futures_end_in_order_by_one_timer():
    async def run():
        loop, deadlines = asyncio.get_running_loop(), Deadlines(0.05)
        futures = [loop.create_future() for _ in range(3)]
        for future in futures:
            deadlines.add(future)
        deadlines.remove(futures[1])
        futures[2].set_result("done")
        with pytest.raises(TimeoutError):
            await futures[0]
        assert not futures[1].done(), "its time is not counted any more"
        assert futures[2].result() == "done"
        deadlines.add(later := loop.create_future())
        with pytest.raises(TimeoutError):
            await later
        assert deadlines._ends == {}, "nothing is kept"

    asyncio.run(run())


@pytest.fixture
def slow(monkeypatch):
    """Texts are embedded when an event is set."""
    ready = threading.Event()

    def vectors(self, samples):
        assert ready.wait(10)
        return [np.ones(self.model.vector_width, np.float32)] * len(samples)

    monkeypatch.setattr(Served, "vectors", vectors)
    yield ready
    ready.set()


def eventually(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.005)
    return False


def test_S7_a_client_that_leaves_frees_its_place_in_the_queue(live, http, slow):
    with live("masked") as server:
        (served,) = server.service.models.values()
        first, second = server.connect(), server.connect()
        first.sendall(http("/embed", {"inputs": "the dog"}))
        assert eventually(lambda: served.batcher.pending and not served.batcher._waiting), "it is computed"
        before = served.batcher.pending
        second.sendall(http("/embed", {"inputs": "the cat"}))
        assert eventually(lambda: served.batcher.pending > before)
        second.close()
        assert eventually(lambda: served.batcher.pending == before), "the request of the client that left is dropped"
        assert eventually(lambda: b"unmask_disconnects_total 1.0" in server.service.meter.text())
        slow.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        assert not server.service._deadlines._ends
        first.close()


def test_what_takes_too_long_is_refused_on_a_connection_too(live, http, slow):
    with live("masked", limits=replace(FAST, seconds=0.05)) as server:
        answer = server.ask(http("/embed", {"inputs": "the dog"}))
        assert answer.startswith(b"HTTP/1.1 503") and b"not computed within 0.05 seconds" in answer
        slow.set()


def test_a_response_in_one_piece_is_that_of_messages(live, http, client):
    """The headers and the body are those that the same application has without a connection of its own."""
    expected = client("masked").post("/embed", json={"inputs": "the dog"})
    with live("masked") as server:
        head, _, body = server.ask(http("/embed", {"inputs": "the dog"})).partition(b"\r\n\r\n")
    assert body == expected.content
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert status == "HTTP/1.1 200 OK"
    assert headers.pop("date") and headers.pop("connection") == "close"
    assert headers == {name: value for name, value in expected.headers.items() if name not in ("date", "connection")}
