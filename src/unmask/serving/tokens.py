"""The routes about tokens: `/tokenize`, `/decode` and `/embed_all` of Text Embeddings Inference, and `/features`."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np

from unmask.data.batches.batch import total_length
from unmask.data.batches.frame import Frame
from unmask.inference.features import frame_words
from unmask.nn.encoders.downstream import resolve_layers
from unmask.serving.batcher import ComputeJob
from unmask.serving.refusals import invalid, too_large, too_long
from unmask.serving.served import Served
from unmask.serving.types import (
    DecodeRequest,
    EmbedAllRequest,
    FeaturesRequest,
    SimpleToken,
    TextFeatures,
    TokenizeRequest,
)
from unmask.support.messages import argument
from unmask.tasks.routes import Truncation
from unmask.tasks.rows import as_rows


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
