"""What each attention head attends to.

Input: an encoder, and one text or a pair as a sample. Output: the attention probabilities of each layer and head, as in
Vaswani et al. 2017, equation 1, softmax(Q K^T / sqrt(width)), or for XLNet with relative positions (Yang et al. 2019).

Kernels are injected, so reading needs no code in the bodies: a copy of the encoder, which shares its weights, gets
kernels that also return the probabilities. It works for every body that is built of unmask's attention layers. ELMo has
no attention; `inference/influence.py` measures what all bodies have in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample, Tokens, collate
from unmask.inference.backend import inference_copy
from unmask.inference.tokens import Token
from unmask.nn.encoders.encoder import Encoder
from unmask.nn.layers import plain_attention, relative_kernels
from unmask.nn.layers.attention import SelfAttention
from unmask.nn.layers.attention_spec import AttentionSpec
from unmask.nn.layers.relative_attention import RelativeAttention
from unmask.nn.layers.relative_view import Rows
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


def has_attention(encoder: Encoder) -> bool:
    """Return whether `read_attention` can read an encoder."""
    return any(isinstance(module, SelfAttention | RelativeAttention) for module in encoder.modules())


def read_attention(encoder: Encoder, sample: Sample) -> np.ndarray:
    """Return the attention probabilities of a sample in float32, (layers, heads, tokens, tokens).

    Raises:
        UserError: the encoder has no attention, or reads a sample of this length in windows.
    """
    if not has_attention(encoder):
        raise UserError(
            "this model has no attention (ELMo is made of LSTMs)", remedy="use influence, which every model has"
        )
    found: list[Tensor] = []

    def absolute(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
        found.extend(plain_attention.probabilities(qkv, tokens, spec))  # each (sequences, heads, tokens, tokens)
        return plain_attention.plain(qkv, tokens, spec)

    def relative(inputs: relative_kernels.Inputs, rows: Rows, dropout: float) -> Tensor:
        found.append(relative_kernels.probabilities(inputs, rows).transpose(0, 1))
        return relative_kernels.plain(inputs, rows, dropout)

    copy = inference_copy(encoder, choose_machine("cpu", "float32"))
    for module in copy.modules():
        if isinstance(module, SelfAttention):
            module.kernel = absolute
        elif isinstance(module, RelativeAttention):
            module.kernel = relative
    with torch.inference_mode():
        copy(collate([sample.named((0,))]).tokens)
    if any(weights.shape[-1] != len(sample) for weights in found):
        raise UserError(f"this model reads {len(sample)} tokens in windows with memory", remedy="use a shorter text")
    return torch.cat(found).numpy()
