"""Requests and responses of the server, as msgspec types: they decode, check and document.

`/embed` and `/predict` are those of Text Embeddings Inference, `/v1/embeddings` is OpenAI's. A field that is unknown is
refused rather than ignored. `model` is the name of one of the models; without it, the first one that has the route.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unmask.inference.fill import Mask
from unmask.serving.limits import Kind
from unmask.tasks.multiple_choice import Chosen
from unmask.tasks.tagged import Entity

Name = Annotated[str, Meta(max_length=200, description="Name of the model; by default the first one that can do it.")]
Texts = Annotated[str | list[str], Meta(description="One text or several.")]
Layers = Annotated[tuple[Annotated[int, Meta(ge=-1000, le=1000)], ...], Meta(min_length=1, max_length=100)]


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of requests."""

    model: Name | None = None


class EmbedRequest(Request):
    """Texts whose vectors are wanted.

    Attributes:
        inputs: one text or several.
        normalize: whether the vectors have length 1.
        truncate: whether texts that are too long are truncated at their end; otherwise they are refused.
        dimensions: number of first dimensions to return; None: all.
    """

    inputs: Texts
    normalize: bool = True
    truncate: bool = False
    dimensions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class PredictRequest(Request):
    """Texts to classify, or to predict a number for.

    Attributes:
        inputs: a text; a pair `[text, text]`; or a batch of them, `[[text], [text, text], ...]`.
        truncate: see `EmbedRequest`.
        raw_scores: whether to return logits instead of probabilities.
    """

    inputs: str | list[str | list[str]]
    truncate: bool = False
    raw_scores: bool = False


class Scored(msgspec.Struct):
    """A label with its probability, or its logit; the number of a regression has the label "score"."""

    score: float
    label: str


class TagRequest(Request):
    """Texts whose entities are wanted; long texts are read in windows."""

    inputs: Texts


class AnswerRequest(Request):
    """A question about a passage.

    Attributes:
        question: the question.
        passage: the text with the answer; for models that read several passages, these, or a mapping of titles to them.
        history: for models of dialogues, the earlier questions and their answers.
    """

    question: str
    passage: str | list[str] | dict[str, str]
    history: list[tuple[str, str]] = []


class ChooseRequest(Request):
    """Texts of which the one that fits a passage best is wanted.

    Attributes:
        passage: what the choices are about.
        choices: two or more texts.
        question: a question that they answer, or the begun sentence that they continue.
    """

    passage: str
    choices: Annotated[list[str], Meta(min_length=2)]
    question: str = ""


class FillRequest(Request):
    """Texts with `[MASK]`.

    Attributes:
        inputs: one text or several.
        top: number of candidates for each mask.
    """

    inputs: Texts
    top: Annotated[int, Meta(ge=1, le=100)] = 5


class FeaturesRequest(Request):
    """Texts whose hidden states are wanted.

    Attributes:
        inputs: one text or several.
        layers: layer numbers; 0 is the embeddings, negative numbers count from the last layer.
        truncate: see `EmbedRequest`.
    """

    inputs: Texts
    layers: Layers = (-1,)
    truncate: bool = False


class TextFeatures(msgspec.Struct):
    """The hidden states of a text.

    Attributes:
        word_ids: index of each token's word; -1 for special tokens.
        values: hidden states by layer, token and dimension.
    """

    word_ids: list[int]
    values: list[list[list[float]]]


class OpenAIRequest(Request):
    """A request of OpenAI's embeddings.

    Attributes:
        input: a text, several, or token ids of one or several texts, without special tokens.
        encoding_format: numbers, or their little-endian float32 bytes in base64.
        dimensions: see `EmbedRequest`.
        user: not used, and not stored.
    """

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    user: str | None = None


class OpenAIEmbedding(msgspec.Struct):
    """A vector; see `OpenAIRequest.encoding_format`."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Usage(msgspec.Struct):
    """Number of tokens that were read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class OpenAIResponse(msgspec.Struct):
    """The vectors of OpenAI's embeddings, in the order of the input."""

    data: list[OpenAIEmbedding]
    model: str
    usage: Usage
    object: Literal["list"] = "list"


class Info(msgspec.Struct, kw_only=True):
    """A model and its limits, as Text Embeddings Inference describes them.

    Attributes:
        model_id: its name.
        model_dtype: precision of the computation.
        model_type: `{"embedding": {"pooling"}}` or `{"classifier": {"id2label", "label2id"}}`, or
            `{"TASK": {}}` for other tasks.
        routes: routes that it has.
        max_input_length: maximum number of tokens of a text.
        max_batch_tokens: maximum number of tokens that are computed together.
        max_concurrent_requests: maximum number of requests at the same time.
        max_client_batch_size: maximum number of texts in a request.
        version: version of unmask.
    """

    model_id: str
    model_dtype: str
    model_type: dict[str, dict[str, Any]]
    routes: list[str]
    max_input_length: int
    max_batch_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int
    auto_truncate: bool = False
    version: str = ""


class Server(Info, kw_only=True):
    """The first model, with all others in `models`."""

    models: list[Info]


class Failure(msgspec.Struct):
    """An error: what is wrong, and of which kind."""

    error: str
    error_type: Kind


EmbedResponse = list[list[float]]
PredictResponse = list[Scored | list[Scored]]
AnswerResponse = dict[str, Any]
ChooseResponse = Chosen
TagResponse = list[list[Entity]]
FillResponse = list[list[Mask]]
FeaturesResponse = list[TextFeatures]
