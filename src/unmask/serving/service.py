"""The models of a server, and how requests of routes that compute are answered by them.

request -> `Gate` -> body -> msgspec type -> `Endpoint.job` -> `Batcher` -> `ComputeJob.read` -> JSON

Decoding, framing and encoding of small requests is done in the event loop, because a hop to a thread takes longer; that
of large ones in a thread. The computing thread of each model does nothing but compute.

A small request takes one task, that of its connection, and one future, which the computing thread resolves for all
requests of a batch at once. It has no timer and no task that looks whether its client is still there: one timer ends
all that wait for too long (`Deadlines`), of equal times what began first, and the connection itself ends what waits for
it (`Exchange`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from unmask.data.batches.batch import total_length
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import Refusal, decode, invalid, unhealthy
from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.guard import Gate
from unmask.serving.metrics import Meter
from unmask.serving.pipelines import PIPELINES, choose, choose_pipeline
from unmask.serving.protocol import Exchange, exchange_of
from unmask.serving.served import RERANK, Served
from unmask.serving.types import Info, Limits
from unmask.support import __version__
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.routes import PREDICT

Value = TypeVar("Value")

SMALL = 4000
"""Number of bytes of a request, and of tokens of a job, up to which they are processed in the event loop."""
LARGE_AT_ONCE = 4
"""Number of large requests that are framed, or whose responses are made, at the same time: each takes some 200 MB."""
GONE = 499
"""Status, as nginx logs it, of a request whose client left before the response."""


class Service:
    """The models of a server, and what its routes do.

    Args:
        models: the models, by name; the first that can do what a request asks for is used if it names none.
        limits: see `Limits`.
        meter: metrics.
    """

    def __init__(self, models: Sequence[Served], limits: Limits, meter: Meter) -> None:
        self.models = {served.name: served for served in models}
        self.limits, self.meter, self.gate = limits, meter, Gate(limits)
        self.stopping, self.started = False, int(time.time())
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._deadlines = Deadlines(limits.seconds)

    def find(self, name: str | None, route: str) -> Served:
        """Return the model of a request.

        Raises:
            Refusal: there is no such model (404), or it cannot do this (422).
        """
        served = None if name is None else self.named(name)
        if served is not None and served.has(route):
            return served
        able = [other for other in self.models.values() if other.has(route)]
        if served is not None:
            raise invalid(_lacking(served, route, [other.name for other in able]))
        if not able:
            raise invalid(f"no model of this server has {route}; /info lists the routes of each model")
        return min(able, key=lambda other: route == RERANK and not other.reranks)  # the first cross-encoder

    def named(self, name: str) -> Served:
        """Return the model of a name.

        Raises:
            Refusal: there is no such model (404).
        """
        if name not in self.models:
            raise Refusal(404, "NotFound", f"{argument('model')}: there is no such model; /info lists the models")
        return self.models[name]

    async def handle(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer a request of a route that computes; see `answer`."""
        return await self._respond(self.answer(lambda content: endpoint, request.scope, request.receive))

    async def ask(self, request: Request) -> Response:
        """Answer a request of Hugging Face's inference API: `/`, `/models/NAME` or `/models/NAME/pipeline/TASK`.

        Raises:
            Refusal: it is refused, or there is no such model or pipeline.
        """
        name, task = (request.path_params.get(key) for key in ("name", "task"))
        if task is not None and task not in PIPELINES:
            raise Refusal(404, "NotFound", f"there is no such pipeline; there are {', '.join(PIPELINES)}")
        served = next(iter(self.models.values())) if name is None else self.named(name)

        def of(content: bytes) -> Endpoint:
            if task is not None:
                return PIPELINES[task]
            return choose(content, served) if name is None else choose_pipeline(content, served)

        return await self._respond(self.answer(of, request.scope, request.receive, name))

    async def _respond(self, answer: Coroutine[Any, Any, bytes]) -> Response:
        """Return an answer as a response; it is not sent if the client has gone."""
        try:
            return Response(await answer, media_type="application/json")
        except ClientDisconnect:
            return Response(status_code=GONE)

    async def answer(
        self, of: Callable[[bytes], Endpoint], scope: Scope, receive: Receive, name: str | None = None
    ) -> bytes:
        """Return the answer to a request, in JSON.

        Args:
            of: returns what its body asks for.
            scope: the request.
            receive: returns the parts of its body.
            name: the model that its path names.

        Raises:
            Refusal: it is refused.
            ClientDisconnect: the client has gone.
        """
        exchange = exchange_of(scope)
        try:
            with self.gate.read() as read:
                content = await read(scope, receive, arrived=exchange is not None and exchange.has_body)
                with self.gate.admit():  # a body that does not arrive keeps no other request out
                    return await self._computed(of(content), content, name, receive, exchange)
        except ClientDisconnect:
            self.meter.disconnect()
            raise

    async def _computed(
        self, endpoint: Endpoint, content: bytes, name: str | None, receive: Receive, exchange: Exchange | None
    ) -> bytes:
        """Return the answer to what a body asks for; see `answer`."""
        try:
            if len(content) > SMALL:
                return await self._until_gone(receive, self._answer_large(endpoint, content, name))
            served, job = self._frame(endpoint, content, name)
            if exchange is None or total_length(job.samples) > SMALL:
                return await self._until_gone(receive, self._finish(served, job))
            return msgspec.json.encode(job.read(await self._rows(served, job, exchange)))
        except UserError as error:  # its message may contain the text
            raise invalid(endpoint.needs) from error
        except TimeoutError as error:
            raise unhealthy(f"not computed within {self.limits.seconds:g} seconds") from error

    async def _rows(self, served: Served, job: ComputeJob, exchange: Exchange) -> list[np.ndarray]:
        """Return the rows of a small job; the waiting ends when it takes too long, or the client leaves."""
        waiting: list[asyncio.Future[list[np.ndarray]]] = []

        def watch(future: asyncio.Future[list[np.ndarray]]) -> None:
            waiting.append(future)
            self._deadlines.add(future)
            exchange.when_gone(partial(_end, future))

        try:
            return await served.batcher.run(job, watch)
        finally:
            exchange.when_gone(None)
            for future in waiting:
                self._deadlines.remove(future)

    async def _answer_large(self, endpoint: Endpoint, content: bytes, name: str | None) -> bytes:
        """Return the answer to a large body.

        Raises:
            TimeoutError: it takes too long.
        """
        async with asyncio.timeout(self.limits.seconds):
            served, job = await self._offload(partial(self._frame, endpoint, content, name))
            return await self._finish(served, job)

    async def _finish(self, served: Served, job: ComputeJob) -> bytes:
        """Return the answer of a job.

        Raises:
            TimeoutError: it takes too long.
        """
        async with asyncio.timeout(self.limits.seconds):
            rows = await served.batcher.run(job)
            read = partial(_read, job, rows)
            return read() if total_length(job.samples) <= SMALL else await self._offload(read)

    async def _offload(self, function: Callable[[], Value]) -> Value:
        """Return the result of a function, called in a thread, as there is much to do."""
        async with self._large:
            return await run_in_threadpool(function)

    def _frame(self, endpoint: Endpoint, content: bytes, name: str | None) -> tuple[Served, ComputeJob]:
        """Return the model of a request, and its job."""
        wanted = decode(endpoint.decoder, content)
        if name is not None and wanted.model not in (None, name):
            raise invalid(f"{argument('model')}: the path names another model")
        served = self.find(name or wanted.model, endpoint.ability)
        return served, endpoint.job(served, wanted)

    async def _until_gone(self, receive: Receive, work: Coroutine[Any, Any, bytes]) -> bytes:
        """Return the result of work, which is cancelled when the client disconnects.

        Raises:
            ClientDisconnect: the client has gone.
        """
        doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ClientDisconnect
            return doing.result()
        finally:
            doing.cancel()
            leaving.cancel()

    def describe(self, served: Served) -> Info:
        """Describe a model."""
        task, labels = served.model.task, served.predictor.labels
        if served.has("/predict") and labels:
            names = {str(index): label for index, label in enumerate(labels)}
            kind: dict[str, dict[str, Any]] = {
                "classifier": {"id2label": names, "label2id": {label: int(index) for index, label in names.items()}}
            }
        elif task is not None:
            kind = task.describe_model(labels)
        else:
            kind = {"embedding": {"pooling": served.pooling.kind}}
        return Info(
            model_id=served.name,
            served_model_name=served.name,
            model_dtype=served.predictor.backend.precision,
            model_type=kind,
            routes=[endpoint.path for endpoint in (*ENDPOINTS, *PIPELINES.values()) if served.has(endpoint.ability)],
            max_input_length=served.input_length,
            max_batch_tokens=self.limits.batch_tokens,
            max_concurrent_requests=self.limits.requests,
            max_client_batch_size=self.limits.inputs,
            tokenization_workers=LARGE_AT_ONCE,
            version=__version__,
        )

    def close(self) -> None:
        """Stop the computing threads."""
        self.stopping = True
        for served in self.models.values():
            served.batcher.close()


