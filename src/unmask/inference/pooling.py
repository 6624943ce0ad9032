"""The tokens of a text, and its vector, made of their hidden states.

Input: one text or a pair. Output: the sample that an encoder reads, with the spelling and offsets of each token, also
special ones; or vectors, as models state them (checkpoints/sentence_modules.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.sentence_modules import DENSE, DENSE_PART, Pooling
from unmask.inference.backend import Backend, finite
from unmask.nn.encoders.pooled import TINY, DenseLayers
from unmask.support.choices import PoolingKind
from unmask.support.errors import UserError, check_unicode

if TYPE_CHECKING:
    from unmask.model.model import Model

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


EXCLUDED = "excluded"
"""Name of the label of a sample with the number of its first tokens that are not pooled: those of a prompt."""


def prompt_tokens(tokenizer: Tokenizer, prompt: str, pooling: Pooling) -> int:
    """Return the number of first tokens of a text that are not pooled, special ones included, given its prompt.

    sentence-transformers counts those of the prompt alone, without a special token at its end.
    """
    if pooling.include_prompt or not prompt:
        return 0
    ids = tokenizer.encode(prompt)
    sample, index = Frame.of(tokenizer).wrap(ids), Frame.of(tokenizer).spread(np.arange(len(ids)))
    return len(sample) - int(index[-1] == SPECIAL)


def embed_samples(backend: Backend, model: Model, samples: Sequence[Sample], pooling: Pooling) -> np.ndarray:
    """Return the vector of each text, neither cut nor normalized, (texts, width) float32.

    Args:
        backend: computes the last layer.
        model: the model, whose dense layers, if any, follow the pooling.
        samples: the texts, which may have the label `EXCLUDED`.
        pooling: how their vectors are made.

    Raises:
        UserError: all tokens of a text are excluded.
    """
    encoder = model.encoder
    vectors = np.empty((len(samples), encoder.width), np.float32)
    plain = [sample.changed(labels={}) for sample in samples]
    for number, rows in backend.layers(plain, [encoder.num_layers]):  # (tokens, 1, width)
        vectors[number] = pooled(rows[:, 0], samples[number], pooling.kind)
    return vectors if not pooling.dense else through_dense(model.heads[DENSE], pooling, vectors)


def through_dense(tensors: Mapping[str, Tensor], pooling: Pooling, vectors: np.ndarray) -> np.ndarray:
    """Return the outputs of dense layers, (texts, width), given their tensors and pooled vectors, on the CPU."""
    layers = DenseLayers(pooling.dense, vectors.shape[1])
    prefix = f"{DENSE_PART.partition('.')[0]}."
    layers.load_state_dict({name.removeprefix(prefix): value.float().cpu() for name, value in tensors.items()})
    with torch.inference_mode():
        outputs: np.ndarray = layers(torch.from_numpy(vectors)).numpy()
    return outputs


def pooled(rows: np.ndarray, sample: Sample, kind: PoolingKind) -> np.ndarray:
    """Return the vector of a text, (width,).

    Args:
        rows: the last layer of its tokens, (tokens, width).
        sample: the text; its label `EXCLUDED`, if any, tells how many first tokens are not pooled.
        kind: see `nn.encoders.pooled.pool`.

    Raises:
        UserError: all tokens are excluded.
    """
    summary, excluded = int(sample.positions["summary"][0]), 0
    if EXCLUDED in sample.labels:
        excluded = int(sample.labels[EXCLUDED][0])
        if excluded >= len(rows):
            raise UserError("the prompt is so long that none of the text is read", remedy="use a shorter one")
    chosen = rows[excluded:]  # (pooled tokens, width)
    weights = np.arange(1 + excluded, 1 + len(rows), dtype=np.float32)[:, None]  # those of the whole text
    match kind:
        case "mean":
            vector = chosen.mean(0)
        case "cls":
            vector = rows[max(summary, excluded)]
        case "max":
            vector = chosen.max(0)
        case "weighted-mean":
            vector = (chosen * weights).sum(0) / weights.sum()
        case "last":
            vector = rows[-1]
        case "mean-sqrt":
            vector = chosen.sum(0) / np.sqrt(np.float32(len(chosen)))
    return np.asarray(vector)


def finished(vectors: np.ndarray, pooling: Pooling) -> np.ndarray:
    """Return vectors, (texts, width), cut and normalized, if the pooling says so, in this order.

    Raises:
        UserError: they are so large that their norms are no numbers; divided by these they would be 0.
    """
    vectors = vectors[:, : pooling.dimensions]
    if pooling.normalize:
        with np.errstate(over="ignore"):
            finite(np.square(vectors).sum(1))
    return normalized(vectors) if pooling.normalize else vectors


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, (texts, width), divided by their norms."""
    unit_vectors: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)
    return unit_vectors
