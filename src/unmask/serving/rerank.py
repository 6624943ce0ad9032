"""The routes that compare a text with others: `/rerank`, `/v1/rerank` and `/v2/rerank`, and `/similarity`.

`/rerank` and `/similarity` are those of Text Embeddings Inference, the others are Cohere's. A cross-encoder reads the
query with each text, and its score is the sigmoid of its logit, as there, whatever the activation of the model; with
`raw_scores` it is the logit. Unlike there, models that make vectors of texts rerank, too: their scores are cosines, or
products if the model states them, as in searches, with the prompts of the model for queries and documents; those of
models of late interaction are their similarities (MaxSim). If a request names no model, cross-encoders come first.

As in Cohere's API, documents that are too long are truncated there, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from unmask.data.batches.batch import total_length
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.tokenizer import Ids
from unmask.families.checkpoints.sentence_modules import DOT
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import invalid, too_long
from unmask.serving.served import TRUNCATED, Served, cut
from unmask.support.choices import PromptName
from unmask.support.messages import argument
from unmask.tasks.routes import Direction, Request, Truncation
from unmask.tasks.rows import cut_longer

SPECIAL = 3
"""Tokens of a document of late interaction beside those of its text: two special ones and the prompt."""


class RerankRequest(Request):
    """A query with texts, of which those that answer it are wanted first.

    Attributes:
        query: the query.
        texts: the texts.
        raw_scores: whether to return logits instead of probabilities; those of vectors are the same in either case.
        return_text: whether the response has the texts.
        truncate: whether texts that are too long are truncated; otherwise they are refused.
        truncation_direction: the end at which they are truncated, "right" or "left".
    """

    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = False
    truncation_direction: Direction = "right"


class Rank(msgspec.Struct, omit_defaults=True):
    """A text by its index in the request, with its score."""

    index: int
    score: float
    text: str | None = None


class CohereDocument(msgspec.Struct):
    """A document as an object, or in a response."""

    text: str


class CohereRequest(Request):
    """A request of Cohere's rerank API, version 1 or 2.

    Attributes:
        query: the query.
        documents: texts, or objects `{"text"}`.
        top_n: number of documents that are returned; None: all.
        return_documents: whether the response has the documents.
        max_tokens_per_doc: number of tokens of a document that are read at most; None: as many as the model reads.
    """

    query: str
    documents: list[str | CohereDocument]
    top_n: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    return_documents: bool | None = False
    max_tokens_per_doc: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class CohereResult(msgspec.Struct, omit_defaults=True):
    """A document by its index in the request, with its score, 0 to 1 (of models of vectors what they compare)."""

    index: int
    relevance_score: float
    document: CohereDocument | None = None


class TokenUsage(msgspec.Struct):
    """Number of tokens that were read, special tokens included."""

    total_tokens: int


class CohereResponse(msgspec.Struct):
    """The documents with the highest scores, in this order."""

    results: list[CohereResult]
    model: str
    usage: TokenUsage


class SimilarityInputs(msgspec.Struct, forbid_unknown_fields=True):
    """A text, and the texts that it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(msgspec.Struct, forbid_unknown_fields=True):
    """How texts are read; see `RerankRequest`.

    Attributes:
        truncate: see there.
        truncation_direction: see there.
        prompt_name: the prompt of the model that all texts begin with, "query" or "document"; None: the default one.
    """

    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: PromptName | None = None


