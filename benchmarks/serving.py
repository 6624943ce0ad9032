"""How much of the engine's own throughput remains over HTTP, and how long do requests take?

`unmask serve` runs as a user starts it, in a process of its own, and asyncio clients of another process, on the same
cores, send it `/embed` requests over loopback connections that stay open.

- engine: the vectors of the same texts by the model in this process (`unmask.load`), tokenizing included;
- full: all clients at once, each with one request after the other: throughput, times, statuses. A second such load
  tells how much the server's memory grows, and whether descriptors stay open;
- half: requests at fixed times, half as many per second as at full load: times.

Some rounds of these, in turns for requests of one text and of several.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from common import add, minilm, parse

import unmask
from unmask.support.choices import Precision

WORDS = "time year people way day man thing woman life child world school state family student group country".split()  # noqa: SIM905
MEAN_WORDS = 20
"""Mean number of words of a text."""
WARM_SECONDS = 1.0
"""Time at the start of a load that is not measured."""
SETTLE_SECONDS = 1.0
"""Time after which connections that clients have closed are closed by the server too."""
TEXTS = 2048
"""Number of different texts."""
CLIENTS, SIZES, SECONDS, ROUNDS = 1000, (1, 8), 20.0, 3
"""Number of clients, numbers of texts of a request, duration of a load, and number of rounds."""
PRECISION: Precision = "float32"


def make_texts(number: int) -> list[str]:
    """Return texts of words at random, of lengths from a geometric distribution of at most 100 words."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, min(100, rng.geometric(1 / MEAN_WORDS)))) for _ in range(number)]


def make_requests(texts: list[str], size: int) -> list[bytes]:
    """Return HTTP requests with `size` texts each."""
    found = []
    for start in range(0, len(texts) - size + 1, size):
        body = json.dumps({"inputs": texts[start : start + size]}).encode()
        head = "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


def engine(model: str, texts: list[str]) -> float:
    """Return the texts per second of the model without a server."""
    loaded = unmask.load(model, device="cpu", precision=PRECISION)
    loaded.embed(texts[:64])
    begun = time.perf_counter()
    loaded.embed(texts)
    return len(texts) / (time.perf_counter() - begun)


@contextmanager
def server(model: str) -> Iterator[tuple[psutil.Process, int]]:
    """Start a server; its process and its port."""
    command = [sys.executable, "-m", "unmask", "serve", f"model={model}", "--port", "0", "--precision", PRECISION]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # although clients compute beside it
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = ""
        while not line.startswith("http"):
            line = process.stderr.readline()
            print(line, end="", file=sys.stderr)
            if not line:
                raise RuntimeError(f"the server has ended: {process.wait()}")
        try:
            yield psutil.Process(process.pid), int(line.split(" ")[0].rsplit(":", 1)[1])
        finally:
            process.terminate()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request, read the response, and return its status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


class Answers(NamedTuple):
    """What was answered in a load.

    Attributes:
        at: when what was answered with 200 was, in seconds.
        seconds: how long it took.
        statuses: number of each status.
    """

    at: list[float]
    seconds: list[float]
    statuses: Counter[int]

    @property
    def rate(self) -> float:
        """Requests per second. They are answered in batches of hundreds: the slope of their number over the time is not
        that of a load which happens to hold a batch more."""
        return float(np.polyfit(np.array(self.at) - self.at[0], np.arange(len(self.at)), 1)[0])


async def load(port: int, requests: list[bytes], rate: float = math.inf) -> Answers:
    """Return what is answered in `SECONDS` after `WARM_SECONDS`.

    Args:
        port: of the server.
        requests: what is asked, again and again.
        rate: requests per second, sent at fixed times by clients that are free; by default as fast as possible.
    """
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)]
    begun, turns = time.perf_counter(), enumerate(itertools.cycle(requests))
    begin, end = begun + WARM_SECONDS, begun + WARM_SECONDS + SECONDS
    found = Answers([], [], Counter())

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, request in turns:  # that no other client has taken
            await asyncio.sleep(max(0.0, min(begun + number / rate, end) - time.perf_counter()))
            if (sent := time.perf_counter()) >= end:
                break
            if reader.at_eof():  # the server has closed it, as it was idle for long
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status = await ask(reader, writer, request)
            if begin <= (answered := time.perf_counter()) <= end:
                found.statuses[status] += 1
                if status == 200:
                    found.at.append(answered)
                    found.seconds.append(answered - sent)
        writer.close()

    await asyncio.gather(*(client(*connection) for connection in connections))
    return found


def summary(answers: Answers, size: int) -> dict[str, Any]:
    """Return rates and quantiles of a load of requests of `size` texts."""
    rate, (p50, p99) = answers.rate, (1000 * float(value) for value in np.quantile(answers.seconds, (0.5, 0.99)))
    rates = {"requests_per_second": rate, "texts_per_second": size * rate, "p50_ms": p50, "p99_ms": p99}
    return rates | {"statuses": {str(status): count for status, count in sorted(answers.statuses.items())}}


def state(process: psutil.Process) -> dict[str, float]:
    """Return the memory of a process in MB, and its number of descriptors, once its connections are closed."""
    time.sleep(SETTLE_SECONDS)
    return {"memory_mb": process.memory_info().rss / 1e6, "descriptors": process.num_fds()}


def measure(model: str, size: int) -> dict[str, Any]:
    """Return the measurements of one size of requests."""
    texts = make_texts(TEXTS)
    requests, alone = make_requests(texts, size), engine(model, texts)
    with server(model) as (process, port):
        full = summary(asyncio.run(load(port, requests)), size)
        before = state(process)
        asyncio.run(load(port, requests))
        after = state(process)
        half = summary(asyncio.run(load(port, requests, full["requests_per_second"] / 2)), size)
    record = {"engine_texts_per_second": alone, "share_of_engine": full["texts_per_second"] / alone}
    record |= {"full": full, "half": half, "before": before, "after": after}
    return record | {"memory_growth": after["memory_mb"] / before["memory_mb"] - 1}


def main() -> None:
    """Measure requests of one text, and of several."""
    parse(__doc__)
    for turn in range(ROUNDS):
        for size in SIZES:
            case = {"precision": PRECISION, "clients": CLIENTS, "texts": size, "model": "minilm", "round": turn}
            add("serving", case, measure(minilm(), size))


if __name__ == "__main__":
    main()
