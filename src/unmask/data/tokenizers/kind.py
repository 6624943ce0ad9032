"""Properties of a kind of tokenizer, and its files; each kind is a constant in a file of its own (`bpe.py`, ...)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders

from unmask.data.text.files import read_whole
from unmask.data.text.json_keys import refuse_duplicates
from unmask.support.durable import replace_file
from unmask.support.errors import UserError

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
SPIECE = ("spiece.model", "30k-clean.model", "spm.model")
"""Names of the SentencePiece model in transformers, in ALBERT's own release, and of DeBERTa."""
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", *SPIECE)
ALL_FILES = (*FILES, "merges.txt", "vocab.bpe", CONFIG, SPECIAL, ADDED)
"""Names of all files that are read."""
Starts = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
"""Maps the ids of a text to whether a word begins at each."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of tokenizer: what is not part of the library's own tokenizer (vocabulary, normalizer, pre-tokenizer).

    Attributes:
        name: "wordpiece", "bpe", "unigram", "word_bpe" or "fallback_bpe".
        special: default names of the special tokens, by role.
        decoder: returns the decoder that converts tokens to text.
        starts: takes the tokens in the order of ids, with None for special tokens and "" for the unknown token, and
            returns a function that finds where words begin.
        save: writes the files beside tokenizer.json, and returns the tokenizer class and settings for transformers.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        word_prefix: what precedes a word within a text.
        adds_special_tokens: whether special tokens that the vocabulary lacks are appended to it; otherwise such a
            vocabulary is an error.
    """

    name: str
    special: Mapping[str, str]
    decoder: Callable[[], decoders.Decoder]
    starts: Callable[[Sequence[str | None]], Starts]
    save: Callable[[tokenizers.Tokenizer, Path], dict[str, Any]]
    ends_twice: bool = False
    word_prefix: str = ""
    adds_special_tokens: bool = False


def read_text(path: Path) -> str:
    """Read a text file of a tokenizer.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_whole(path).decode()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8", file=path) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from an optional file; return an empty one if the file does not exist.

    Raises:
        UserError: the file cannot be read, or does not contain a JSON object.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(read_text(path), object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(content, dict):
        raise UserError("does not contain a JSON object", file=path)
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, indented for reading."""
    replace_file(path, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())


def write_model(library: tokenizers.Tokenizer, directory: Path) -> None:
    """Write the files of the library's model, vocab.json and merges.txt.

    Raises:
        OSError: they cannot be written; the library raises an `Exception` of its own.
    """
    try:
        library.model.save(str(directory))
    except Exception as error:
        code = re.search(r"os error (\d+)", str(error))
        if not code:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(directory)) from error
