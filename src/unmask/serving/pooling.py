"""How the vector of a text is made of the hidden states of its tokens.

Input: the last layer of each text. Output: one vector per text. A directory of sentence-transformers states the pooling
in `1_Pooling/config.json`, and the maximum length in `sentence_bert_config.json`; all other models average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from unmask.batches.batch import Sample
from unmask.errors import UserError


@dataclass(frozen=True)
class Pooling:
    """Pooling of a model.

    Attributes:
        mode: "mean" of all tokens, special tokens included, or "cls", the vector at [CLS].
        longest: maximum number of tokens of a text; None: what the encoder reads.
    """

    mode: Literal["mean", "cls"] = "mean"
    longest: int | None = None

    def vectors(
        self, rows: Sequence[np.ndarray], samples: Sequence[Sample], *, normalize: bool, dimensions: int | None
    ) -> np.ndarray:
        """Return the vector of each text, (texts, dimensions), float32.

        Args:
            rows: the last layer of each text, (tokens, 1, width).
            samples: the texts.
            normalize: whether to divide by the Euclidean length.
            dimensions: number of first dimensions to keep; None: all.
        """
        if self.mode == "cls":
            found = np.stack(
                [one[sample.positions["summary"][0], 0] for one, sample in zip(rows, samples, strict=True)]
            )
        else:
            found = np.stack([one[:, 0].mean(0) for one in rows])
        found = found[:, :dimensions]  # (texts, dimensions)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12) if normalize else found


def read_pooling(directory: Path) -> Pooling:
    """Return the pooling of a model directory.

    Raises:
        UserError: a file is no JSON object, or states a pooling that is not supported.
    """
    path = directory / "1_Pooling" / "config.json"
    modes = [name.removeprefix("pooling_mode_") for name, on in _read(path).items() if on is True]
    modes = [name for name in modes if name in ("cls_token", "mean_tokens") or name.startswith(("max", "mean", "last"))]
    if modes not in ([], ["cls_token"], ["mean_tokens"]):
        raise UserError("this pooling is not supported", file=path, remedy="use a model with mean or cls pooling")
    length = _read(directory / "sentence_bert_config.json").get("max_seq_length")
    longest = length if isinstance(length, int) and length > 2 else None
    return Pooling("cls" if modes == ["cls_token"] else "mean", longest)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UserError("not a JSON object", file=path, remedy="copy the model again") from error
