"""The vector of a text, from those of its tokens: kinds of pooling, and dense layers over the pooled vector.

Input: the last layer of a batch. Output: a vector for each sequence, in float32. The kinds are those of the module
Pooling of sentence-transformers, and the layers its module Dense; names there are in checkpoints/sentence_modules.py.
Special tokens count as others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import torch
from torch import Tensor, nn

from unmask.data.batches.tokens import Tokens
from unmask.nn.encoders.encoder import HeadSpec, mean_vectors
from unmask.support.choices import PoolingKind

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
}
"""Activations of dense layers; sentence-transformers names the classes."""
TINY = 1e-12
"""Smallest norm that vectors are divided by, as in `torch.nn.functional.normalize`."""


class Dense(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dense layer over the vector of a text.

    Attributes:
        width: number of its outputs.
        activation: its activation; one of `ACTIVATIONS`.
        bias: whether it has a bias.
    """

    width: int
    activation: str = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError("width must be at least 1")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}")


class DenseLayers(nn.Module):
    """Dense layers, each with its activation, which are applied one after the other.

    Args:
        layers: their settings.
        width: width of their input.
    """

    def __init__(self, layers: Sequence[Dense], width: int) -> None:
        super().__init__()
        widths = [width, *(layer.width for layer in layers)]
        self.linear = nn.ModuleList(
            nn.Linear(before, layer.width, bias=layer.bias) for before, layer in zip(widths, layers, strict=False)
        )
        self.activations = [ACTIVATIONS[layer.activation]() for layer in layers]

    @classmethod
    def new(cls, layers: Sequence[Dense], spec: HeadSpec) -> DenseLayers:
        """Return newly initialized layers over a body."""
        made = cls(layers, spec.width)
        spec.init(made)
        return made

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the outputs of the last layer, (texts, width)."""
        for linear, activation in zip(self.linear, self.activations, strict=True):
            vectors = activation(linear(vectors))
        return vectors


def pool(kind: PoolingKind, last: Tensor, tokens: Tokens, summary: Tensor) -> Tensor:
    """Return the vector of each sequence, (sequences, width) float32.

    Args:
        kind: "mean", "max" or the sum divided by the square root of the length ("mean-sqrt") of all tokens; the mean
            weighted by their positions, from 1 ("weighted-mean"); the last token ("last"); or "cls", where the model
            reads the vector of a text.
        last: (tokens, width); values at padding in the stream (`unmask.nn.encoders.stored`) do not count.
        tokens: determines the sequences.
        summary: the tokens where the model reads the vectors, (sequences,).
    """
    if kind == "cls":
        return last.index_select(0, summary).float()
    if kind == "mean":
        return mean_vectors(last, tokens)
    group = tokens.groups[0]
    if (real := group.real_in_batch) is not None:  # for export: one group
        return _pool_padded(kind, last.float().view(group.sequences, group.longest, -1), real)
    offsets = tokens.offsets.long()
    lengths = offsets.diff()[:, None].float()  # (sequences, 1)
    if kind == "last":
        return last.index_select(0, offsets[1:] - 1).float()
    if kind == "max":
        return torch.segment_reduce(last.float(), "max", offsets=offsets, axis=0)
    if kind == "mean-sqrt":
        return mean_vectors(last, tokens) * lengths.sqrt()
    weights = (tokens.position_ids + 1)[:, None].float()  # (tokens, 1)
    return torch.segment_reduce(last.float() * weights, "sum", offsets=offsets, axis=0) / (lengths * (lengths + 1) / 2)


def unit_vectors(vectors: Tensor) -> Tensor:
    """Return vectors divided by their norms, as `torch.nn.functional.normalize`.

    If a norm overflows, they are not numbers, so that they are noticed as such; there they are 0.

    Shape:
        vectors: (vectors, width), float32.
    """
    norms = vectors.norm(dim=1, keepdim=True).clamp_min(TINY)  # (vectors, 1)
    return vectors / norms + (norms - norms).detach()


def _pool_padded(kind: PoolingKind, rows: Tensor, real: Tensor) -> Tensor:
    """Return what `pool` does for padded rows, (sequences, longest, width), of which some are real; padding is last."""
    lengths = real.sum(1, keepdim=True)  # (sequences, 1)
    if kind == "max":
        return rows.masked_fill(~real[..., None], -torch.inf).amax(1)
    places = torch.arange(rows.shape[1], device=rows.device)
    if kind == "last":
        return torch.where((places == lengths - 1)[..., None], rows, 0).sum(1)
    if kind == "mean-sqrt":
        return torch.where(real[..., None], rows, 0).sum(1) / lengths.float().sqrt()
    weights = torch.where(real, places + 1, 0)[..., None].float()  # (sequences, longest, 1)
    return torch.where(real[..., None], rows * weights, 0).sum(1) / weights.sum(1)
