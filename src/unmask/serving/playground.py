"""The playground of the server: a page to try models in a browser, and the routes that only it needs.

Input: the service with its models. Output: routes for `create_app`.

- `GET /`: the page, and `GET /playground/FILE` what it consists of (serving/page): plain HTML, CSS and JavaScript, from
  this package alone. Its policy, see `Guard`, forbids the browser to load anything from elsewhere.
- `GET /playground/models`: the models, and which views of the page each has.
- `POST /playground/attention` `{inputs, model?}`: what each head attends to (inference/influence.py).
- `POST /playground/influence` `{inputs, model?}`: how words change each other's vectors (inference/influence.py).

Everything else that the page shows comes from the server's other routes. Like these, both are computed by the model's
batcher, within the server's limits.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from unmask.data.batches.batch import Sample, total_length
from unmask.data.labelled.tagged_sentence import split_text
from unmask.families import family_of
from unmask.inference.influence import attention_obstacle, frame_influence, read_attention
from unmask.inference.pooling import Token, frame_tokens
from unmask.metrics.token_classification import split_tag
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import invalid, json_response, too_large
from unmask.serving.endpoints import INPUTS, Endpoint
from unmask.serving.served import Served
from unmask.support.messages import argument
from unmask.tasks.routes import Request

if TYPE_CHECKING:
    from unmask.serving.service import Service

PAGE = resources.files("unmask.serving") / "page"
MAX_WEIGHTS = 1_500_000
"""Maximum number of attention weights in a response: for 12 layers of 12 heads, those of 102 tokens."""
MAX_WORDS = 128
"""Maximum number of words whose influence is measured: the text is read once without each."""


class AttentionRequest(Request):
    """A text whose attention is wanted, or a pair `[text, text]`."""

    inputs: str | list[str]


class AttentionResponse(msgspec.Struct):
    """What each head attends to.

    Attributes:
        tokens: the tokens that the model reads, with offsets in code points.
        weights: by layer, head, token that attends and token that is attended to; rounded to 4 digits.
    """

    tokens: list[Token]
    weights: list[list[list[list[float]]]]


class InfluenceRequest(Request):
    """A text whose words' influence on each other is wanted."""

    inputs: str


class InfluenceResponse(msgspec.Struct):
    """How much the vector of each word changes when each other word is left out, in the last layer.

    Attributes:
        words: start and end of each word, in code points.
        change: 1 - cosine, by the word whose vector changes and the word that is left out.
    """

    words: list[tuple[int, int]]
    change: list[list[float]]


class ModelViews(msgspec.Struct):
    """A model as the page shows it.

    Attributes:
        name: its name.
        family, size: of its encoder, such as "bert" and "4 layers, width 256, 4 heads".
        views: ids of the views of the page that it has.
        pairs: whether it classifies pairs of texts; None: either, or unknown.
        history: maximum number of earlier turns that it reads; None: it is no model of dialogues.
        passages: whether it reads several passages.
        explains: whether what it predicts is explained.
        labels: those that a classifier of texts chooses among.
        types: those of the entities that it finds.
        several: whether it gives a text any number of them.
        threshold: the probability above which a label is predicted, or one for each label; of a classifier that gives
            one label, by what probabilities are divided before they are compared; None: the most probable label.
    """

    name: str
    family: str
    size: str
    views: list[str]
    pairs: bool | None = None
    history: int | None = None
    passages: bool = False
    explains: bool = False
    labels: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    several: bool = False
    threshold: float | tuple[float, ...] | None = None


def attention_job(served: Served, request: AttentionRequest) -> ComputeJob:
    """Return the job of `/playground/attention`.

    Raises:
        Refusal: the model has no attention, or there are more than two texts or than `MAX_WEIGHTS` numbers.
    """
    encoder = served.model.encoder
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    _check(served, texts, most=2)
    if why := attention_obstacle(encoder):
        raise invalid(f"{argument('model')}: {why}")
    sample, tokens = frame_tokens(served.tokenizer, texts, served.readable)
    per_pair = encoder.settings.layers * encoder.settings.heads
    if len(tokens) ** 2 * per_pair > MAX_WEIGHTS:
        most = int((MAX_WEIGHTS / per_pair) ** 0.5)
        raise too_large(
            f"{INPUTS}: the attention of at most {most} tokens is shown; shorten the text, which has {len(tokens)}"
        )

    def compute(samples: Sequence[Sample]) -> list[np.ndarray]:
        return [read_attention(encoder, framed) for framed in samples]

    def read(rows: list[np.ndarray]) -> AttentionResponse:
        return AttentionResponse(tokens, np.round(rows[0].astype(np.float64), 4).tolist())

    return ComputeJob(compute, [sample], read)


