"""Byte-level BPE vocabularies, as in GPT-2 and RoBERTa, read from `vocab.json` and `merges.txt` or trained.

A trained vocabulary uses GPT-2's pre-tokenizer and RoBERTa's special tokens with RoBERTa's ids: `<s>` 0, `<pad>` 1,
`</s>` 2, `<unk>` 3, and `<mask>` last. It can encode any text, as it contains all 256 bytes. Training is deterministic:
the same texts give the same vocabulary. If a vocabulary, such as GPT-2's own, lacks special tokens, they are appended.

Vocabularies with byte fallback (`FALLBACK_BPE`) split whole texts, without regard to words.

ModernBERT's vocabulary (`BERT_BPE`) has the special tokens of BERT and composes Unicode characters (NFC).

Sennrich et al. 2016, arXiv 1508.07909; Radford et al. 2019 (GPT-2), section 2.2; Liu et al. 2019 (RoBERTa), section
4.4.

BPE vocabularies in which `</w>` marks the last token of a word, as in GPT, read from `vocab.json` and `merges.txt`.

Text is lower-cased and split into words as in BERT (transformers, tokenization_openai.py, which uses spaCy's words only
if spaCy is installed). `<unk>` is the only special token of such a vocabulary; the others are appended to it, as the
reference code does for each task (Radford et al. 2018, section 3.3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from unmask.data.tokenizers.counting import count_words, no_text, repeat
from unmask.data.tokenizers.tokenizer import (
    BPE_SPECIAL_TOKENS,
    GENERAL_CLASS,
    ROLES,
    SPECIAL_TOKENS,
    Kind,
    Starts,
    Tokenizer,
    write_model,
    write_no_vocabulary,
)
from unmask.data.tokenizers.words import SPACE, WordStarts
from unmask.support.errors import UserError

_FIRST = ("cls_token", "pad_token", "sep_token", "unk_token")
"""Roles of the first four ids; the mask token has the last id."""
BYTES = 256


def byte_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], *, prefix: bool = False
) -> tokenizers.Tokenizer:
    """Return a BPE with GPT-2's pre-tokenizer, which splits text into words and represents bytes as characters.

    Args:
        vocabulary: tokens to ids.
        merges: pairs of tokens in the order of merging.
        prefix: whether to add a space before a text that does not start with one.
    """
    library = tokenizers.Tokenizer(models.BPE(dict(vocabulary), list(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return library


def to_bytes(token: str) -> bytes:
    """Return the bytes that a token of a byte-level BPE represents."""
    return bytes(_BYTES.get(character, 0x20) for character in token)


def readable(token: str) -> str:
    """Return a token of a byte-level BPE as text; bytes that are only a part of a character as `\\xe3`."""
    return to_bytes(token).decode(errors="backslashreplace")


def _byte_characters() -> dict[str, int]:
    """Map the characters by which GPT-2 represents bytes to those bytes (encoder.py of openai/gpt-2)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_characters()


def _starts(tokens: Sequence[str | None]) -> Starts:
    return WordStarts(to_bytes(token) if token else None for token in tokens)


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    write_model(library, directory)
    model, words = library.model, library.pre_tokenizer
    other = model.unk_token or model.fuse_unk or model.byte_fallback or model.ignore_merges or not words.use_regex
    name = GENERAL_CLASS if other else "RobertaTokenizerFast"
    return {"tokenizer_class": name, "add_prefix_space": words.add_prefix_space, "trim_offsets": True}


BPE = Kind(
    name="bpe",
    special=BPE_SPECIAL_TOKENS,
    decoder=decoders.ByteLevel(),
    starts=_starts,
    save=_save,
    ends_twice=True,
    word_prefix=" ",
    adds_special_tokens=True,
    has_bytes=True,
)


BERT_BPE = replace(BPE, special=SPECIAL_TOKENS, save=write_no_vocabulary, ends_twice=False, adds_special_tokens=False)
"""Byte-level BPE with BERT's special tokens, which also puts one separator between texts, as in ModernBERT."""