class SimilarityRequest(Request):
    """Texts whose cosines with another text are wanted."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


def rerank(served: Served, request: RerankRequest) -> ComputeJob:
    """Return the job of `/rerank`; it reads the texts in the order of their scores.

    Raises:
        Refusal: there are too many texts or none, or one is empty or too long.
    """
    job = _score(served, request, request.query, request.texts, Truncation.of(request))

    def read(rows: list[np.ndarray]) -> list[Rank]:
        raw = job.read(rows)
        scores = raw if request.raw_scores else _shown(served, raw)
        shown = request.texts if request.return_text else [None] * len(scores)
        return [Rank(index, float(scores[index]), shown[index]) for index in _in_order(raw)]

    return replace(job, read=read)


def cohere(served: Served, request: CohereRequest) -> ComputeJob:
    """Return the job of `/v1/rerank` and `/v2/rerank`; it reads the documents with the highest scores.

    Raises:
        Refusal: there are too many documents or none, or one is empty.
    """
    texts = [document if isinstance(document, str) else document.text for document in request.documents]
    job = _score(served, request, request.query, texts, TRUNCATED, most=request.max_tokens_per_doc)
    tokens = total_length(job.samples)

    def read(rows: list[np.ndarray]) -> CohereResponse:
        raw = job.read(rows)
        scores = _shown(served, raw)
        shown = [CohereDocument(text) if request.return_documents else None for text in texts]
        best = _in_order(raw)[: request.top_n]
        results = [CohereResult(index, float(scores[index]), shown[index]) for index in best]
        return CohereResponse(results, served.name, TokenUsage(tokens))

    return replace(job, read=read)


def similarity(served: Served, request: SimilarityRequest) -> ComputeJob:
    """Return the job of `/similarity`; it reads the cosine of each sentence.

    Raises:
        Refusal: there are too many sentences or none, or a text is empty or too long.
    """
    parameters, inputs = request.parameters or SimilarityParameters(), request.inputs
    names = [parameters.prompt_name] * 2
    job = _compare(served, request, inputs.source_sentence, inputs.sentences, names, Truncation.of(parameters))
    return replace(job, read=lambda rows: job.read(rows).tolist())


def _score(
    served: Served,
    request: Request,
    query: str,
    texts: Sequence[str],
    truncation: Truncation,
    *,
    most: int | None = None,
) -> ComputeJob:
    """Return the job of the scores of texts, of a cross-encoder logits; it reads an array, (texts,).

    Args:
        served: the model.
        request: the request, whose fields refusals name.
        query: the query.
        texts: the texts.
        truncation: what is done with texts that are too long.
        most: maximum number of tokens of a text; None: as many as the model reads.
    """
    task = served.model.task
    if served.token_vectors is not None:
        return _compare_tokens(served, request, query, texts, truncation, most)
    if task is None or not served.reranks:
        names: list[PromptName | None] = ["query", "document"]
        normalize = served.pooling.normalize or served.pooling.similarity != DOT
        return _compare(served, request, query, texts, names, truncation, most=most, normalize=normalize)
    prompts = [""] * (len(texts) + 1)
    question, *others = _encode(served, request, [query, *texts], prompts, truncation)
    others = [cut(ids, most, truncation.left) for ids in others]
    frame = Frame.of(served.tokenizer)
    capacity = frame.capacity(task.length, texts=2)
    if not truncation.wanted and any(len(question) + len(ids) > capacity for ids in others):
        raise invalid(too_long(request, f"{capacity} tokens of a query and a text, besides special ones"))
    samples = []
    for ids in others:
        first, second = cut_longer(len(question), len(ids), capacity)
        samples.append(frame.wrap(cut(question, int(first), truncation.left), cut(ids, int(second), truncation.left)))

    def read(rows: list[np.ndarray]) -> np.ndarray:
        logits: np.ndarray = np.concatenate(rows)[:, 0].astype(np.float64)
        return logits

    return ComputeJob(task.part, served.checked(request, samples), read)


def _shown(served: Served, scores: np.ndarray) -> np.ndarray:
    """Return scores as they are shown, (texts,): of logits the sigmoids, whose order is less exact."""
    return np.exp(-np.logaddexp(0, -scores)) if served.reranks else scores


def _compare(
    served: Served,
    request: Request,
    text: str,
    others: Sequence[str],
    prompt_names: Sequence[PromptName | None],
    truncation: Truncation,
    *,
    most: int | None = None,
    normalize: bool = True,
) -> ComputeJob:
    """Return the job of the products of the vector of a text with those of others, (others,).

    Args:
        served: the model.
        request: the request, whose fields refusals name.
        text: the text.
        others: the texts that it is compared with.
        prompt_names: the prompt of the text, and that of the others.
        truncation: see `_score`.
        most: see `_score`.
        normalize: whether vectors are divided by their norms, so that the products are cosines.
    """
    prompt, prompt_of_others = map(served.prompt_of, prompt_names)
    prompts = [prompt, *[prompt_of_others] * len(others)]
    first, *rest = _encode(served, request, [text, *others], prompts, truncation)
    ids = [first, *(cut(text_ids, most, truncation.left) for text_ids in rest)]
    texts = [text, *others]
    job = served.embed_ids(request, ids, truncation, normalize=normalize, dimensions=None, texts=texts)

    def read(rows: list[np.ndarray]) -> np.ndarray:
        vectors = job.read(rows)  # (1 + others, width)
        return vectors[1:] @ vectors[0]

    return replace(job, read=read)


def _compare_tokens(
    served: Served, request: Request, query: str, texts: Sequence[str], truncation: Truncation, most: int | None
) -> ComputeJob:
    """Return the job of the late interaction of a query with texts, (texts,); the arguments are those of `_score`."""
    task = served.predictor.task
    queries = documents = task.vectors.tokens
    if most is not None:
        documents = msgspec.structs.replace(task, length=min(task.length, most + SPECIAL)).vectors.tokens
    assert queries is not None and documents is not None
    query, *others = _texts(served, request, [query, *texts], truncation)
    samples = [
        *served.frame_tokens(request, queries, [query], "query", truncation),
        *served.frame_tokens(request, documents, others, "document", truncation),
    ]

    def read(rows: list[np.ndarray]) -> np.ndarray:
        scores: np.ndarray = queries.comparison(rows)(np.zeros(1, np.int64), np.arange(1, len(rows)))
        return scores[0]

    return ComputeJob(task.part, served.checked(request, samples), read)


def _texts(served: Served, request: Request, texts: Sequence[str], truncation: Truncation) -> list[str]:
    """Return texts, of which the first one is compared with all others, within the limits.

    Raises:
        Refusal: there are no others; see also `Served.texts`.
    """
    if len(texts) < 2:
        *_, field = (field.encode_name for field in msgspec.structs.fields(request) if field.required)
        raise invalid(f"{argument(field)}: there is no text to compare")
    return served.texts(request, texts, truncation, count=len(texts) - 1)


def _encode(
    served: Served, request: Request, texts: Sequence[str], prompts: Sequence[str], truncation: Truncation
) -> list[Ids]:
    """Return the token ids of texts after their prompts; see `_texts`."""
    texts = _texts(served, request, texts, truncation)
    return served.tokenizer.encode_many([prompt + text for prompt, text in zip(prompts, texts, strict=True)])


def _in_order(scores: np.ndarray) -> list[int]:
    """Return indices by descending score."""
    indices: list[int] = np.argsort(-scores, kind="stable").tolist()
    return indices
