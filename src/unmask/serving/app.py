"""The application: the routes of a server, and what those that do not compute return.

Routes that compute are answered by `Service`, past the router: see `Application`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from unmask.serving.bodies import json_response
from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.gate import ClientDisconnect
from unmask.serving.guard import ANY, LOOPBACK, Guard, Keys
from unmask.serving.metrics import CONTENT_TYPE
from unmask.serving.openapi import describe
from unmask.serving.pipelines import DISPATCHED, PIPELINES
from unmask.serving.refusals import unhealthy
from unmask.serving.service import GONE, Service
from unmask.serving.types import OpenAIModel, OpenAIModels, Server

OPEN = ("/health",)
"""Routes that need no key."""


class Pages:
    """What the routes of a service return that do not compute.

    Args:
        service: the service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, request: Request) -> Response:
        """Return 200 while requests are accepted."""
        if (name := request.path_params.get("name")) is not None:
            self._service.named(name)
        if self._service.stopping:
            raise unhealthy("the server is stopping")
        return Response()

    async def info(self, request: Request) -> Response:
        """Describe the models, that of the path first."""
        service, name = self._service, request.path_params.get("name")
        infos = [service.describe(served) for served in service.models.values()]
        first = infos[0] if name is None else service.describe(service.named(name))
        return json_response(Server(**msgspec.structs.asdict(first), models=infos))

    async def list_models(self, request: Request) -> Response:
        """List the models, or describe that of the path, as OpenAI's API."""
        if (name := request.path_params.get("name")) is not None:
            return json_response(OpenAIModel(self._service.named(name).name, self._service.started))
        return json_response(OpenAIModels([OpenAIModel(name, self._service.started) for name in self._service.models]))

    async def metrics(self, request: Request) -> Response:
        """Return the metrics."""
        for served in self._service.models.values():
            self._service.meter.queue(served.name, served.batcher.pending)
        return Response(self._service.meter.text(), media_type=CONTENT_TYPE)


class Application:
    """An application that answers the routes that compute itself, and has another one answer the rest.

    A router, a request and a response of Starlette would take as long as all that is done for a small request.

    Args:
        service: answers requests.
        endpoints: the routes that compute, by path.
        others: answers everything else.
    """

    def __init__(self, service: Service, endpoints: Mapping[str, Endpoint], others: ASGIApp) -> None:
        self._service, self._others = service, others
        self._of = {path: partial(_constant, endpoint) for path, endpoint in endpoints.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bytes | None:
        """Return the body of a successful response, in JSON, which is yet to be sent; None: it has been sent."""
        of = self._of.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if of is None:
            await self._others(scope, receive, send)
            return None
        try:
            return await self._service.answer(of, scope, receive)
        except ClientDisconnect:
            await Response(status_code=GONE)(scope, receive, send)
            return None


def _constant(endpoint: Endpoint, content: bytes) -> Endpoint:
    return endpoint


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

    own = Pages(service)
    plain = {"/health": own.health, "/info": own.info, "/metrics": own.metrics, "/openapi.json": openapi}
    plain |= {"/models/{name}/health": own.health, "/models/{name}/info": own.info}
    plain |= {"/v1/models": own.list_models, "/v1/models/{name}": own.list_models}
    endpoints = (*ENDPOINTS, *PIPELINES.values())
    routes = [Route(path, handler, methods=["GET"]) for path, handler in plain.items()]
    # these answer other methods than POST with 405: see `Application`
    routes += [Route(endpoint.path, partial(service.handle, endpoint), methods=["POST"]) for endpoint in endpoints]
    routes += [Route(path, service.ask, methods=["POST"]) for path in DISPATCHED]
    router = Router([*routes, *pages], redirect_slashes=False, lifespan=lifespan)
    app = Application(service, {endpoint.path: endpoint for endpoint in endpoints}, router)
    paths = [route.path for route in (*routes, *pages) if isinstance(route, Route)]
    return Guard(
        app, keys=keys or Keys(), hosts=hosts or (ANY,), meter=service.meter, routes=paths, public=(*OPEN, *public)
    )
