"""The playground of the server: a page to try models in a browser, and the routes that only it needs.

Input: the loaded models by name. Output: routes for the server's application.

- `GET /`: the page, and `GET /playground/FILE` what it consists of (serving/page): plain HTML, CSS and JavaScript, from
  this package alone. Its policy forbids the browser to load anything from elsewhere.
- `GET /playground/models`: the models, and which views of the page each serves.
- `POST /playground/attention` `{model, text, text_b?}`: what each head attends to (inference/attention.py).
- `POST /playground/influence` `{model, text}`: how words change each other's vectors (inference/influence.py).

Everything else that the page shows comes from the server's other routes.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any, NoReturn

import msgspec
import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from unmask.errors import UserError
from unmask.families import family_of
from unmask.inference.attention import has_attention
from unmask.inference.fill import HEADS
from unmask.inference.predictor import Predictor
from unmask.tasks.classification import Classification
from unmask.tasks.extraction import Extraction
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification

PAGE = resources.files("unmask.serving") / "page"
POLICY = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
MAX_BODY = 1 << 18
"""Maximum size of a request in bytes."""
MAX_WEIGHTS = 1_500_000
"""Maximum number of attention weights in an answer: 102 tokens for 12 layers of 12 heads."""
MAX_WORDS = 128
"""Maximum number of words whose influence is measured: the text is read once without each."""
TASKS = {"label": (Classification, Regression), "entities": TokenClassification, "answer": Extraction}
"""Views by the task that they need."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request.

    Attributes:
        text: the text.
        text_b: the second text of a pair; only for attention.
        model: name of the model; may be omitted if a single one is loaded.
    """

    text: str
    text_b: str | None = None
    model: str | None = None


def playground_routes(models: Mapping[str, Predictor]) -> list[BaseRoute]:
    """Return the routes of the playground; see the module.

    Args:
        models: the loaded models by the names that requests and the page use, in the order of the page.
    """
    one_at_a_time = asyncio.Lock()  # a page asks all models at once, which would otherwise compete for the cores

    def computing(compute: Callable[[Predictor, Asked], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                asked = await _read(request)
                predictor = _choose(models, asked.model)
                async with one_at_a_time:
                    return _json(await run_in_threadpool(compute, predictor, asked))
            except UserError as error:
                return _json({"error": {"message": str(error)}}, status=400)

        return answer

    async def list_models(request: Request) -> Response:
        return _json({"models": [describe(name, predictor) for name, predictor in models.items()]})

    return [
        Route("/", _file),
        Route("/playground/models", list_models),
        Route("/playground/attention", computing(attention), methods=["POST"]),
        Route("/playground/influence", computing(influence), methods=["POST"]),
        Route("/playground/{name:str}", _file),
    ]


def describe(name: str, predictor: Predictor) -> dict[str, Any]:
    """Return a model's name, family and size, the ids of the views that it serves, and whether it reads pairs."""
    model = predictor.model
    views = [view for view, task in TASKS.items() if isinstance(model.task, task)]
    if model.task is None and HEADS.keys() & model.heads.keys():
        views.append("fill")
    if has_attention(model.encoder):
        views.append("attention")
    settings = model.encoder.settings
    return {
        "name": name,
        "family": family_of(settings).kind,
        "size": settings.shape,
        "views": [*views, "compare"],
        "pairs": getattr(model.task, "pairs", None),
    }


def attention(predictor: Predictor, asked: Asked) -> dict[str, Any]:
    """Return the tokens of a text, and the attention of each layer and head, rounded to 4 digits.

    Raises:
        UserError: the model has no attention, or there would be more than `MAX_WEIGHTS` numbers.
    """
    found = predictor.attention(asked.text, asked.text_b)
    if found.weights.size > MAX_WEIGHTS:
        layers, heads, tokens, _ = found.weights.shape
        most = int((MAX_WEIGHTS / layers / heads) ** 0.5)
        _refuse(f"the text has {tokens} tokens, but the attention of at most {most} is shown", "shorten it")
    return {"tokens": msgspec.to_builtins(found.tokens), "weights": _rounded(found.weights, 4)}


def influence(predictor: Predictor, asked: Asked) -> dict[str, Any]:
    """Return the spans of the words of a text, and their influence on each other in the last layer.

    Raises:
        UserError: the text has fewer than two words or more than `MAX_WORDS`, or there is a second text.
    """
    if asked.text_b is not None:
        _refuse("influence is measured in a single text", "remove text_b")
    if (count := len(asked.text.split())) > MAX_WORDS:
        _refuse(f"the text has {count} words, but influence is measured for at most {MAX_WORDS}", "shorten it")
    found = predictor.influence(asked.text)
    return {"words": found.words, "change": _rounded(found.change, 7)}


def _rounded(values: np.ndarray, digits: int) -> Any:
    return np.round(values.astype(np.float64), digits).tolist()


def _refuse(message: str, remedy: str) -> NoReturn:
    raise UserError(message, remedy=remedy)


def _choose(models: Mapping[str, Predictor], name: str | None) -> Predictor:
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name is None or name not in models:
        _refuse(f"there is no model '{name}'" if name else "no model is named", f"use one of {', '.join(models)}")
    return models[name]


async def _read(request: Request) -> Asked:
    """Return the body of a request.

    Raises:
        UserError: it is too large, or not what `Asked` describes.
    """
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY:
            _refuse(f"the request has more than {MAX_BODY:,} bytes", "send a shorter text")
    try:
        return msgspec.json.decode(bytes(content), type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"the request is not valid: {error}") from error


async def _file(request: Request) -> Response:
    """Return a file of the page; without a name the page itself."""
    name = request.path_params.get("name", "index.html")
    if name not in {file.name for file in PAGE.iterdir()}:
        return _json({"error": {"message": f"there is no page '{name}'"}}, status=404)
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    return Response((PAGE / name).read_bytes(), media_type=kind, headers=POLICY)


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json", headers=POLICY)