def influence_job(served: Served, request: InfluenceRequest) -> ComputeJob:
    """Return the job of `/playground/influence`.

    Raises:
        Refusal: the text has more than `MAX_WORDS` words, or too many tokens with each word left out.
    """
    _check(served, [request.inputs], most=1)
    if (count := len(split_text(request.inputs).starts)) > MAX_WORDS:
        raise too_large(
            f"{INPUTS}: the influence of at most {MAX_WORDS} words is measured; shorten the text, which has {count}"
        )
    samples, measure = frame_influence(served.tokenizer, request.inputs, served.readable)
    if total_length(samples) > served.limits.request_tokens:
        raise too_large(f"{INPUTS}: the text is too long to be read once without each word; shorten it")

    def read(rows: list[np.ndarray]) -> InfluenceResponse:
        influence = measure(rows)
        return InfluenceResponse(influence.words, np.round(influence.change.astype(np.float64), 7).tolist())

    return ComputeJob((served.model.encoder.num_layers,), samples, read)


def _check(served: Served, texts: Sequence[str], *, most: int) -> None:
    if not 1 <= len(texts) <= most or not all(map(str.strip, texts)):
        raise invalid(f"{INPUTS}: a text is empty, or there are too many")
    if any(len(text) > served.limits.characters for text in texts):
        raise too_large(f"{INPUTS}: a text has more than {served.limits.characters:,} characters; shorten it")


ENDPOINTS = (
    Endpoint(
        "/playground/attention",
        "Return what each attention head attends to.",
        AttentionRequest,
        AttentionResponse,
        attention_job,
        f"{INPUTS}: the text has characters that cannot be encoded, or more tokens than the model reads; shorten it",
        {"inputs": "The cat sat on the mat."},
    ),
    Endpoint(
        "/playground/influence",
        "Return how much words change each other's vectors.",
        InfluenceRequest,
        InfluenceResponse,
        influence_job,
        f"{INPUTS}: the text has fewer than two words, or more tokens than the model reads",
        {"inputs": "The cat sat on the mat."},
    ),
)


def playground_routes(service: Service) -> list[Route]:
    """Return the routes of the playground; see the module."""

    async def models(request: HttpRequest) -> Response:
        return json_response({"models": [describe(served) for served in service.models.values()]})

    computed = [Route(endpoint.path, partial(service.handle, endpoint), methods=["POST"]) for endpoint in ENDPOINTS]
    return [
        *(Route(path, _sender(name)) for path, name in _files().items()),
        Route("/playground/models", models),
        *computed,
    ]


def public_paths() -> list[str]:
    """Return the paths of the page, which contain nothing of the models, so that they need no key."""
    return list(_files())


def describe(served: Served) -> ModelViews:
    """Return a model as the page shows it."""
    encoder, task = served.model.encoder, served.model.task
    settings = encoder.settings
    if settings is None:
        named = "static", f"{encoder.vocabulary:,} tokens of width {encoder.width}"
    else:
        named = family_of(settings).kind, settings.shape
    views = ["fill"] if served.has("/fill") else []
    views += [served.route.view] if served.route is not None and served.route.view else []
    labels = served.model.labels if served.has("/predict") else ()
    views += ["search"] if served.has("/rerank") else []
    views += ["similarity"] if served.compares else []
    views += ["audit", "suggest"] if labels else []
    views += [] if attention_obstacle(encoder) else ["attention"]
    views += ["compare"] if served.has("/playground/influence") else []
    return ModelViews(
        *(served.name, *named, views),
        pairs=None if task is None else task.pairs,
        explains=served.has("/explain"),
        labels=labels,
        types=_types(served.model.labels) if served.has("/tag") else (),
        **({} if task is None else task.controls),
    )


def _types(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the types of the entities that tags stand for, each once, in order."""
    return tuple(dict.fromkeys(kind for role, kind in map(split_tag, tags) if role != "O"))


def _files() -> dict[str, str]:
    """Return the name of each file of the page by its path."""
    names = sorted(file.name for file in PAGE.iterdir() if file.name.endswith((".html", ".css", ".js", ".svg")))
    return {"/" if name == "index.html" else f"/playground/{name}": name for name in names}


def _sender(name: str) -> Callable[[HttpRequest], Coroutine[Any, Any, Response]]:
    """Return a handler that sends a file of the page."""
    content = (PAGE / name).read_bytes()
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]

    async def send(request: HttpRequest) -> Response:
        return Response(content, media_type=kind)

    return send
