"""The routes that compute: for each its request, its response, and the job between them.

The table `ENDPOINTS` is what the application serves, beside those of pipelines.py; the OpenAPI description (app.py)
is made of it, and of the types of the requests and responses.

Those about tokens are `/tokenize`, `/decode` and `/embed_all` of Text Embeddings Inference, and `/features`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, cast

import msgspec
import numpy as np

from unmask.data.batches.batch import total_length
from unmask.data.batches.frame import Frame
from unmask.inference.explanation import Explainer
from unmask.inference.features import frame_words
from unmask.nn.encoders.downstream import resolve_layers
from unmask.serving import rerank, types
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import invalid, main_field, too_large, too_long
from unmask.serving.served import REFUSED, Served
from unmask.serving.types import (
    DecodeRequest,
    EmbedAllRequest,
    FeaturesRequest,
    SimpleToken,
    TextFeatures,
    TokenizeRequest,
)
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument
from unmask.tasks import TASKS
from unmask.tasks.explained import Explanation
from unmask.tasks.routes import Request, Route, Truncation
from unmask.tasks.rows import as_rows

_TEXT = "a text has characters that cannot be encoded"
INPUTS = argument("inputs")
"""The field of the texts of a request, in messages."""


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
        of: the route that a model must have; "": this one.
    """

    path: str
    summary: str
    request: type[Request]
    response: Any
    job: Callable[[Served, Any], ComputeJob]
    needs: str
    example: dict[str, Any]
    of: str = ""

    @property
    def ability(self) -> str:
        """The route that a model must have."""
        return self.of or self.path

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes its requests."""
        return msgspec.json.Decoder(self.request)


def explain(served: Served, request: types.ExplainRequest) -> ComputeJob:
    """Return the job of `/explain`; it reads the explanations of what is predicted of a text, by occlusion.

    Raises:
        Refusal: the text is empty or too long, or there are too many words or logits without each of them.
        UserError: the task or the encoder cannot be explained on it.
    """
    task, labels, limits = served.predictor.task, served.predictor.labels, served.limits
    texts = served.texts(request, request.inputs)
    framed = task.frame(served.tokenizer, task.from_texts(*([text] for text in texts)), labels, gold=False)
    if any(framed.cut):
        raise invalid(too_long(request, f"{task.length} tokens"))
    explainer = Explainer(served.model, task, served.predictor.backend)
    words = [explainer.words(framed, number) for number in range(len(framed.samples))]
    if (count := sum(len(of.words) for of in words)) > limits.words:
        reached = counted(count, "word")
        raise too_large(f"{main_field(request)}: {reached}, more than {limits.words} that can be explained")
    occluded = [explainer.occluded(*pair) for pair in zip(framed.samples, words, strict=True)]
    targets = sum(len(of) * max(map(len, of[0].positions.values()), default=1) for of in occluded)
    if targets * len(labels) > limits.logits:
        raise too_large(f"{main_field(request)}: more than {limits.logits:,} scores; shorten the text")
    samples = [sample for of in occluded for sample in of]
    if total_length(samples) > limits.request_tokens:
        raise too_large(f"{main_field(request)}: the text is too long to be read once without each word; shorten it")
    ends = np.cumsum([0, *map(len, occluded)]).tolist()

    def read(rows: list[np.ndarray]) -> list[Explanation]:
        parts = zip(framed.samples, words, pairwise(ends), strict=True)
        return [
            explanation
            for sample, of, (start, end) in parts
            for explanation in explainer.read_occlusion(sample, of, rows[start:end])
        ]

    return ComputeJob(task.part, samples, read)


def _embed(served: Served, request: types.EmbedRequest) -> ComputeJob:
    job = served.embed(request)
    return replace(job, read=lambda rows: job.read(rows).tolist())


def _openai(served: Served, request: types.OpenAIRequest) -> ComputeJob:
    """Return the job of `/v1/embeddings`; texts that are too long are refused, as by OpenAI."""
    ids = served.encode(request, request.input, REFUSED)
    job = served.embed_ids(request, ids, REFUSED, normalize=True, dimensions=request.dimensions)
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


def tokenize(served: Served, request: TokenizeRequest) -> ComputeJob:
    """Return the job of `/tokenize`, for which nothing is computed; it reads the tokens of each text.

    Raises:
        Refusal: there are too many texts, tokens or characters, or none.
    """
    prompt = served.pooling.prompt_of(request.prompt_name)
    texts = [prompt + text for text in served.texts(request, request.inputs)]
    tokens = [_tokens(served, text, special=request.add_special_tokens) for text in texts]
    if sum(map(len, tokens)) > served.limits.request_tokens:
        raise too_large(
            f"{argument('inputs')}: more than {served.limits.request_tokens:,} tokens; send several requests"
        )
    return _without_computing(tokens)


def decode(served: Served, request: DecodeRequest) -> ComputeJob:
    """Return the job of `/decode`, for which nothing is computed; it reads the text of each list of ids.

    Raises:
        Refusal: there are too many ids or none, or the model has no such token.
    """
    lists = served.given_ids(request, request.ids)
    if not lists:
        raise invalid(f"{argument('ids')}: there are no token ids")
    if sum(map(len, lists)) > served.limits.request_tokens:
        raise too_large(f"{argument('ids')}: more than {served.limits.request_tokens:,} tokens; send several requests")
    tokenizer = served.tokenizer
    skipped = {token.content for token in tokenizer.added_tokens if token.special and request.skip_special_tokens}
    return _without_computing(
        [tokenizer.decode(id for id in ids if tokenizer.token(id) not in skipped) for ids in lists]
    )


def embed_all(served: Served, request: EmbedAllRequest) -> ComputeJob:
    """Return the job of `/embed_all`; it reads the vectors of the tokens of each text, special ones included.

    Those of a model of late interaction are the ones that it compares.

    Raises:
        Refusal: a text is empty or too long, or there are too many texts, tokens or numbers, or none; or a model of
            late interaction is given token ids.
    """
    truncation, encoder, tokens = Truncation.of(request), served.model.encoder, served.token_vectors
    if tokens is not None:
        if served.given_ids(request, request.inputs) is not None:
            raise invalid(f"{argument('inputs')}: this model adds tokens to queries and documents; pass texts")
        texts = served.texts(request, cast("str | list[str]", request.inputs), truncation)
        name = request.prompt_name or "document"
        samples, width = served.frame_tokens(request, tokens, texts, name, truncation), tokens.width
    else:
        ids = served.encode(request, request.inputs, truncation, prompt_name=request.prompt_name)
        samples, width = served.framed(request, ids, truncation), encoder.width
    if total_length(samples) * width > served.limits.values:
        raise too_large(f"{argument('inputs')}: more than {served.limits.values:,} numbers; send several requests")
    if tokens is not None:
        return ComputeJob(served.predictor.task.part, samples, lambda rows: [vectors.tolist() for vectors in rows])
    return ComputeJob((encoder.num_layers,), samples, lambda rows: [states[:, 0].tolist() for states in rows])


def features(served: Served, request: FeaturesRequest) -> ComputeJob:
    """Return the job of `/features`; it reads the hidden states of each text."""
    encoder = served.model.encoder
    texts = served.texts(request, request.inputs, Truncation(request.truncate))
    layers = resolve_layers(request.layers, encoder.num_layers)
    words = frame_words(served.tokenizer, as_rows(texts), served.readable)
    if words.cut and not request.truncate:
        raise invalid(too_long(request, f"{served.readable} tokens"))
    if int(words.offsets[-1]) * len(layers) * encoder.width > served.limits.values:
        inputs, wanted = argument("inputs"), argument("layers")
        raise too_large(f"more than {served.limits.values:,} numbers; ask for fewer {inputs} or {wanted}")
    samples, offsets = served.checked(request, words.samples), words.offsets
    ids = np.split(words.word_ids, offsets[1:-1])

    def read(rows: list[np.ndarray]) -> list[TextFeatures]:
        return [
            TextFeatures(word.tolist(), states.swapaxes(0, 1).tolist()) for word, states in zip(ids, rows, strict=True)
        ]

    return ComputeJob(layers, samples, read)


def _without_computing(response: Any) -> ComputeJob:
    return ComputeJob((), [], lambda rows: response)


def _tokens(served: Served, text: str, *, special: bool) -> list[SimpleToken]:
    """Return the tokens of a text; `special`: with those that are added to it."""
    ids, spans = served.tokenizer.encode_offsets(text)
    ids = np.where(ids < served.tokenizer.size, ids, served.tokenizer.unk)  # only this process knows those of others
    ends = [0, *accumulate(len(character.encode("utf8", "replace")) for character in text)]  # of characters, in bytes
    tokens = [
        SimpleToken(int(id), text[start:stop], False, ends[start], ends[stop])
        for id, (start, stop) in zip(ids, spans, strict=True)
    ]
    if not special:
        return tokens
    framed = replace(Frame.of(served.tokenizer), spell=lambda spelled: spelled)
    places = framed.spread(np.arange(len(ids))).tolist()
    around = [_special(served, id) for id in framed.wrap(ids).ids.tolist()]
    return [tokens[place] if place >= 0 else other for place, other in zip(places, around, strict=True)]


def _special(served: Served, id: int) -> SimpleToken:
    return SimpleToken(id, served.tokenizer.token(id), True, None, None)


ENDPOINTS = (
    Endpoint(
        "/embed",
        "Return the vector of each text.",
        types.EmbedRequest,
        types.EmbedResponse,
        _embed,
        f"{INPUTS}: {_TEXT}",
        {"inputs": "What is deep learning?"},
    ),
    Endpoint(
        "/embed_all",
        "Return the vectors of the tokens of each text.",
        types.EmbedAllRequest,
        types.EmbedAllResponse,
        embed_all,
        f"{INPUTS}: {_TEXT}",
        {"inputs": "What is deep learning?"},
    ),
    Endpoint(
        "/tokenize",
        "Return the tokens of each text.",
        types.TokenizeRequest,
        list[list[types.SimpleToken]],
        tokenize,
        f"{INPUTS}: {_TEXT}",
        {"inputs": "What is deep learning?"},
    ),
    Endpoint(
        "/decode",
        "Return the texts of token ids.",
        types.DecodeRequest,
        list[str],
        decode,
        f"{argument('ids')}: there is no such token",
        {"ids": [5, 6, 7]},
    ),
    Endpoint(
        "/v1/embeddings",
        "Return the vector of each text, as OpenAI's API.",
        types.OpenAIRequest,
        types.OpenAIResponse,
        _openai,
        f"{argument('input')}: {_TEXT}",
        {"input": ["What is deep learning?"]},
        of="/embed",
    ),
    Endpoint(
        "/similarity",
        "Return the cosines of the vector of a text with those of others.",
        rerank.SimilarityRequest,
        list[float],
        rerank.similarity,
        f"{INPUTS}: {_TEXT}",
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
            of="/rerank",
        )
        for version in ("v1", "v2")
    ),
    *map(_of_task, task_routes()),
    Endpoint(
        "/explain",
        "Return what each word contributes to what the model predicts.",
        types.ExplainRequest,
        types.ExplainResponse,
        explain,
        f"{INPUTS}: {_TEXT}; the model reads pairs of texts, and this is a single one, or the reverse; or it reads "
        "the text in several windows, or tags words without reading masks, which is not explained",
        {"inputs": "A wonderful film."},
    ),
    Endpoint(
        "/fill",
        "Return the most probable tokens at each mask.",
        types.FillRequest,
        types.FillResponse,
        Served.fill,
        f"{INPUTS}: a text has no mask, or more tokens than the model reads; write [MASK] where a word is missing; or "
        "a target is not one token of the vocabulary",
        {"inputs": "Paris is the [MASK] of France."},
    ),
    Endpoint(
        "/features",
        "Return the hidden states of each token.",
        types.FeaturesRequest,
        types.FeaturesResponse,
        features,
        f"{argument('layers')}: the model has no such layer",
        {"inputs": "A text.", "layers": [-1]},
    ),
)
"""All routes that compute."""
