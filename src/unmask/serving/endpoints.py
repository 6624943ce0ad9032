"""The routes that compute: for each its request, its response, and the job between them.

The table `ENDPOINTS` is what the application serves; the OpenAPI description is made of it, and of the types of the
requests and responses.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np

from unmask.data.batches.batch import total_length
from unmask.serving import rerank, types
from unmask.serving.batcher import ComputeJob
from unmask.serving.served import Served
from unmask.serving.types import Failure, Server, invalid, too_large
from unmask.support import __version__
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks import TASKS
from unmask.tasks.routes import Request, Route

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
    kinds = [kind for endpoint in ENDPOINTS for kind in (endpoint.request, endpoint.response)]
    schemas, components = msgspec.json.schema_components([*kinds, Failure, Server], ref_template=_REF)
    pairs = zip(schemas[:-2:2], schemas[1:-2:2], strict=True)
    paths = {
        endpoint.path: {"post": _operation(endpoint, *pair)} for endpoint, pair in zip(ENDPOINTS, pairs, strict=True)
    }
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
        "responses": answers | {status: {"description": REFUSALS[status]} for status in (*more, "401", "403")},
    }


@dataclass(frozen=True)
class Endpoint:
    """A route that computes.

    Attributes:
        path: the route.
        summary: what it does.
        request: type of its request.
        response: type of its response.
        job: converts a request to a job of a model.
        needs: what a request or a model lacks if it is refused for another reason than a limit; names the fields.
        example: a request, for the description.
    """

    path: str
    summary: str
    request: type[Request]
    response: Any
    job: Callable[[Served, Any], ComputeJob]
    needs: str
    example: dict[str, Any]

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes its requests."""
        return msgspec.json.Decoder(self.request)


def _embed(served: Served, request: types.EmbedRequest) -> ComputeJob:
    job = served.embed(request)
    return replace(job, read=lambda rows: job.read(rows).tolist())


def _openai(served: Served, request: types.OpenAIRequest) -> ComputeJob:
    """Return the job of `/v1/embeddings`; texts that are too long are refused, as by OpenAI."""
    inputs = request.input
    ids = _token_ids(served, inputs)
    if ids is None:
        texts = cast("str | list[str]", inputs)
        job = served.embed_texts(request, texts, normalize=True, dimensions=request.dimensions, truncate=False)
    else:
        job = served.embed_ids(request, ids, normalize=True, dimensions=request.dimensions, truncate=False)
    tokens = total_length(job.samples)

    def read(rows: list[np.ndarray]) -> types.OpenAIResponse:
        vectors = job.read(rows).astype("<f4")
        base64_wanted = request.encoding_format == "base64"
        data = [
            types.OpenAIEmbedding(
                index, base64.b64encode(vector.tobytes()).decode() if base64_wanted else vector.tolist()
            )
            for index, vector in enumerate(vectors)
        ]
        return types.OpenAIResponse(data, served.name, types.Usage(tokens, tokens))

    return replace(job, read=read)


def _token_ids(served: Served, inputs: str | Sequence[str | int | list[int]]) -> list[np.ndarray] | None:
    """Return the token ids of a request, a list for each text; None if it has texts.

    Raises:
        Refusal: texts and ids are mixed, there are too many or none, or the model has no such token.
    """
    if isinstance(inputs, str) or (inputs and all(isinstance(item, str) for item in inputs)):
        return None
    lists: list[Any] = [inputs] if all(isinstance(ids, int) for ids in inputs) else list(inputs)
    if not inputs or not all(isinstance(ids, list) and ids for ids in lists):
        choices = "a text, a list of texts, a list of token ids, or a list of such lists, none empty"
        raise invalid(f"{argument('input')}: expected {choices}")
    if len(lists) > served.limits.inputs:
        raise too_large(f"{argument('input')}: more than {served.limits.inputs} inputs; send several requests")
    if not all(0 <= id < served.tokenizer.size for ids in lists for id in ids):
        raise invalid(f"{argument('input')}: token ids of this model are from 0 to {served.tokenizer.size - 1}")
    return [np.array(text_ids, np.int64) for text_ids in lists]


