"""The vectors of words from their characters: ELMo's convolutions (Kim et al. 2016; bilm-tf, `bilm/training.py`).

Input: the bytes of each word. Output: a vector for each word. Convolutions of several sizes run over the embeddings of
the bytes, with the maximum over all positions of each filter; highway layers and a projection follow. Every distinct
word of a batch is computed once. Padding after a word has an embedding of its own and takes part in the maximum, as in
bilm-tf: as all windows of padding alone are equal, only the first of them is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.data.tokenizers.words import CHARACTERS, PADDING
from unmask.nn.layers.linear import Linear

CHUNK = 512
"""Number of distinct words, of similar lengths, that are computed together."""
WordActivation = Literal["relu", "tanh"]
ACTIVATIONS: dict[WordActivation, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class CharacterCnn(nn.Module):
    """See the module.

    Args:
        characters: width of the embeddings of bytes.
        filters: size and number of the filters of each convolution.
        highways: number of highway layers.
        width: width of a word's vector.
        activation: activation after the convolutions.
    """

    def __init__(
        self,
        characters: int,
        filters: Sequence[tuple[int, int]],
        highways: int,
        width: int,
        activation: WordActivation = "relu",
    ) -> None:
        super().__init__()
        inner = sum(number for _, number in filters)
        self.sizes = [size for size, _ in filters]
        self.activation = ACTIVATIONS[activation]
        self.characters = nn.Embedding(CHARACTERS, characters)
        self.filters = nn.ModuleList(Linear(size * characters, number) for size, number in filters)
        self.highways = nn.ModuleList(Highway(inner) for _ in range(highways))
        self.project = Linear(inner, width)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of words.

        Args:
            ids: the bytes of each word, as `spell` returns them, (words, longest) int64.

        Returns:
            (words, width).
        """
        first, word = distinct(ids)
        lengths, order = (ids[first] != PADDING).sum(1).sort()
        chunks = zip(torch.split(first[order], CHUNK), torch.split(lengths, CHUNK), strict=True)
        rows = torch.cat([self._filtered(ids[chosen], int(longest[-1])) for chosen, longest in chunks])
        for highway in self.highways:
            rows = highway(rows)
        return self.project(rows).index_select(0, order.argsort()[word])

    def _filtered(self, ids: Tensor, longest: int) -> Tensor:
        """Return the maxima of all filters over words of at most `longest` ids, (words, filters)."""
        x = self.characters(ids[:, : longest + max(self.sizes)])  # (words, length, width of the embeddings)
        maxima = []
        for size, filters in zip(self.sizes, self.filters, strict=True):
            windows = x[:, : longest + size].unfold(1, size, 1)  # (words, windows, width of the embeddings, size)
            maxima.append(filters(windows.flatten(2).flatten(0, 1)).view(len(ids), windows.shape[1], -1).max(1).values)
        return self.activation(torch.cat(maxima, 1))


class Highway(nn.Module):
    """g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x)) (Srivastava et al. 2015).

    Args:
        width: width of the input and the output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = Linear(width, width)
        self.transform = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (words, width)."""
        return torch.lerp(x, self.transform(x).relu(), self.gate(x).sigmoid())


def distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of one row for each distinct row of a matrix, and the number of each row's representative.

    Rows are compared by a hash of 64 bits, since comparing whole rows takes longer than a layer.

    Shape:
        ids: (rows, any number) int64; returns (distinct rows,) and (rows,).
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, (ids.shape[1],), generator=generator).to(ids.device)
    _, number = torch.unique((ids * factors).sum(1), return_inverse=True)
    first = number.new_empty(int(number.max()) + 1 if len(number) else 0)
    first[number] = torch.arange(len(ids), device=ids.device)
    return first, number
