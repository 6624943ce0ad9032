"""Requests and responses of the server, as msgspec types: they decode, check and document; and its limits.

`/embed` is that of Text Embeddings Inference, `/v1/embeddings` is OpenAI's. A field that is unknown is refused rather
than ignored. `model` is the name of one of the models; without it, the first one that has the route. Those of tasks are
in tasks/routes.py.

The limits exist so that no request, and no number of them, can exhaust the memory or the time of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unmask.inference.fill import Mask
from unmask.support.choices import PromptName
from unmask.tasks.explained import Explanation
from unmask.tasks.routes import Request, Texts, VectorsRequest

Layers = Annotated[tuple[Annotated[int, Meta(ge=-1000, le=1000)], ...], Meta(min_length=1, max_length=100)]
EmbedResponse = list[list[float]]
EmbedAllResponse = list[list[list[float]]]
FillResponse = list[list[Mask]]
ExplainResponse = list[Explanation]


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Attributes:
        body: maximum size of a request's body in bytes.
        bodies: maximum size of all bodies that are being read or processed, in bytes.
        requests: maximum number of requests that are read or processed at the same time.
        inputs: maximum number of texts in a request.
        characters: maximum length of a text in characters, which is checked before it is tokenized.
        request_tokens: maximum number of tokens of a request, after texts are truncated or split into windows.
        batch_tokens: maximum number of tokens that are computed together.
        queue_tokens: maximum number of tokens that wait or are computed, per model.
        values: maximum number of numbers in a response of `/features` and `/embed_all`.
        logits: maximum number of logits of a request: masks times tokens of the vocabulary, or what is classified times
            labels, of `/explain` once without each word.
        candidates: maximum number of candidates in a response of `/fill`: masks times `top`.
        words: maximum number of words whose contribution is computed by `/explain`: the text is read without each.
        wait: time in seconds that an idle model waits for more texts to compute together.
        header_seconds: time in which a request's line and headers must arrive.
        body_seconds: time in which a request's body must arrive.
        seconds: time in which a response must be computed.
        drain_seconds: time in which open requests are finished when the server stops.
    """

    body: int = 2_000_000
    bodies: int = 64_000_000
    requests: int = 2048
    inputs: int = 128
    characters: int = 100_000
    request_tokens: int = 65_536
    batch_tokens: int = 8192
    queue_tokens: int = 524_288
    values: int = 500_000
    logits: int = 33_000_000
    candidates: int = 50_000
    words: int = 128
    wait: float = 0.002
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    seconds: float = 60.0
    drain_seconds: float = 30.0


class PipelineRequest(Request, kw_only=True):
    """Base class of requests of pipelines.

    Attributes:
        options: how Hugging Face's own servers wait for models and cache; not used.
    """

    options: dict[str, bool] | None = None


class Parameters(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of the parameters of a pipeline."""


class EmbedRequest(VectorsRequest):
    """Texts whose vectors are wanted.

    Attributes:
        inputs: one text or several, or token ids with special ones, as `/tokenize` returns them.
        normalize: whether the vectors have length 1.
        truncate: whether texts that are too long are truncated; otherwise they are refused.
        truncation_direction: the end at which they are truncated, "right" or "left".
        prompt_name: the prompt of the model that texts begin with, "query" or "document"; None: the default one.
        dimensions: number of first dimensions to return; None: all.
    """

    normalize: bool = True
    dimensions: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class EmbedAllRequest(VectorsRequest):
    """Texts the vectors of whose tokens are wanted; see `EmbedRequest`."""


class TokenizeRequest(Request):
    """Texts whose tokens are wanted.

    Attributes:
        inputs: one text or several.
        add_special_tokens: whether special tokens are added.
        prompt_name: see `EmbedRequest`; it belongs to the text whose tokens are returned.
    """

    inputs: Texts
    add_special_tokens: bool = True
    prompt_name: PromptName | None = None


class SimpleToken(msgspec.Struct):
    """A token.

    Attributes:
        id: its id.
        text: its text; a special token is spelled as in the vocabulary.
        special: whether it is a special token that was added.
        start, stop: offsets in the text with its prompt, in bytes of UTF-8, as of Text Embeddings Inference; None for
            special tokens that were added.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class DecodeRequest(Request):
    """Token ids whose texts are wanted.

    Attributes:
        ids: those of one or several texts.
        skip_special_tokens: whether special tokens are left out.
    """

    ids: list[int | list[int]]
    skip_special_tokens: bool = True


class FillRequest(Request):
    """Texts with `[MASK]`.

    Attributes:
        inputs: one text or several.
        top: number of candidates for each mask.
        targets: tokens that the candidates are among, as the vocabulary spells them or as texts; None: all tokens.
    """

    inputs: Texts
    top: Annotated[int, Meta(ge=1, le=100)] = 5
    targets: Annotated[list[str], Meta(min_length=1)] | None = None


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


class ExplainRequest(Request):
    """A text, or a pair `[text, text]`, whose prediction is explained."""

    inputs: str | Annotated[list[str], Meta(min_length=2, max_length=2)]


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
        input: a text, several, or token ids of one or several texts with special ones, as `/tokenize` returns them.
        encoding_format: numbers (also null), or their little-endian float32 bytes in base64.
        dimensions: see `EmbedRequest`.
        user: not used, and not stored.
    """

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = "float"
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


class OpenAIModel(msgspec.Struct):
    """A model as OpenAI's API lists it; `created` is when the server began to serve it, in seconds since 1970."""

    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "unmask"


class OpenAIModels(msgspec.Struct):
    """All models of the server."""

    data: list[OpenAIModel]
    object: Literal["list"] = "list"


class Info(msgspec.Struct, kw_only=True):
    """A model and its limits, as Text Embeddings Inference describes them; what is not known of a model is null.

    Attributes:
        model_id, served_model_name: its name.
        model_dtype: precision of the computation.
        model_type: `{"embedding": {"pooling"}}`, `{"classifier": {"id2label", "label2id"}}` or `{"reranker": {…}}`
            likewise, or `{"TASK": {}}` for other tasks.
        routes: routes that it has.
        max_input_length: maximum number of tokens of a text, or of a pair, for its task, or else for a vector.
        max_batch_tokens: maximum number of tokens that are computed together.
        max_batch_requests: null: any number of requests are computed together.
        max_concurrent_requests: maximum number of requests at the same time.
        max_client_batch_size: maximum number of texts in a request.
        auto_truncate: false: texts that are too long are refused, unless a request says otherwise.
        tokenization_workers: maximum number of large requests that are tokenized at the same time.
        version: version of unmask.
    """

    model_id: str
    served_model_name: str
    model_dtype: str
    model_type: dict[str, dict[str, Any]]
    routes: list[str]
    max_input_length: int
    max_batch_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int
    tokenization_workers: int
    version: str
    auto_truncate: bool = False
    max_batch_requests: int | None = None
    model_sha: str | None = None
    sha: str | None = None
    docker_label: str | None = None


class Server(Info, kw_only=True):
    """The first model, with all others in `models`."""

    models: list[Info]


FeaturesResponse = list[TextFeatures]
