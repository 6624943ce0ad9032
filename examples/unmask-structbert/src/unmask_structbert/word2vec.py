"""The token embeddings in the text format of word2vec, which gensim reads: a line for each token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unmask.model.model import Model
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS
from unmask.objectives.objective import decoder_of
from unmask.support.errors import UserError


def write_word2vec(model: Model, folder: Path) -> Sequence[str]:
    """See `Exporter`.

    Raises:
        UserError: the encoder has no token embeddings.
    """
    if TOKEN_EMBEDDINGS not in model.encoder.provides:
        raise UserError("this encoder has no token embeddings")
    tokens = model.tokenizer.tokens(range(model.tokenizer.size))
    table = decoder_of(model.encoder).detach()[: len(tokens)]  # (tokens, width)
    lines = [
        " ".join([token, *(f"{value:.6g}" for value in row)]) for token, row in zip(tokens, table.tolist(), strict=True)
    ]
    header = f"{len(tokens)} {table.shape[1]}"
    (folder / "vectors.txt").write_text("\n".join([header, *lines]) + "\n", encoding="utf8")
    return ["layers and heads are left out"]
