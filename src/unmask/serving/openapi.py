"""The OpenAPI description of a server, made of the types of its requests and responses."""

from __future__ import annotations

from typing import Any

import msgspec

from unmask.serving.endpoints import ENDPOINTS, Endpoint
from unmask.serving.types import Failure, Server
from unmask.support.version import __version__

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


def describe() -> dict[str, Any]:
    """Return the description."""
    kinds = [kind for one in ENDPOINTS for kind in (one.request, one.response)]
    schemas, components = msgspec.json.schema_components([*kinds, Failure, Server], ref_template=_REF)
    pairs = zip(schemas[:-2:2], schemas[1:-2:2], strict=True)
    paths = {one.path: {"post": _operation(one, *pair)} for one, pair in zip(ENDPOINTS, pairs, strict=True)}
    failure, info = schemas[-2:]
    for path in paths.values():
        for status in REFUSALS:
            path["post"]["responses"][status]["content"] = {"application/json": {"schema": failure}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "unmask", "version": __version__},
        "paths": {
            **paths,
            "/health": {"get": _get("Return whether the server accepts requests.", {}, "503")},
            "/info": {"get": _get("Describe the models and limits.", {"application/json": {"schema": info}})},
            "/metrics": {"get": _get("Return metrics for Prometheus.", {"text/plain": {"schema": {"type": "string"}}})},
            "/openapi.json": {"get": _get("Return this description.", {"application/json": {"schema": {}}})},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint, request: Any, response: Any) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": "OK", "content": {"application/json": {"schema": response}}}}
    answers |= {status: {"description": text} for status, text in REFUSALS.items()}
    return {
        "summary": endpoint.summary,
        "operationId": endpoint.path.strip("/").replace("/", "_"),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": request, "example": endpoint.example}},
        },
        "responses": answers,
    }


def _get(summary: str, content: dict[str, Any], *more: str) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": "OK", **({"content": content} if content else {})}}
    return {
        "summary": summary,
        "responses": answers | {one: {"description": REFUSALS[one]} for one in (*more, "401", "403")},
    }
