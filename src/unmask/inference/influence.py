"""What a model's words depend on: their influence on each other, and what its attention heads attend to.

Input: an encoder, and one text or a pair. Output of `measure_influence`: for each pair of words 1 - cos(u, v), where u
is the vector of the first word in the whole text, and v its vector in the text without the second word; the vector of a
word is the mean of its tokens' hidden states. Leaving out input and observing the output is the erasure of Li et al.
2016 ("Understanding Neural Networks through Representation Erasure"), for hidden states. It means the same for all
bodies and vocabularies, and includes the effect of the positions, as the words after the one left out move.

Output of `read_attention`: the probabilities of each layer and head, as in Vaswani et al. 2017, equation 1, softmax(Q
K^T / sqrt(width)), or for XLNet with relative positions (Yang et al. 2019). They show from where a head reads, layer by
layer; ELMo has none. Kernels are injected, so reading needs no code in the bodies: a copy of the encoder, which shares
its weights, gets kernels that also return the probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Tokens
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.inference.backend import Backend, finite, in_order, inference_copy
from unmask.inference.pooling import Token, frame_tokens
from unmask.nn.encoders.encoder import Encoder
from unmask.nn.layers import plain_attention, relative_kernels
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.relative import RelativeAttention
from unmask.nn.layers.relative_kernels import Rows
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine


@dataclass(frozen=True)
class Attention:
    """The attention of a text or of a pair of texts.

    Attributes:
        tokens: the tokens that the model reads, special tokens included.
        weights: (layers, heads, tokens, tokens), float32: how much the third index attends to the fourth; each row sums
            to 1. Layers that share their weights each have their own.
    """

    tokens: list[Token]
    weights: np.ndarray


def attention_obstacle(encoder: Encoder) -> str:
    """Return why `read_attention` cannot read an encoder; "": it can."""
    if not any(isinstance(module, SelfAttention | RelativeAttention) for module in encoder.modules()):
        return "this model has no attention: it is not made of transformer layers"
    exported = any(parameter.is_meta for parameter in encoder.parameters())
    return "attention is computed by the weights of a model, which an exported one does not have" if exported else ""


def read_attention(encoder: Encoder, sample: Sample) -> np.ndarray:
    """Return the attention probabilities of a sample in float32, (layers, heads, tokens, tokens).

    Raises:
        UserError: the encoder has no attention or no weights, reads a sample of this length in windows, or its outputs
            are not numbers.
    """
    if why := attention_obstacle(encoder):
        raise UserError(why, remedy="use influence, which every model has with its last layer")
    weights_by_layer: list[Tensor] = []

    def absolute(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
        probabilities = plain_attention.probabilities(qkv, tokens, spec)  # each (sequences, heads, tokens, tokens)
        weights_by_layer.extend(probabilities)
        return plain_attention.plain(qkv, tokens, spec)

    def relative(inputs: relative_kernels.Inputs, rows: Rows, dropout: float) -> Tensor:
        weights_by_layer.append(relative_kernels.probabilities(inputs, rows).transpose(0, 1))
        return relative_kernels.plain(inputs, rows, dropout)

    copy = inference_copy(encoder, choose_machine("cpu", "float32"))
    for module in copy.modules():
        if isinstance(module, SelfAttention):
            module.kernel = absolute
        elif isinstance(module, RelativeAttention):
            module.kernel = relative
    with torch.inference_mode():
        finite(copy(collate([sample.named((0,))]).tokens).last.numpy())
    if any(weights.shape[-1] != len(sample) for weights in weights_by_layer):
        raise UserError(f"this model reads {len(sample)} tokens in windows with memory", remedy="use a shorter text")
    return finite(torch.cat(weights_by_layer).numpy())


Span = tuple[int, int]


@dataclass(frozen=True)
class Influence:
    """The influence of the words of a text on each other.

    Attributes:
        words: start and end of each word in the text, in code points, split as by BERT's pre-tokenizer, whatever the
            vocabulary of the model.
        change: (words, words), float32: 1 - cosine of the vectors of the first word with and without the second one;
            0 on the diagonal, and for words without tokens.
    """

    words: list[Span]
    change: np.ndarray


def measure_influence(backend: Backend, tokenizer: Tokenizer, text: str, layer: int, longest: int) -> Influence:
    """Return the influence of the words of a text on the vectors of a layer.

    Args:
        backend: computes the hidden states.
        tokenizer: the model's.
        text: at least two words.
        layer: number of the layer; 0 is the embeddings.
        longest: the maximum number of tokens that the model reads.

    Raises:
        UserError: the text has fewer than two words, or too many tokens.
    """
    samples, read = frame_influence(tokenizer, text, longest)
    return read(in_order(backend.layers(samples, (layer,))))


def frame_influence(
    tokenizer: Tokenizer, text: str, longest: int
) -> tuple[list[Sample], Callable[[Sequence[np.ndarray]], Influence]]:
    """Return the samples to encode, and what converts their hidden states in a layer, (tokens, 1, width) each.

    The samples are the text, and the text without each of its words. See `measure_influence`.
    """
    sentence = split_text(text)
    words = list(zip(sentence.starts, sentence.stops, strict=True))
    if len(words) < 2:
        raise UserError("influence is measured between words, and the text has fewer than two", remedy="add words")
    texts = [(text, words), *(_without(sentence, index) for index in range(len(words)))]
    framed = [frame_tokens(tokenizer, [shorter], longest) for shorter, _ in texts]

    def read(states: Sequence[np.ndarray]) -> Influence:
        whole, *shorter = (
            _vectors(rows[:, 0], tokens, spans)  # (words, width)
            for rows, (_, tokens), (_, spans) in zip(states, framed, texts, strict=True)
        )
        change = np.zeros((len(words), len(words)), np.float32)
        for index, without in enumerate(shorter):
            others = np.arange(len(words)) != index
            change[others, index] = _distances(whole[others], without)
        return Influence(words, change)

    return [sample for sample, _ in framed], read


def _without(sentence: TaggedSentence, index: int) -> tuple[str, list[Span]]:
    """Return the text without a word and the space before it, and the spans of the other words in it."""
    text, starts, stops = sentence.text, sentence.starts, sentence.stops
    cut, end = (stops[index - 1], stops[index]) if index else (starts[0], starts[1])
    left, right = text[:cut], text[end:]
    gap = ""
    if left[-1:].isalnum() and right[:1].isalnum():  # "well-known" without the hyphen
        gap = join_words([left[-1], right[0]])[0][1:-1]
    moved = end - cut - len(gap)
    spans = list(zip(starts, stops, strict=True))
    after = [(start - moved, stop - moved) for start, stop in spans[index + 1 :]]
    return left + gap + right, spans[:index] + after


def _vectors(rows: np.ndarray, tokens: Sequence[Token], words: Sequence[Span]) -> np.ndarray:
    """Return the mean of each word's tokens, (words, width), from (tokens, width); 0 for words without tokens."""
    extents = np.array([(token.start, token.end) if token.text == 0 else (0, 0) for token in tokens])  # (tokens, 2)
    spans = np.array(words)  # (words, 2)
    inside = (extents[:, 0] < spans[:, 1:]) & (extents[:, 1] > spans[:, :1])  # (words, tokens)
    return inside @ rows / np.maximum(inside.sum(1, keepdims=True), 1)


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return 1 - cosine of each pair of rows, at least 0; 0 where a row is 0."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products = (first * second).sum(1)
    return np.where(norms > 0, 1 - products / np.where(norms > 0, norms, 1), 0).clip(0)
