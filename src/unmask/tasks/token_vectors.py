"""What a task declares whose models make vectors of the tokens of texts, which are compared by late interaction.

`Vectors.tokens` of a task is a `TokenEncoder`, by which the program embeds, searches, reranks and serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from unmask.support.choices import PromptName

if TYPE_CHECKING:
    from unmask.data.batches.batch import Sample
    from unmask.data.labelled.labelled_file import Row
    from unmask.data.tokenizers.tokenizer import Tokenizer

VECTORS = "vectors"
"""Name of the positions of the tokens that have a vector."""
Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Returns the scores of some texts with others, (texts, others), given their numbers."""


class TokenEncoder(Protocol):
    """How texts become vectors of tokens, and how these are compared.

    For a sample that `frame_texts` returns, the head predicts (vectors, width) float32, a row for each of the sample's
    positions `VECTORS`, of norm 1. Single texts without gold labels are framed as documents.
    """

    @property
    def length(self) -> int:
        """Maximum number of tokens of a document, special tokens included."""

    @property
    def query_length(self) -> int:
        """Maximum number of tokens of a query."""

    @property
    def width(self) -> int:
        """Width of a vector."""

    def frame_texts(
        self, tokenizer: Tokenizer, rows: Sequence[Row], name: PromptName
    ) -> tuple[list[Sample], list[bool], tuple[str, ...]]:
        """Return texts, all queries or all documents, as samples; whether each was truncated; and notes."""

    def comparison(self, outputs: Sequence[np.ndarray]) -> Compare:
        """Return the function that compares texts, given the vectors of the tokens of each, (vectors, width)."""