def _lacking(served: Served, route: str, others: Sequence[str]) -> str:
    """Return the message that a model lacks a route, and what has it, given the names of other models that do."""
    labels = route == RERANK and served.has(PREDICT.path) and served.predictor.labels
    instead = f"; it gives pairs [query, text] labels, at {PREDICT.path}" if labels else ""
    instead += f"; models that have it: {', '.join(others)}" if others else ""
    return f"{argument('model')}: this model has no {route}{instead}; /info lists the routes of each model"


def _read(job: ComputeJob, rows: list[np.ndarray]) -> bytes:
    return msgspec.json.encode(job.read(rows))


def _end(future: asyncio.Future[Any]) -> None:
    """End the waiting for a future, as the client has gone."""
    if not future.done():
        future.set_exception(ClientDisconnect())


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Deadlines:
    """Ends what takes too long with a `TimeoutError`.

    A timer for each of thousands of futures, nearly all of which are cancelled, takes longer than the rest of waiting.

    Args:
        seconds: how long a future may be waited for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[asyncio.Future[Any], float] = {}  # in the order in which they end
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: asyncio.Future[Any]) -> None:
        """Begin to count the time of a future of the running event loop."""
        loop = future.get_loop()
        self._ends[future] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._end)

    def remove(self, future: asyncio.Future[Any]) -> None:
        """Stop to count the time of a future."""
        self._ends.pop(future, None)

    def _end(self) -> None:
        """End what is late, and wait for the next end, if there is one."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._ends:
            future, end = next(iter(self._ends.items()))
            if end > loop.time():
                self._timer = loop.call_at(end, self._end)
                return
            del self._ends[future]
            if not future.done():
                future.set_exception(TimeoutError())
