"""The OpenAPI description of a server: its routes, made of the endpoints and the types of their requests and responses.

A route without a name of its own (`pipelines.choose`) is described by the types of all that it may ask for.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.pipelines import DISPATCHED, OTHERS, PIPELINES
from unmask.serving.refusals import CohereFailure, Failure, OpenAIFailure, failure_at
from unmask.serving.types import OpenAIModel, OpenAIModels, Server
from unmask.support import __version__

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