def task_routes() -> list[Route]:
    """Return the routes of all tasks, also those of installed packages, in the order of the tasks.

    Raises:
        UserError: two tasks have different routes with the same path.
    """
    routes: dict[str, Route] = {}
    for name, task in TASKS.items():
        if isinstance(task.route, Route) and routes.setdefault(task.route.path, task.route) != task.route:
            raise UserError(
                f"the task {name} has a route {task.route.path} that differs from that of other tasks",
                remedy="give it another path",
            )
    return list(routes.values())


def _of_task(route: Route) -> Endpoint:
    return Endpoint(
        *(route.path, route.summary, route.request, route.response, Served.ask, route.needs, dict(route.example))
    )


_TEXT = "a text has characters that cannot be encoded"
_INPUTS = argument("inputs")
ENDPOINTS = (
    Endpoint(
        "/embed",
        "Return the vector of each text.",
        types.EmbedRequest,
        types.EmbedResponse,
        _embed,
        f"{_INPUTS}: {_TEXT}",
        {"inputs": "What is deep learning?"},
    ),
    Endpoint(
        "/v1/embeddings",
        "Return the vector of each text, as OpenAI's API.",
        types.OpenAIRequest,
        types.OpenAIResponse,
        _openai,
        f"{argument('input')}: {_TEXT}",
        {"input": ["What is deep learning?"]},
    ),
    Endpoint(
        "/similarity",
        "Return the cosines of the vector of a text with those of others.",
        rerank.SimilarityRequest,
        list[float],
        rerank.similarity,
        f"{_INPUTS}: {_TEXT}",
        {"inputs": {"source_sentence": "What is deep learning?", "sentences": ["Learning by deep networks."]}},
    ),
    Endpoint(
        "/rerank",
        "Order texts by how well they answer a query.",
        rerank.RerankRequest,
        list[rerank.Rank],
        rerank.rerank,
        f"{argument('query')} or {argument('texts')}: {_TEXT}",
        {"query": "What is deep learning?", "texts": ["Learning by deep networks.", "A sea."], "truncate": True},
    ),
    *(
        Endpoint(
            f"/{version}/rerank",
            f"Order documents by how well they answer a query, as Cohere's API, {version}.",
            rerank.CohereRequest,
            rerank.CohereResponse,
            rerank.cohere,
            f"{argument('query')} or {argument('documents')}: {_TEXT}",
            {"query": "What is deep learning?", "documents": ["Learning by deep networks.", "A sea."], "top_n": 1},
        )
        for version in ("v1", "v2")
    ),
    *map(_of_task, task_routes()),
    Endpoint(
        "/explain",
        "Return what each word contributes to what the model predicts.",
        types.ExplainRequest,
        types.ExplainResponse,
        Served.explain,
        f"{_INPUTS}: {_TEXT}; the model reads pairs of texts, and this is a single one, or the reverse; or it reads "
        "the text in several windows, or tags words without reading masks, which is not explained",
        {"inputs": "A wonderful film."},
    ),
    Endpoint(
        "/fill",
        "Return the most probable tokens at each mask.",
        types.FillRequest,
        types.FillResponse,
        Served.fill,
        f"{_INPUTS}: a text has no mask, or more tokens than the model reads; write [MASK] where a word is missing",
        {"inputs": "Paris is the [MASK] of France."},
    ),
    Endpoint(
        "/features",
        "Return the hidden states of each token.",
        types.FeaturesRequest,
        types.FeaturesResponse,
        Served.features,
        f"{argument('layers')}: the model has no such layer",
        {"inputs": "A text.", "layers": [-1]},
    ),
)
"""All routes that compute."""
