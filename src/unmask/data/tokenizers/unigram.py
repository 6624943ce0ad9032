"""Unigram vocabularies, as in ALBERT, read from `spiece.model` or trained.

In a trained vocabulary the special tokens have ALBERT's ids: `<pad>` 0, `<unk>` 1, `[CLS]` 2, `[SEP]` 3, `[MASK]` 4. A
text is segmented into the pieces with the largest product of probabilities; characters that are in no piece become
`<unk>`. Training is deterministic: the same texts give the same vocabulary.

Kudo 2018, arXiv 1804.10959; Kudo and Richardson 2018, arXiv 1808.06226 (SentencePiece); Lan et al. 2020 (ALBERT),
section 4.1. Quotation marks, accents and case are treated as in ALBERT's code (tokenization.py of
google-research/albert, preprocess_text); unlike there, and as in transformers, a digit before a comma is not split off.

Reader of SentencePiece model files (`spiece.model`), which are protocol buffers.

Input: a file. Output: its pieces with their scores, the id of the unknown piece, and the table of its normalizer. Only
the few fields needed for this are read, without generated code (sentencepiece_model.proto of google/sentencepiece;
encoding: protobuf.dev).
"""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from unmask.data.text.files import read_whole
from unmask.data.tokenizers.counting import count_parts, no_text
from unmask.data.tokenizers.coverage import COVERAGE, covered_words
from unmask.data.tokenizers.tokenizer import (
    BPE_SPECIAL_TOKENS,
    GENERAL_CLASS,
    ROLES,
    SPECIAL_TOKENS,
    Kind,
    Starts,
    Tokenizer,
    write_no_vocabulary,
)
from unmask.data.tokenizers.words import SPACE, WordStarts
from unmask.support.errors import UserError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE = 3
_CHARSMAP = 2
_UNIGRAM = 1
_UNKNOWN = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    """The contents of a file.

    Attributes:
        pieces: the pieces with their scores, in the order of ids.
        unknown: the id of the unknown piece.
        charsmap: the normalizer's table; empty if there is none.
    """

    pieces: list[tuple[str, float]]
    unknown: int
    charsmap: bytes


def read_spiece(path: Path) -> SentencePieceModel:
    """Read a model file.

    Raises:
        UserError: it cannot be read, is not a SentencePiece model, or not a unigram model.
    """
    try:
        content = read_whole(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    pieces: list[tuple[str, float]] = []
    unknown, charsmap = [], b""
    kind: int | bytes = _UNIGRAM
    try:
        for number, value in _fields(content):
            if number == _PIECES:
                piece = dict(_fields(_bytes(value)))
                if piece.get(_TYPE) == _UNKNOWN:
                    unknown.append(len(pieces))
                score = struct.unpack("<f", _bytes(piece.get(_SCORE, bytes(4))))[0]
                pieces.append((_bytes(piece[_PIECE]).decode(), score))
            elif number == _TRAINER:
                kind = dict(_fields(_bytes(value))).get(_MODEL_TYPE, _UNIGRAM)
            elif number == _NORMALIZER:
                charsmap = _bytes(dict(_fields(_bytes(value))).get(_CHARSMAP, b""))
    except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        raise UserError("is not a valid SentencePiece model", file=path, remedy="copy it again") from error
    if not pieces:
        raise UserError("the vocabulary is empty", file=path)
    if kind != _UNIGRAM:
        raise UserError("is not a unigram model, the only supported kind of SentencePiece model", file=path)
    if len(unknown) != 1:
        raise UserError(f"has {len(unknown)} unknown pieces instead of one", file=path)
    return SentencePieceModel(pieces, unknown[0], charsmap)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: an integer, or the bytes of any other type.

    Raises:
        ValueError: the message is truncated, or has a field of an unknown wire type.
        IndexError: the message is truncated.
    """
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(content, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + size > len(content):
            raise ValueError("the message is truncated")
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


UNIGRAM_SPECIAL_TOKENS = dict(zip(ROLES, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), strict=True))
"""Names of the special tokens in ALBERT, in the order of their ids."""
MOST_COUNTED = 1 << 22
"""Maximum number of characters of the distinct words that are counted."""
RESERVED = frozenset("\0▅")
"""Characters that SentencePiece uses as marks: it learns from no word that has one."""
LONGEST_PIECE = 16
"""Maximum length of a trained piece in characters, as in SentencePiece."""


def albert_unigram(
    pieces: Sequence[tuple[str, float]], unknown: int, charsmap: bytes = b"", *, lowercase: bool, accents: bool = False
) -> tokenizers.Tokenizer:
    """Return a unigram model with ALBERT's normalizer and pre-tokenizer.

    Args:
        pieces: pieces and the logarithms of their probabilities, in the order of ids.
        unknown: the id of the unknown piece.
        charsmap: SentencePiece's table of character replacements; empty for none.
        lowercase: whether text is lower-cased.
        accents: whether accents are kept.

    Raises:
        Exception: the library cannot read the table.
    """
    library = tokenizers.Tokenizer(models.Unigram(list(pieces), unknown, byte_fallback=False))
    tables = [normalizers.Precompiled(charsmap)] if charsmap else []
    library.normalizer = albert_normalizer(tables, lowercase=lowercase, accents=accents)
    library.pre_tokenizer = split_at_spaces()
    return library


def albert_normalizer(
    tables: Sequence[normalizers.Normalizer], *, lowercase: bool, accents: bool
) -> normalizers.Normalizer:
    """Return ALBERT's normalizer; for the arguments see `albert_unigram`."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [] if accents else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence([*steps, *tables])


def split_at_spaces(*, marked: bool = True) -> pre_tokenizers.PreTokenizer:
    """Return what splits text into words at spaces; each begins with `SPACE` if they are marked."""
    mark = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always" if marked else "never")
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])


