"""The application: requests are decoded, framed, batched, and their results encoded.

request -> `Gate` -> body -> msgspec type -> `Endpoint.job` -> `Batcher` -> `ComputeJob.read` -> JSON

Decoding, framing and encoding of small requests is done in the event loop, because a hop to a thread takes longer; that
of large ones in a thread. The computing thread of each model does nothing but compute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from unmask.data.batches.batch import total_length
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import decode, json_response
from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.guard import ANY, LOOPBACK, Guard, Keys
from unmask.serving.metrics import CONTENT_TYPE, Meter
from unmask.serving.openapi import describe
from unmask.serving.pipelines import DISPATCHED, PIPELINES, choose
from unmask.serving.protocol import ClientDisconnect, Gate
from unmask.serving.refusals import Refusal, invalid, unhealthy
from unmask.serving.served import RERANK, Served
from unmask.serving.types import Info, Limits, OpenAIModel, OpenAIModels, Server
from unmask.support import __version__
from unmask.support.errors import UserError
from unmask.support.messages import argument

Value = TypeVar("Value")

SMALL = 4000
"""Number of bytes of a request, and of tokens of a job, up to which they are processed in the event loop."""
LARGE_AT_ONCE = 4
"""Number of large requests that are framed, or whose responses are made, at the same time: each takes some 200 MB."""
GONE = 499
"""Status, as nginx logs it, of a request whose client left before the response."""
OPEN = ("/health",)
"""Routes that need no key."""


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

    def find(self, name: str | None, route: str) -> Served:
        """Return the model of a request.

        Raises:
            Refusal: there is no such model (404), or it cannot do this (422).
        """
        if name is None:
            able = [served for served in self.models.values() if served.has(route)]
            if not able:
                raise invalid("no model of this server can do this; /info lists the routes of each model")
            return min(able, key=lambda served: route == RERANK and not served.reranks)  # the first cross-encoder
        served = self.named(name)
        if not served.has(route):
            raise invalid(f"{argument('model')}: this model cannot do this; /info lists the routes of each model")
        return served

    def named(self, name: str) -> Served:
        """Return the model of a name.

        Raises:
            Refusal: there is no such model (404).
        """
        if name not in self.models:
            raise Refusal(404, "NotFound", f"{argument('model')}: there is no such model; /info lists the models")
        return self.models[name]

    async def handle(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer a request of a route that computes.

        Raises:
            Refusal: it is refused.
        """
        return await self._handle(request, lambda content: endpoint, None)

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
            return choose(content, served) if task is None else PIPELINES[task]

        return await self._handle(request, of, name)

    async def _handle(self, request: Request, of: Callable[[bytes], Endpoint], name: str | None) -> Response:
        """Answer a request.

        Args:
            request: the request.
            of: returns what its body asks for.
            name: the model that its path names.
        """
        with self.gate.read() as read:
            try:
                content = await read(request)
                with self.gate.admit():  # a body that does not arrive keeps no other request out
                    return await self._until_gone(request, self._answer(of(content), content, name))
            except ClientDisconnect:
                self.meter.disconnect()
                return Response(status_code=GONE)

    async def _answer(self, endpoint: Endpoint, content: bytes, name: str | None) -> Response:
        try:
            async with asyncio.timeout(self.limits.seconds):
                framing = partial(self._frame, endpoint, content, name)
                served, job = await self._offload(len(content) <= SMALL, framing)
                rows = await served.batcher.run(job)
                small = total_length(job.samples) <= SMALL
                return await self._offload(small, lambda: json_response(job.read(rows)))
        except UserError as error:  # its message may contain the text
            raise invalid(endpoint.needs) from error
        except TimeoutError as error:
            raise unhealthy(f"not computed within {self.limits.seconds:g} seconds") from error

    async def _offload(self, small: bool, function: Callable[[], Value]) -> Value:
        """Return the result of a function, called here if there is little to do, in a thread otherwise."""
        if small:
            return function()
        async with self._large:
            return await run_in_threadpool(function)

    def _frame(self, endpoint: Endpoint, content: bytes, name: str | None) -> tuple[Served, ComputeJob]:
        """Return the model of a request, and its job."""
        wanted = decode(endpoint.decoder, content)
        if name is not None and wanted.model not in (None, name):
            raise invalid(f"{argument('model')}: the path names another model")
        served = self.find(name or wanted.model, endpoint.ability)
        return served, endpoint.job(served, wanted)

    async def _until_gone(self, request: Request, work: Coroutine[Any, Any, Response]) -> Response:
        """Return the result of work, which is cancelled when the client disconnects.

        Raises:
            ClientDisconnect: the client has gone.
        """
        doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ClientDisconnect
            return doing.result()
        finally:
            doing.cancel()
            leaving.cancel()

    async def health(self, request: Request) -> Response:
        """Return 200 while requests are accepted."""
        if (name := request.path_params.get("name")) is not None:
            self.named(name)
        if self.stopping:
            raise unhealthy("the server is stopping")
        return Response()

    async def info(self, request: Request) -> Response:
        """Describe the models, that of the path first."""
        infos = [self.describe(served) for served in self.models.values()]
        first = infos[0] if (name := request.path_params.get("name")) is None else self.describe(self.named(name))
        return json_response(Server(**msgspec.structs.asdict(first), models=infos))

    async def list_models(self, request: Request) -> Response:
        """List the models, or describe that of the path, as OpenAI's API."""
        if (name := request.path_params.get("name")) is not None:
            return json_response(OpenAIModel(self.named(name).name, self.started))
        return json_response(OpenAIModels([OpenAIModel(name, self.started) for name in self.models]))

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
            max_input_length=served.longest,
            max_batch_tokens=self.limits.batch_tokens,
            max_concurrent_requests=self.limits.requests,
            max_client_batch_size=self.limits.inputs,
            tokenization_workers=LARGE_AT_ONCE,
            version=__version__,
        )

    async def metrics(self, request: Request) -> Response:
        """Return the metrics."""
        for served in self.models.values():
            self.meter.queue(served.name, served.batcher.pending)
        return Response(self.meter.text(), media_type=CONTENT_TYPE)

    def close(self) -> None:
        """Stop the computing threads."""
        self.stopping = True
        for served in self.models.values():
            served.batcher.close()


