"""The input representation: token, position and segment embeddings, summed (Devlin et al. 2019, figure 2)."""

from __future__ import annotations

from torch import Tensor, nn

from unmask.batches.batch import Tokens
from unmask.layers.dropout import Dropout


class Embeddings(nn.Module):
    """Sum of three embeddings, LayerNorm, dropout.

    Args:
        vocabulary, positions, segments: sizes of the three tables.
        width: of the embeddings.
        dropout: on the normalised sum.
        epsilon: of the LayerNorm.
    """

    def __init__(
        self, vocabulary: int, positions: int, segments: int, width: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(segments, width)
        self.norm = nn.LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the embedded tokens, (tokens, width)."""
        x = self.words(tokens.ids) + self.segments(tokens.segments) + self.positions(tokens.places)  # (tokens, width)
        return self.dropout(self.norm(x))