def _starts(pieces: Sequence[str | None]) -> Starts:
    # an unknown character counts as a letter, as it may be in the middle of a word
    return WordStarts(None if piece is None else (piece or "x").replace(SPACE, " ").encode() for piece in pieces)


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    text = library.normalizer.normalize_str("Á") if library.normalizer else "Á"
    lowercase, accents = text.islower(), text not in ("A", "a")
    usual = json.loads(albert_unigram([("", 0.0)], 0, lowercase=lowercase, accents=accents).to_str())
    ours = json.loads(library.to_str())
    steps = (ours["normalizer"] or {}).get("normalizers", [])
    if steps and steps[-1]["type"] == "Precompiled":  # transformers takes the table from tokenizer.json
        steps = steps[:-1]
    same = ours["pre_tokenizer"] == usual["pre_tokenizer"] and steps == usual["normalizer"]["normalizers"]
    name = "AlbertTokenizer" if same else GENERAL_CLASS
    return {"tokenizer_class": name, "do_lower_case": lowercase, "keep_accents": accents}


UNIGRAM = Kind(
    name="unigram",
    special=UNIGRAM_SPECIAL_TOKENS,
    decoder=decoders.Metaspace(replacement=SPACE, prepend_scheme="always"),
    starts=_starts,
    save=_save,
)


FAIRSEQ_UNIGRAM = replace(UNIGRAM, special=BPE_SPECIAL_TOKENS, save=write_no_vocabulary, ends_twice=True)
"""Unigram vocabularies with RoBERTa's special tokens and frame of pairs, as in XLM-RoBERTa and CamemBERT."""
DEBERTA_UNIGRAM = replace(UNIGRAM, special=SPECIAL_TOKENS, save=write_no_vocabulary, adds_special_tokens=True)
"""Unigram vocabularies with BERT's special tokens, as in DeBERTa-v2 and v3; their SentencePiece models lack [MASK]."""


def deberta_unigram(
    pieces: Sequence[tuple[str, float]], unknown: int, charsmap: bytes = b"", *, lowercase: bool, splits: bool
) -> tokenizers.Tokenizer:
    """Return a unigram model with the normalizer and pre-tokenizer of DeBERTa-v2 and v3.

    Args:
        pieces, unknown, charsmap, lowercase: see `albert_unigram`.
        splits: whether punctuation characters are separate words.

    Raises:
        Exception: the library cannot read the table.
    """
    library = tokenizers.Tokenizer(models.Unigram(list(pieces), unknown, byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.Strip(), *([normalizers.Precompiled(charsmap)] if charsmap else [])]
    library.normalizer = normalizers.Sequence([*steps, normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    words: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Punctuation()] if splits else []
    words.append(pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"))
    library.pre_tokenizer = pre_tokenizers.Sequence(words)
    return library


def train_unigram(
    texts: Iterable[str], *, size: int, lowercase: bool = True, coverage: float = COVERAGE, progress: bool = False
) -> Tokenizer:
    """Train a vocabulary by SentencePiece, on the words of the texts with their counts.

    Args:
        texts: the texts, which are iterated over once; only the counts of their words are kept in memory.
        size: maximum size of the vocabulary, including special tokens; a small text gives fewer pieces.
        lowercase: whether to lower-case and to strip accents, in training and in use.
        coverage: share of the text's characters that have pieces, the most frequent ones; the others are unknown.
        progress: whether to show a progress bar on standard error.

    Raises:
        UserError: there is no text, or `size` is too small for its characters.
    """
    names = list(UNIGRAM_SPECIAL_TOKENS.values())
    unknown = names.index(UNIGRAM_SPECIAL_TOKENS["unk_token"])
    library = albert_unigram([(names[unknown], 0.0)], 0, lowercase=lowercase, accents=not lowercase)

    def split(part: list[str]) -> Counter[str]:
        return Counter(word for text in part for word in library.normalizer.normalize_str(text).split())

    counts = count_parts(split, texts, progress=progress, most=MOST_COUNTED)
    words = {word: count for word, count in covered_words(counts, coverage).items() if RESERVED.isdisjoint(word)}
    if not words:
        raise no_text()
    characters = {SPACE}.union(*words)
    if size < len(names) + len(characters):
        raise UserError(
            f"a vocabulary of {size} is too small for the characters of this text",
            remedy=f"it needs at least {len(names) + len(characters)} tokens",
        )
    return Tokenizer(albert_unigram(_train(words, size), unknown, lowercase=lowercase, accents=not lowercase), UNIGRAM)


def _train(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Return the pieces of words with the logarithms of their probabilities, the special tokens first.

    One thread computes them, as sums of several depend on their number.
    """
    import sentencepiece  # takes 50 ms, which loading a tokenizer would pay

    padding, unknown, *others = UNIGRAM_SPECIAL_TOKENS.values()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{count}" for word, count in sorted(words.items())),
        input_format="tsv",
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        hard_vocab_limit=False,
        max_sentencepiece_length=LONGEST_PIECE,
        max_sentence_length=1 << 30,  # words of any length
        character_coverage=1.0,  # words have the covered characters alone
        normalization_rule_name="identity",
        pad_id=0,
        pad_piece=padding,
        unk_id=1,
        unk_piece=unknown,
        bos_id=-1,
        eos_id=-1,
        control_symbols=others,
        num_threads=1,
        minloglevel=2,
    )
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [(trained.id_to_piece(id), trained.get_score(id)) for id in range(len(trained))]
