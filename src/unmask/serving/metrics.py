"""Metrics of a server in Prometheus's text format. Labels are names of routes, models and statuses, never user text."""

from __future__ import annotations

import sys
import traceback

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from unmask.support.errors import printable

__all__ = ["CONTENT_TYPE", "Meter"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = tuple(2.0**power for power in range(4, 17))


class Meter:
    """Counts requests, batches and failures, and logs failures without their messages, which may hold user text.

    Args:
        log: whether to print a line for each request on standard error.
    """

    def __init__(self, *, log: bool = False) -> None:
        self._log = log
        self.registry = registry = CollectorRegistry()
        self._requests = Counter("unmask_requests", "Requests.", ("route", "status"), registry=registry)
        self._seconds = Histogram(
            "unmask_request_seconds", "Time until the response.", ("route",), buckets=SECONDS, registry=registry
        )
        self._open = Gauge("unmask_open_requests", "Requests being read or processed.", registry=registry)
        self._gone = Counter("unmask_disconnects", "Clients that left before the response.", registry=registry)
        self._tokens = Counter("unmask_tokens", "Computed tokens.", ("model",), registry=registry)
        self._texts = Counter("unmask_samples", "Computed texts, or windows of texts.", ("model",), registry=registry)
        self._batches = Histogram(
            "unmask_batch_tokens", "Tokens per batch.", ("model",), buckets=TOKENS, registry=registry
        )
        self._compute = Histogram(
            "unmask_batch_seconds", "Time to compute a batch.", ("model",), buckets=SECONDS, registry=registry
        )
        self._pending = Gauge("unmask_queue_tokens", "Tokens that wait or are computed.", ("model",), registry=registry)
        self._failures = Counter("unmask_failures", "Unexpected errors.", ("where",), registry=registry)
        self._of: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # by route and status: finding them takes long

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def queue(self, model: str, tokens: int) -> None:
        """Record the number of tokens that wait or are computed."""
        self._pending.labels(model).set(tokens)

    def enter(self) -> None:
        """Count a request that begins."""
        self._open.inc()

    def leave(self, route: str, status: int, seconds: float) -> None:
        """Count a request that ends; `route` is one of the server's routes, or "other"."""
        self._open.dec()
        counts = self._of.get((route, status))
        if counts is None:
            counts = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._of[route, status] = counts
        counts[0].inc()
        counts[1].observe(seconds)
        if self._log:
            note(f"{route} {status} {1000 * seconds:.1f} ms")

    def disconnect(self) -> None:
        """Count a client that left before the response."""
        self._gone.inc()

    def batch(self, model: str, tokens: int, samples: int, seconds: float) -> None:
        """Count a computed batch."""
        self._tokens.labels(model).inc(tokens)
        self._texts.labels(model).inc(samples)
        self._batches.labels(model).observe(tokens)
        self._compute.labels(model).observe(seconds)

    def failure(self, where: str, error: BaseException) -> None:
        """Count and log an unexpected error: its type and where it was raised, without its message."""
        self._failures.labels(where).inc()
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        at = " < ".join(f"{frame.name} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})" for frame in frames[::-1])
        note(f"{where}: {type(error).__name__} in {at}")


def note(text: str) -> None:
    """Print a line for the operator on standard error, with control characters escaped."""
    print(f"unmask: {printable(text)}", file=sys.stderr, flush=True)
