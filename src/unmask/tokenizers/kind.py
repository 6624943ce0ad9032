"""What tells one kind of tokenizer from another: a constant of its own file each (`wordpiece.py`, `bpe.py`, ...)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders

from unmask.errors import UserError

Starts = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
"""Ids of a text to whether a word begins at each."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Beside the library's own tokenizer, which holds vocabulary, normaliser and pre-tokeniser.

    Attributes:
        name: "wordpiece", "bpe", "unigram" or "word_bpe".
        special: what the special tokens are called where nothing says otherwise.
        decoder: makes what writes pieces as text.
        starts: makes of the pieces in order, None for special tokens and "" for the unknown one, what tells where words
            begin.
        save: writes what lies beside tokenizer.json, and returns the class and its settings for transformers.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        before: what stands before a word within a text.
        grows: whether special tokens that the vocabulary lacks are added at its end; else it is refused.
    """

    name: str
    special: Mapping[str, str]
    decoder: Callable[[], decoders.Decoder]
    starts: Callable[[Sequence[str | None]], Starts]
    save: Callable[[tokenizers.Tokenizer, Path], dict[str, Any]]
    ends_twice: bool = False
    before: str = ""
    grows: bool = False


def read_text(path: Path) -> str:
    """Read a file of a tokenizer.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8", file=path) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read an optional file that holds a JSON object.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no JSON ({error})", file=path) from error
    if not isinstance(content, dict):
        raise UserError("holds no JSON object", file=path)
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, readable."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
