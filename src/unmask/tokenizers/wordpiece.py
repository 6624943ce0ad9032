"""WordPiece, BERT's kind of vocabulary: read from `vocab.txt`, or trained on one's own text.

Trained, special tokens have the ids 0 to 4, then come all characters, those of them that continue a word (##), and the
merged pieces in the order of merging. The same texts give the same vocabulary.

Devlin et al. 2019, section 3; Wu et al. 2016, section 4.1. As in BERT's successors the pieces are merged by frequency
(byte-pair encoding), not by likelihood: Google never published the trainer of BERT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from unmask.errors import UserError, refuse_string
from unmask.tokenizers.kind import Kind, Starts, read_text
from unmask.tokenizers.tokenizer import Tokenizer

SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""What the special tokens are called in BERT."""
PREFIX = "##"
_BRACKETED = re.compile(r"\[.*\]", re.DOTALL)
_REPEATS = 10_000  # words in one text for the trainer
_LONGEST_WORD = 100  # characters; WordPiece reads what is longer as [UNK], so nothing is to be learned from it


def _starts(pieces: Sequence[str | None]) -> Starts:
    return np.array([piece is None or not piece.startswith(PREFIX) for piece in pieces]).__getitem__


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    pieces = sorted(library.get_vocab().items(), key=lambda item: item[1])
    lines = "".join(f"{piece}\n" for piece, _ in pieces)
    (directory / "vocab.txt").write_text(lines, encoding="utf-8", newline="\n")
    normalizer = library.normalizer
    return {
        # transformers builds the tokenizer anew from the vocabulary and these settings; of its classes only this one
        # gives segment ids.
        "tokenizer_class": "BertTokenizerFast",
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
    }


WORDPIECE = Kind(name="wordpiece", special=SPECIAL_TOKENS, decoder=decoders.WordPiece, starts=_starts, save=_save)


def read_vocabulary(path: Path, special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Read a vocabulary of one piece a line.

    Args:
        path: vocab.txt.
        special: the names of its special tokens.

    Raises:
        UserError: it cannot be read, or a piece stands there twice.
    """
    # No splitlines: pieces may be characters that it takes for line ends.
    pieces = read_text(path).removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for id, piece in enumerate(pieces):
        if piece in vocabulary:
            raise UserError(f"'{piece}' stands in line {vocabulary[piece] + 1} too", file=path, line=id + 1)
        vocabulary[piece] = id
    ordinary = (piece for piece in pieces if not _BRACKETED.fullmatch(piece) and piece not in special.values())
    return bert_wordpiece(vocabulary, lowercase=all(piece == piece.lower() for piece in ordinary))


def bert_wordpiece(vocabulary: Mapping[str, int], *, lowercase: bool) -> tokenizers.Tokenizer:
    """Put BERT's normaliser and pre-tokeniser before a vocabulary."""
    library = tokenizers.Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk_token"]))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def train_wordpiece(texts: Iterable[str], *, size: int, lowercase: bool = True, progress: bool = False) -> Tokenizer:
    """Train a vocabulary.

    Args:
        texts: read once; what is kept of them are the counts of their words.
        size: how many pieces the vocabulary shall have at most, special tokens included; a small text gives fewer,
            because what occurs only once is not merged.
        lowercase: lower-case and strip accents, in training and in use.
        progress: show a progress bar on standard error.

    Returns:
        The tokenizer.

    Raises:
        UserError: there is no text, or its characters alone are more than `size`.
    """
    refuse_string(texts)
    words = _count_words(texts, lowercase, progress)
    if not words:
        raise UserError("there is no text to train a tokenizer on")
    characters = sorted({character for word in words for character in word})
    continuing = sorted({PREFIX + character for word in words for character in word[1:]})
    fixed = [*SPECIAL_TOKENS.values(), *characters, *continuing]
    if size < len(fixed):
        raise UserError(
            f"a vocabulary of {size} is too small for the characters of this text",
            remedy=f"it needs at least {len(fixed)} pieces",
        )
    # The library numbers continuing characters in the order of a hash map, which differs from run to run and breaks
    # ties between merges. Named beforehand, as if they were special tokens, they have the same numbers in every run.
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
    vocabulary = {piece: id for id, piece in enumerate([*fixed, *merged])}
    return Tokenizer(bert_wordpiece(vocabulary, lowercase=lowercase), WORDPIECE)


def _count_words(texts: Iterable[str], lowercase: bool, progress: bool) -> dict[str, int]:
    """Count words as BERT cuts them: in the library, on all cores. It shows them only in a trainer's pickled state."""
    trainer = trainers.WordPieceTrainer(vocab_size=0, show_progress=progress)
    bert_wordpiece({"[UNK]": 0}, lowercase=lowercase).train_from_iterator(texts, trainer)
    state = json.loads(trainer.__getstate__())
    words: dict[str, int] = state["WordPieceTrainer"]["bpe_trainer"]["words"]
    return {word: count for word, count in words.items() if len(word) <= _LONGEST_WORD}


def repeat(words: Mapping[str, int]) -> Iterator[str]:
    """Write each word as often as it was counted, for a trainer that reads only texts."""
    for word, count in sorted(words.items()):
        for start in range(0, count, _REPEATS):
            yield f"{word} " * min(_REPEATS, count - start)
