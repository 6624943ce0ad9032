"""The routes of Hugging Face's inference API, named by the pipelines of transformers: what `InferenceClient` asks.

`POST /pipeline/TASK` has a request and a response of its own for each of `PIPELINES`. `POST /models/NAME/pipeline/TASK`
asks the model of that name, `POST /models/NAME` what the model is for, and `POST /` what the first one is for; see
`choose_pipeline` and `choose`.

A pipeline asks what another route does: `Endpoint.of`, by which models are found that have it. Parameters that would
have no effect are refused, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Raw

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.inference.fill import HEADS
from unmask.serving import rerank, zero_shot
from unmask.serving.batcher import ComputeJob
from unmask.serving.bodies import fields_of, invalid
from unmask.serving.endpoints import ENDPOINTS, INPUTS, Endpoint
from unmask.serving.served import ZERO_SHOT, Served
from unmask.serving.types import EmbedRequest, FillRequest, Parameters, PipelineRequest
from unmask.support.messages import argument
from unmask.tasks.routes import AnswerRequest, PredictRequest, Scored, TagRequest
from unmask.tasks.tagged import Entity

Top = Annotated[int, Meta(ge=1, le=100)]


class TextPair(msgspec.Struct, forbid_unknown_fields=True):
    """A text, or a pair of texts."""

    text: str
    text_pair: str | None = None


class ClassificationParameters(Parameters):
    """How texts are classified.

    Attributes:
        top_k: number of labels, the highest first; None: all.
        function_to_apply: what makes scores of logits; None: what the model was trained with.
    """

    top_k: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class ClassificationRequest(PipelineRequest):
    """Texts to classify: one or several, or pairs as `{"text", "text_pair"}`."""

    inputs: str | TextPair | Annotated[list[str | TextPair], Meta(min_length=1)]
    parameters: ClassificationParameters | None = None


class FillParameters(Parameters):
    """How masks are filled.

    Attributes:
        top_k: number of candidates.
        targets: see `FillRequest`.
    """

    top_k: Top | None = None
    targets: str | Annotated[list[str], Meta(min_length=1)] | None = None


class FillMaskRequest(PipelineRequest):
    """Texts with masks: one or several."""

    inputs: str | list[str]
    parameters: FillParameters | None = None


class FilledMask(msgspec.Struct):
    """A candidate for a mask.

    Attributes:
        score: its probability.
        token: its id.
        token_str: the candidate.
        sequence: the text with the candidate in place of the mask.
    """

    score: float
    token: int
    token_str: str
    sequence: str


class TokenParameters(Parameters):
    """How entities are found.

    Attributes:
        aggregation_strategy: words have one tag, that of their first token; None: likewise.
        ignore_labels: types of entities that are left out.
    """

    aggregation_strategy: Literal["simple", "first"] | None = None
    ignore_labels: list[str] | None = None


class TokenRequest(PipelineRequest):
    """Texts whose entities are wanted: one or several."""

    inputs: str | list[str]
    parameters: TokenParameters | None = None


class EntityGroup(msgspec.Struct):
    """An entity.

    Attributes:
        entity_group: its type.
        score: its probability.
        word: its text.
        start, end: offsets in code points, `end` exclusive.
    """

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class QuestionInputs(msgspec.Struct, forbid_unknown_fields=True):
    """A question, and the text that has the answer."""

    question: str
    context: str


class QuestionParameters(Parameters):
    """How a question is answered.

    Attributes:
        top_k: number of answers; more than one are a list.
        handle_impossible_answer: whether "" may be an answer; None: if the model was trained on it.
    """

    top_k: Top | None = None
    handle_impossible_answer: bool | None = None


class QuestionRequest(PipelineRequest):
    """A question about a text."""

    inputs: QuestionInputs
    parameters: QuestionParameters | None = None


class FoundAnswer(msgspec.Struct):
    """An answer with its offsets in the text, in code points; "", from 0 to 0, if there is none."""

    answer: str
    score: float
    start: int
    end: int


class FeatureRequest(EmbedRequest):
    """Texts whose vectors are wanted; see `EmbedRequest`.

    Attributes:
        encoding_format: "float".
        options: see `PipelineRequest`.
    """

    encoding_format: Literal["float"] | None = None
    options: dict[str, bool] | None = None


class SentenceRequest(rerank.SimilarityRequest):
    """Texts whose cosines with another text are wanted; `options` as in `PipelineRequest`."""

    options: dict[str, bool] | None = None


def classify(served: Served, request: ClassificationRequest) -> ComputeJob:
    """Return the job of `text-classification`; it reads the labels of each text.

    Raises:
        Refusal: see `Served.ask`.
    """
    parameters = request.parameters or ClassificationParameters()
    inputs = request.inputs if isinstance(request.inputs, list) else [request.inputs]
    pairs = [text if isinstance(text, TextPair) else TextPair(text) for text in inputs]
    function = parameters.function_to_apply
    asked = PredictRequest(
        inputs=[[pair.text] if pair.text_pair is None else [pair.text, pair.text_pair] for pair in pairs],
        raw_scores=function is not None,
    )
    job = served.ask(asked, of=request)

    def read(rows: list[np.ndarray]) -> list[list[Scored]]:
        answers: list[list[Scored]] = job.read(rows)
        if function in ("sigmoid", "softmax"):
            answers = [_activated(answer, function) for answer in answers]
        return [answer[: parameters.top_k] for answer in answers]

    return replace(job, read=read)


def _activated(scored: Sequence[Scored], function: str) -> list[Scored]:
    """Return labels with the sigmoids, or the softmax, of their logits."""
    logits = np.array([of.score for of in scored])
    logs = -np.logaddexp(0, -logits) if function == "sigmoid" else logits - np.logaddexp.reduce(logits)
    return [Scored(value, of.label) for value, of in zip(np.exp(logs).tolist(), scored, strict=True)]


def fill(served: Served, request: FillMaskRequest) -> ComputeJob:
    """Return the job of `fill-mask`; it reads the candidates for a mask, or for each of several.

    Raises:
        Refusal: see `Served.fill`.
    """
    parameters = request.parameters or FillParameters()
    targets = [parameters.targets] if isinstance(parameters.targets, str) else parameters.targets
    job = served.fill(FillRequest(inputs=request.inputs, top=parameters.top_k or 5, targets=targets))

    def read(rows: list[np.ndarray]) -> list[Any]:
        answers = [_filled(served, *pair) for pair in zip(job.samples, rows, strict=True)]
        return list(answers[0]) if isinstance(request.inputs, str) else answers

    return replace(job, read=read)


def _filled(served: Served, sample: Sample, ranked: np.ndarray) -> list[FilledMask] | list[list[FilledMask]]:
    """Return the candidates for the masks of a text, given what `top_tokens` returns."""
    assert served.mask_head is not None
    tokenizer, start = served.tokenizer, Frame.of(served.tokenizer).start
    masks = []
    for place, (probabilities, ids) in zip(sample.positions[HEADS[served.mask_head]], ranked, strict=True):
        candidates = []
        for probability, id in zip(probabilities.tolist(), ids.astype(int).tolist(), strict=True):
            text = np.array(sample.ids)
            text[place] = id
            sequence = tokenizer.decode(text[start : len(text) - 2 + start])
            candidates.append(FilledMask(probability, id, tokenizer.decode([id]), sequence))
        masks.append(candidates)
    return masks if len(masks) > 1 else masks[0]


def find_entities(served: Served, request: TokenRequest) -> ComputeJob:
    """Return the job of `token-classification`; it reads the entities of a text, or of each.

    Raises:
        Refusal: see `Served.ask`.
    """
    job = served.ask(TagRequest(inputs=request.inputs), of=request)
    ignored = (request.parameters or TokenParameters()).ignore_labels or []

    def read(rows: list[np.ndarray]) -> list[Any]:
        texts: list[list[Entity]] = job.read(rows)
        answers = [
            [EntityGroup(of.label, of.probability, of.text, of.start, of.end) for of in text if of.label not in ignored]
            for text in texts
        ]
        return list(answers[0]) if isinstance(request.inputs, str) else answers

    return replace(job, read=read)


def answer(served: Served, request: QuestionRequest) -> ComputeJob:
    """Return the job of `question-answering`; it reads the answer, or several.

    Raises:
        Refusal: see `Served.ask`.
    """
    parameters = request.parameters or QuestionParameters()
    top, inputs = parameters.top_k or 1, request.inputs
    job = served.ask(AnswerRequest(question=inputs.question, passage=inputs.context), of=request)

    def read(rows: list[np.ndarray]) -> FoundAnswer | list[FoundAnswer]:
        predicted = job.read(rows)
        spans = list(predicted.nbest)
        if parameters.handle_impossible_answer is None:  # the model decides, by its threshold
            spans.sort(key=lambda span: span.answer != predicted.answer)
        elif not parameters.handle_impossible_answer:
            spans = [span for span in spans if span.answer]
        answers = [FoundAnswer(span.answer, span.probability, span.start or 0, span.end or 0) for span in spans[:top]]
        return answers if top > 1 else (answers or [FoundAnswer("", 0.0, 0, 0)])[0]

    return replace(job, read=read)


_OF = {endpoint.path: endpoint for endpoint in ENDPOINTS}
_CLASSIFY, _FILL, _TAG, _ANSWER, _FEATURES, _SIMILARITY, _ZERO_SHOT = (
    Endpoint(
        "/pipeline/text-classification",
        "Classify texts or pairs of texts.",
        ClassificationRequest,
        list[list[Scored]],
        classify,
        f"{INPUTS}: the model reads pairs of texts, {{'text', 'text_pair'}}, and the request has single ones, or the "
        f"reverse; a model may have no logits for {argument('parameters.function_to_apply')}",
        {"inputs": "A wonderful film.", "parameters": {"top_k": 1}},
        of="/predict",
    ),
    Endpoint(
        "/pipeline/fill-mask",
        "Return the most probable tokens at each mask.",
        FillMaskRequest,
        list[FilledMask | list[FilledMask | list[FilledMask]]],
        fill,
        _OF["/fill"].needs,
        {"inputs": "Paris is the [MASK] of France."},
        of="/fill",
    ),
    Endpoint(
        "/pipeline/token-classification",
        "Find the entities of texts.",
        TokenRequest,
        list[EntityGroup | list[EntityGroup]],
        find_entities,
        _OF["/tag"].needs,
        {"inputs": "Ada Lovelace lived in London.", "parameters": {"aggregation_strategy": "simple"}},
        of="/tag",
    ),
    Endpoint(
        "/pipeline/question-answering",
        "Answer a question from a text.",
        QuestionRequest,
        FoundAnswer | list[FoundAnswer],
        answer,
        f"{INPUTS}: a text has characters that cannot be encoded",
        {"inputs": {"question": "Where did she live?", "context": "Ada Lovelace lived in London."}},
        of="/answer",
    ),
    Endpoint(
        "/pipeline/feature-extraction",
        "Return the vector of each text.",
        FeatureRequest,
        _OF["/embed"].response,
        _OF["/embed"].job,
        _OF["/embed"].needs,
        {"inputs": "What is deep learning?"},
        of="/embed",
    ),
    Endpoint(
        "/pipeline/sentence-similarity",
        "Return the cosines of the vector of a text with those of others.",
        SentenceRequest,
        _OF["/similarity"].response,
        _OF["/similarity"].job,
        _OF["/similarity"].needs,
        _OF["/similarity"].example,
        of="/similarity",
    ),
    Endpoint(
        ZERO_SHOT,
        "Classify texts by the names of labels, which the model was not trained on.",
        zero_shot.LabelsRequest,
        list[Scored | list[Scored]],
        zero_shot.classify_by_names,
        f"{argument('parameters')}: at least two different labels are needed, whose characters the vocabulary has, and "
        "a template with one {}, both short enough; several labels of a text need a model of entailment",
        {"inputs": "The team won.", "parameters": {"candidate_labels": ["sports", "politics"]}},
    ),
)
_ALL = (_CLASSIFY, _FILL, _TAG, _ANSWER, _FEATURES, _SIMILARITY, _ZERO_SHOT)
PIPELINES = {endpoint.path.rpartition("/")[2]: endpoint for endpoint in _ALL}
"""The pipelines by their names."""
OTHERS = (_OF["/predict"], _OF["/rerank"])
"""What `choose` also returns, and `choose_pipeline` the last one of."""
DISPATCHED = ("/", "/models/{name}", "/models/{name}/pipeline/{task}")
"""Routes that ask for one of these by the fields of the request, by the model, or by its name."""
_FOR = {"/predict": _CLASSIFY, "/tag": _TAG, "/answer": _ANSWER}
"""The pipelines of tasks, by their routes."""


def choose(content: bytes, served: Served) -> Endpoint:
    """Return what `choose_pipeline` does, but `/predict` for a classifier without `parameters`.

    That is what Text Embeddings Inference does at `/`: there, a list of two texts is a pair.
    """
    endpoint = choose_pipeline(content, served)
    return _OF["/predict"] if endpoint is _CLASSIFY and "parameters" not in fields_of(content) else endpoint


def choose_pipeline(content: bytes, served: Served) -> Endpoint:
    """Return what a request without the name of a route asks for: by its fields, or else by what the model is for.

    `query` and `texts` are reranked; `inputs` with a source sentence, or a question, and `parameters` with labels are
    those of their pipelines. Of other `inputs` the task of the model decides; for models without a task, `parameters`
    decide between masks and vectors, for which `InferenceClient` sends none.

    Args:
        content: the body.
        served: the model that it is for if the fields do not decide.

    Raises:
        Refusal: there is no pipeline for the model.
    """
    fields = fields_of(content)
    inputs = fields_of(fields.get("inputs", Raw(b"")))
    if {"query", "texts"} & fields.keys():
        return _OF["/rerank"]
    if "source_sentence" in inputs:
        return _SIMILARITY
    if "question" in inputs:
        return _ANSWER
    if "candidate_labels" in fields_of(fields.get("parameters", Raw(b""))):
        return _ZERO_SHOT
    route = "" if served.route is None else served.route.path
    if route in _FOR:
        return _FOR[route]
    if not route and "parameters" in fields and served.has("/fill"):
        return _FILL
    if not route and served.has("/embed"):
        return _FEATURES
    raise invalid("this model has no pipeline; /info lists its routes")
