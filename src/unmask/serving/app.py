"""The application: the routes of a server, and what those that do not compute return.

Routes that compute are answered by `Service`, past the router: see `Application`.

The OpenAPI description is made of the endpoints and the types of their requests and responses. A route without a name
of its own (`pipelines.choose`) is described by the types of all that it may ask for.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from unmask.serving.bodies import CohereFailure, Failure, OpenAIFailure, failure_at, json_response, unhealthy
from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.guard import ANY, LOOPBACK, Guard, Keys
from unmask.serving.metrics import CONTENT_TYPE
from unmask.serving.pipelines import DISPATCHED, OTHERS, PIPELINES
from unmask.serving.service import GONE, Service
from unmask.serving.types import OpenAIModel, OpenAIModels, Server
from unmask.support import __version__

OPEN = ("/health",)
"""Routes that need no key."""
REFUSALS = {
    "400": "The body is not valid JSON.",
    "401": "The API key is missing or wrong.",
    "403": "The host is not one of the server's names.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body, the number of inputs, or the number of tokens exceeds a limit.",
    "415": "The body is not application/json.",
    "422": "The request is not as described, or a text is too long.",
    "424": "Computing failed.",
    "429": "Too many requests; Retry-After is the number of seconds to wait.",
    "503": "The server is stopping, or computing took too long.",
}
_REF = "#/components/schemas/{name}"
_FAILURES = (Failure, OpenAIFailure, CohereFailure)
_READ = (Server, OpenAIModels, OpenAIModel)
"""Responses of routes that read."""


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


def describe() -> dict[str, Any]:
    """Return the description."""
    endpoints = (*ENDPOINTS, *PIPELINES.values())
    kinds = [kind for endpoint in endpoints for kind in (endpoint.request, endpoint.response)]
    schemas, components = msgspec.json.schema_components([*kinds, *_FAILURES, *_READ], ref_template=_REF)
    refused = dict(zip(_FAILURES, schemas[len(kinds) :], strict=False))
    info, models, model = schemas[-len(_READ) :]
    pairs = zip(endpoints, zip(schemas[: len(kinds) : 2], schemas[1 : len(kinds) : 2], strict=True), strict=True)
    paths = {
        endpoint.path: {"post": _operation(endpoint, *pair, refused[failure_at(endpoint.path)])}
        for endpoint, pair in pairs
    }
    reading: list[Any] = [
        ("/health", "Return whether the server accepts requests.", None, "503"),
        ("/info", "Describe the models and limits.", info),
        ("/models/{name}/health", "Return whether the server accepts requests.", None, "404", "503"),
        ("/models/{name}/info", "Describe a model and limits.", info, "404"),
        ("/v1/models", "List the models, as OpenAI's API.", models),
        ("/v1/models/{name}", "Describe a model, as OpenAI's API.", model, "404"),
        ("/openapi.json", "Return this description.", {}),
    ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "unmask", "version": __version__},
        "paths": {
            **paths,
            **{path: _of_models(path, paths) for path in DISPATCHED},
            **{path: _get(path, *rest) for path, *rest in reading},
            "/metrics": _get("/metrics", "Return metrics for Prometheus.", {"type": "string"}, media="text/plain"),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint, request: Any, response: Any, refused: Any) -> dict[str, Any]:
    return {
        "summary": endpoint.summary,
        "operationId": endpoint.path.strip("/").replace("/", "_"),
        "requestBody": {"required": True, "content": _json(request, example=endpoint.example)},
        "responses": _answers(response, refused),
    }


def _of_models(path: str, paths: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a route that asks for what one of several others does."""
    operations = [paths[endpoint.path]["post"] for endpoint in (*PIPELINES.values(), *OTHERS)]
    requests = [operation["requestBody"]["content"]["application/json"]["schema"] for operation in operations]
    responses = [operation["responses"]["200"]["content"]["application/json"]["schema"] for operation in operations]
    refused = operations[0]["responses"]["422"]["content"]["application/json"]["schema"]
    return {
        "post": {
            "summary": "Ask what the model is for, as Hugging Face's inference API.",
            "operationId": "_".join(["ask", *re.findall("[a-z]+", path)]),
            "requestBody": {"required": True, "content": _json({"anyOf": requests})},
            "responses": _answers({"anyOf": responses}, refused),
        },
        **_parameters(path),
    }


def _parameters(path: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    described = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"parameters": described} if described else {}


def _get(path: str, summary: str, schema: Any, *more: str, media: str = "application/json") -> dict[str, Any]:
    content = {} if schema is None else {"content": {media: {"schema": schema}}}
    answers: dict[str, Any] = {"200": {"description": "OK", **content}}
    answers |= {status: {"description": REFUSALS[status]} for status in (*more, "401", "403")}
    return {"get": {"summary": summary, "responses": answers}, **_parameters(path)}


def _answers(response: Any, refused: Any) -> dict[str, Any]:
    refusals = {status: {"description": text, "content": _json(refused)} for status, text in REFUSALS.items()}
    return {"200": {"description": "OK", "content": _json(response)}, **refusals}


def _json(schema: Any, **more: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **more}}
