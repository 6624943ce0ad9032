"""WordPiece vocabularies, as in BERT, read from `vocab.txt` or trained.

In a trained vocabulary the special tokens have the ids 0 to 4; then follow the characters, those that continue a word
(##), and the merged tokens in the order of merging. Training is deterministic: the same texts give the same
vocabulary.

Devlin et al. 2019, section 3; Wu et al. 2016, arXiv 1609.08144, section 4.1. As in BERT's successors, tokens are merged
by frequency (byte-pair encoding), not by likelihood: Google never published BERT's trainer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from unmask.data.text.whole_files import read_text
from unmask.data.tokenizers.counting import count_words, no_text, repeat
from unmask.data.tokenizers.coverage import COVERAGE, LONGEST_WORD, covered_words
from unmask.data.tokenizers.tokenizer import (
    BPE_SPECIAL_TOKENS,
    GENERAL_CLASS,
    SPECIAL_TOKENS,
    Kind,
    Starts,
    Tokenizer,
    write_vocabulary,
)
from unmask.support.errors import UserError
from unmask.support.notices import warn

PREFIX = "##"
_BRACKETED = re.compile(r"\[.*\]", re.DOTALL)
_MOST_LOST = 0.01  # share of the text's characters in longer words from which on users are told


def _starts(tokens: Sequence[str | None]) -> Starts:
    return np.array([token is None or not token.startswith(PREFIX) for token in tokens]).__getitem__


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    write_vocabulary(library, directory)
    normalizer = library.normalizer
    usual = normalizer.clean_text and library.model.max_input_chars_per_word == LONGEST_WORD
    return {
        # transformers rebuilds the tokenizer from the vocabulary and these settings; only this class returns segment
        # ids.
        "tokenizer_class": "BertTokenizerFast" if usual else GENERAL_CLASS,
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
    }


WORDPIECE = Kind(name="wordpiece", special=SPECIAL_TOKENS, decoder=decoders.WordPiece(), starts=_starts, save=_save)


def _save_library(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    config = _save(library, directory)
    return config if config["tokenizer_class"] == GENERAL_CLASS else {**config, "tokenizer_class": "MPNetTokenizer"}


MPNET_WORDPIECE = replace(
    WORDPIECE,
    special={**BPE_SPECIAL_TOKENS, "unk_token": SPECIAL_TOKENS["unk_token"]},
    save=_save_library,
    ends_twice=True,
)
"""WordPiece with RoBERTa's special tokens and frame of pairs, as in MPNet."""


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocabulary with one token per line; return the ids of the tokens, in their order.

    Spaces and tabs after a token are no part of it, as in transformers.

    Raises:
        UserError: it cannot be read, or contains a token twice.
    """
    # Not splitlines, which would split at characters that may be tokens.
    lines = read_text(path).removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for id, line in enumerate(lines):
        token = line.rstrip(" \t") or line
        if token in vocabulary:
            raise UserError(f"'{token}' is also in line {vocabulary[token] + 1}", file=path, line=id + 1)
        vocabulary[token] = id
    return vocabulary


def is_lowercase(vocabulary: Iterable[str], special: Collection[str]) -> bool:
    """Return whether no token has a capital letter, apart from special ones and others in brackets."""
    ordinary = (token for token in vocabulary if not _BRACKETED.fullmatch(token) and token not in special)
    return all(token == token.lower() for token in ordinary)


def bert_wordpiece(vocabulary: Mapping[str, int], *, lowercase: bool) -> tokenizers.Tokenizer:
    """Return a WordPiece model with BERT's normalizer and pre-tokenizer."""
    library = tokenizers.Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk_token"]))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _size(words: Mapping[str, int]) -> int:
    """Return the number of characters of words, given how often each occurs."""
    return sum(len(word) * count for word, count in words.items())


def train_wordpiece(
    texts: Iterable[str], *, size: int, lowercase: bool = True, coverage: float = COVERAGE, progress: bool = False
) -> Tokenizer:
    """Train a vocabulary.

    Args:
        texts: the texts, which are iterated over once; only the counts of their words are kept in memory.
        size: maximum size of the vocabulary, including special tokens; a small text gives fewer tokens, because pairs
            that occur only once are not merged.
        lowercase: whether to lower-case and to strip accents, in training and in use.
        coverage: share of the text's characters that have tokens, the most frequent ones; a word with another one is
            unknown.
        progress: whether to show a progress bar on standard error.

    Returns:
        The tokenizer. An `InputWarning` says how much of the text is in words that are too long for it.

    Raises:
        UserError: there is no text, its words are too long, or `size` is too small for its characters.
    """
    counted = count_words(bert_wordpiece({"[UNK]": 0}, lowercase=lowercase), texts, progress=progress)
    usable = {word: count for word, count in counted.items() if len(word) <= LONGEST_WORD}
    words = covered_words(usable, coverage)
    if not words:
        if not counted:
            raise no_text()
        raise UserError(
            f"every word of the text has more than {LONGEST_WORD} characters, and WordPiece reads them as unknown",
            remedy="train a vocabulary of the kind unigram, or put spaces between words",
        )
    if (lost := 1 - _size(usable) / _size(counted)) > _MOST_LOST:
        warn(
            f"{lost:.0%} of the text is in words of more than {LONGEST_WORD} characters, which WordPiece reads as "
            "unknown, as in proteins, and scripts without spaces between words, such as Thai: train a vocabulary of "
            "the kind unigram",
        )
    characters = sorted({character for word in words for character in word})
    continuing = sorted({PREFIX + character for word in words for character in word[1:]})
    fixed = [*SPECIAL_TOKENS.values(), *characters, *continuing]
    if size < len(fixed):
        raise UserError(
            f"a vocabulary of {size} is too small for the characters of this text",
            remedy=f"it needs at least {len(fixed)} tokens",
        )
    # The library numbers continuing characters in the order of a hash map, which differs from run to run and decides
    # ties between merges. Listed as special tokens, they have the same numbers in every run.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS.values(), *continuing],
        show_progress=progress,
    )
    library = tokenizers.Tokenizer(models.WordPiece())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(repeat(words), trainer)
    trained = library.get_vocab()
    merged = sorted(trained.keys() - set(fixed), key=trained.__getitem__)
    vocabulary = {token: id for id, token in enumerate([*fixed, *merged])}
    return Tokenizer(bert_wordpiece(vocabulary, lowercase=lowercase), WORDPIECE)