def train_bpe(texts: Iterable[str], *, size: int, progress: bool = False) -> Tokenizer:
    """Train a vocabulary, which keeps the case of the text.

    Args:
        texts: the texts, which are iterated over once.
        size: maximum size of the vocabulary, including special tokens; a small text gives fewer tokens, because pairs
            that occur only once are not merged.
        progress: whether to show a progress bar on standard error.

    Raises:
        UserError: there is no text, or `size` is too small for the 256 bytes and the special tokens.
    """
    fixed = BYTES + len(BPE_SPECIAL_TOKENS)
    if size < fixed:
        raise UserError(
            f"a vocabulary of {size} is too small",
            remedy=f"it needs at least {fixed} tokens: all bytes and the special tokens",
        )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(BPE_SPECIAL_TOKENS), min_frequency=2, initial_alphabet=alphabet, show_progress=progress
    )
    splitter = tokenizers.Tokenizer(models.WordPiece())
    splitter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = count_words(splitter, texts, progress=progress)
    if not any(to_bytes(word).strip() for word in words):
        raise no_text()
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # bytes that are spaces are shown as other characters
    library.train_from_iterator(repeat(words), trainer)
    trained = json.loads(library.to_str())["model"]
    tokens = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    names = [*(BPE_SPECIAL_TOKENS[role] for role in _FIRST), *tokens, BPE_SPECIAL_TOKENS["mask_token"]]
    merges = [(first, second) for first, second in trained["merges"]]
    return Tokenizer(byte_bpe({token: id for id, token in enumerate(names)}, merges), BPE)


_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _fallback_starts(tokens: Sequence[str | None]) -> Starts:
    def content(token: str) -> bytes:
        byte = _BYTE.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode()

    return WordStarts(None if token is None else content(token or "x") for token in tokens)


FALLBACK_BPE = Kind(
    name="fallback_bpe",
    special=dict(zip(ROLES, ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>"), strict=True)),
    decoder=decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]),
    starts=_fallback_starts,
    save=write_no_vocabulary,
    word_prefix=" ",
    has_bytes=True,
)
"""BPE of characters in which spaces are part of the text, and characters without a token are bytes, as in Gemma and
mmBERT."""


def keeps_spaces(library: tokenizers.Tokenizer) -> bool:
    """Return whether a tokenizer is of the kind `FALLBACK_BPE`."""
    content = json.loads(library.to_str())
    words = content["pre_tokenizer"]
    whole = words is None or (words["type"] == "Split" and words["pattern"] == {"String": " "})  # no space is left
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return bool(content["model"].get("byte_fallback")) and content["normalizer"] == replaced and whole


END = "</w>"
"""Suffix of the last token of a word."""


def word_bpe(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], unk: str) -> tokenizers.Tokenizer:
    """Return a BPE with BERT's normalizer and pre-tokenizer.

    Args:
        vocabulary: tokens to ids.
        merges: pairs of tokens in the order of merging.
        unk: the unknown token.
    """
    model = models.BPE(dict(vocabulary), list(merges), end_of_word_suffix=END, unk_token=unk)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _word_starts(tokens: Sequence[str | None]) -> Starts:
    alone = np.array([not token for token in tokens])
    ends = alone | np.array([(token or "").endswith(END) for token in tokens])

    def starts(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        before: npt.NDArray[np.bool_] = np.concatenate([[True], ends[ids]])[: len(ids)]
        return before | alone[ids]

    return starts


def _save_words(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    write_model(library, directory)
    return {"tokenizer_class": GENERAL_CLASS}  # GPT's own class in transformers adds no special tokens


WORD_BPE = Kind(
    name="word_bpe",
    special=BPE_SPECIAL_TOKENS,
    decoder=decoders.BPEDecoder(suffix=END),
    starts=_word_starts,
    save=_save_words,
    adds_special_tokens=True,
)
