"""Training of a vocabulary of any kind."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal

import msgspec

from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.coverage import COVERAGE, beginning, decomposition_note, loss_note
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.word_level import train_words
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError
from unmask.support.notices import warn

Trained = Literal["wordpiece", "bpe", "unigram", "words"]
"""Kinds of vocabulary that can be trained."""
CASED = ("bpe", "words")
"""Those that are always cased, and have tokens for all characters."""
MAX_SIZE = 10_000_000
"""Maximum size of a vocabulary; the largest published ones have a few hundred thousand tokens."""
PADDING: dict[Trained, int] = {"wordpiece": 0, "bpe": 1, "unigram": 0, "words": 2}
"""The id of the padding token in a trained vocabulary."""


class TokenizerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [tokenizer], used only with raw text, as a corpus has its own tokenizer.

    Attributes:
        kind: "wordpiece", "bpe" (byte-level), "unigram" (SentencePiece's) or "words" (for models that read characters).
        vocabulary: number of tokens.
        lowercase: whether to lowercase and strip accents; byte-level BPE and whole words never do.
    """

    kind: Trained = "wordpiece"
    vocabulary: int = 30522
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.kind in CASED and self.lowercase:
            raise ValueError(f'lowercase has no effect on kind = "{self.kind}": set it to false')


def train_vocabulary(
    kind: Trained,
    texts: Iterable[str],
    *,
    size: int,
    lowercase: bool,
    coverage: float = COVERAGE,
    progress: bool = False,
) -> Tokenizer:
    """Train a vocabulary; see `train_wordpiece`, `train_unigram`, and `train_bpe` and `train_words`, which are
    always cased and cover everything.

    An `InputWarning` says how many letters of the first texts lose marks (`coverage.lost_marks`), or are decomposed.

    Raises:
        UserError: there is no text, or `size` is too small.
    """
    if size > MAX_SIZE:  # the library would allocate memory for all of it
        raise UserError(f"a vocabulary of {size:,} tokens is larger than {MAX_SIZE:,}", remedy="choose a smaller one")
    first = beginning(texts := iter(texts))
    texts = chain(first, texts)
    tokenizer: Tokenizer
    match kind:
        case "bpe":
            tokenizer = train_bpe(texts, size=size, progress=progress)
        case "words":
            tokenizer = train_words(texts, size=size, progress=progress)
        case "unigram":
            tokenizer = train_unigram(texts, size=size, lowercase=lowercase, coverage=coverage, progress=progress)
        case "wordpiece":
            tokenizer = train_wordpiece(texts, size=size, lowercase=lowercase, coverage=coverage, progress=progress)
    for text in (loss_note(first, tokenizer.normalize), decomposition_note(first, tokenizer.normalize)):
        if text:
            warn(text)
    return tokenizer