def create_app(
    service: Service,
    *,
    keys: Keys | None = None,
    hosts: Collection[str] = LOOPBACK,
    pages: Sequence[BaseRoute] = (),
    public: Collection[str] = (),
) -> ASGIApp:
    """Return the application.

    Args:
        service: the models.
        keys: API keys; None: everybody may ask.
        hosts: see `Guard`.
        pages: further routes, such as those of the playground.
        public: paths of `pages` that need no key.
    """
    description = msgspec.json.encode(describe())

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        service.close()

    plain = {"/health": service.health, "/info": service.info, "/metrics": service.metrics, "/openapi.json": openapi}
    plain |= {"/models/{name}/health": service.health, "/models/{name}/info": service.info}
    plain |= {"/v1/models": service.list_models, "/v1/models/{name}": service.list_models}
    endpoints = (*ENDPOINTS, *PIPELINES.values())
    routes = [Route(path, handler, methods=["GET"]) for path, handler in plain.items()]
    routes += [Route(endpoint.path, partial(service.handle, endpoint), methods=["POST"]) for endpoint in endpoints]
    routes += [Route(path, service.ask, methods=["POST"]) for path in DISPATCHED]
    app = Router([*routes, *pages], redirect_slashes=False, lifespan=lifespan)
    paths = [route.path for route in (*routes, *pages) if isinstance(route, Route)]
    return Guard(
        app, keys=keys or Keys(), hosts=hosts or (ANY,), meter=service.meter, routes=paths, public=(*OPEN, *public)
    )


async def _disconnected(request: Request) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
