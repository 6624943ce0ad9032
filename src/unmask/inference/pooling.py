"""The vector of a text, made of the hidden states of its tokens; checkpoints/heads.py has how models state it.

The tokens of a text as a model reads it, special tokens included, with their offsets in the text.

Input: one text or a pair. Output: the sample that an encoder reads, and the spelling and offsets of each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.inference.backend import Backend
from unmask.nn.encoders.encoder import Encoder
from unmask.support.choices import PoolingKind
from unmask.support.errors import UserError, check_unicode

SPECIAL = -1
"""Index that stands for the text of special tokens, as in `Frame.spread`."""


class Token(msgspec.Struct, frozen=True):
    """A token of a text or of a pair of texts.

    Attributes:
        token: the token as spelled in the vocabulary.
        start, end: offsets in its text, in code points, `end` exclusive; both 0 for special tokens.
        text: 0 if it belongs to the first text, 1 to the second one, `SPECIAL` for the special tokens around them.
    """

    token: str
    start: int
    end: int
    text: int


def frame_tokens(tokenizer: Tokenizer, texts: Sequence[str], longest: int) -> tuple[Sample, list[Token]]:
    """Return one text, or two, as a sample, and its tokens.

    Args:
        tokenizer: the model's.
        texts: one or two texts.
        longest: the maximum number of tokens, special tokens included.

    Raises:
        UserError: there are more tokens, or a text is not valid Unicode.
    """
    check_unicode(texts)
    frame, encoded = Frame.of(tokenizer), [tokenizer.encode_offsets(text) for text in texts]
    names = replace(frame, spell=lambda ids: ids).wrap(*(ids for ids, _ in encoded)).ids
    if len(names) > longest:
        raise UserError(
            f"'{texts[0][:40]}…' has {len(names)} tokens, but at most {longest} can be read", remedy="shorten it"
        )
    index = frame.spread(*(np.arange(len(ids)) for ids, _ in encoded))
    text = frame.spread(*(np.full(len(ids), number) for number, (ids, _) in enumerate(encoded)))
    tokens = []
    for spelling, place, number in zip(tokenizer.tokens(names), index.tolist(), text.tolist(), strict=True):
        start, end = (0, 0) if number == SPECIAL else encoded[number][1][place]
        tokens.append(Token(spelling, start, end, number))
    return frame.wrap(*(ids for ids, _ in encoded)), tokens


TINY = 1e-12
"""Smallest norm that vectors are divided by, as in `torch.nn.functional.normalize`."""


def embed_samples(backend: Backend, encoder: Encoder, samples: Sequence[Sample], kind: PoolingKind) -> np.ndarray:
    """Return the vector of each text, (texts, width) float32; `kind` as in `pooled`."""
    vectors = np.empty((len(samples), encoder.width), np.float32)
    for number, rows in backend.layers(samples, [encoder.num_layers]):  # (tokens, 1, width)
        vectors[number] = pooled(rows[:, 0], samples[number], kind)
    return vectors


def pooled(rows: np.ndarray, sample: Sample, kind: PoolingKind) -> np.ndarray:
    """Return the vector of a text, (width,).

    Args:
        rows: the last layer of its tokens, (tokens, width).
        sample: the text.
        kind: "mean" of all tokens, or "cls", where the model reads the vector of a text.
    """
    vector: np.ndarray = rows[sample.positions["summary"][0]] if kind == "cls" else rows.mean(0)
    return vector


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, (texts, width), divided by their norms."""
    unit_vectors: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)
    return unit_vectors
