"""Byte-level BPE, the kind of vocabulary of GPT-2 and RoBERTa: read from `vocab.json` and `merges.txt`, or trained.

Trained, it has GPT-2's pre-tokeniser and RoBERTa's special tokens, whose ids are RoBERTa's: `<s>` 0, `<pad>` 1, `</s>`
2, `<unk>` 3, and `<mask>` last. Every text can be written in its pieces, as all 256 bytes are among them. The same
texts give the same vocabulary. A vocabulary without special tokens, such as GPT-2's own, gets them at its end.

Sennrich et al. 2016; Radford et al. 2019 (GPT-2), section 2.2; Liu et al. 2019 (RoBERTa), section 4.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from unmask.errors import UserError, refuse_string
from unmask.tokenizers.kind import Kind, Starts
from unmask.tokenizers.tokenizer import Tokenizer
from unmask.tokenizers.words import WordStarts

BPE_SPECIAL_TOKENS = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
"""What the special tokens are called in RoBERTa."""
_FIRST = ("cls_token", "pad_token", "sep_token", "unk_token")
"""The roles of the first four ids; the mask comes last."""
BYTES = 256


def byte_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], *, prefix: bool = False
) -> tokenizers.Tokenizer:
    """Put GPT-2's pre-tokeniser, which cuts words and writes bytes as characters, before a vocabulary.

    Args:
        vocabulary: pieces to ids.
        merges: pairs of pieces, the first merged first.
        prefix: put a space before a text that has none.
    """
    library = tokenizers.Tokenizer(models.BPE(dict(vocabulary), list(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return library


def to_bytes(piece: str) -> bytes:
    """Return the bytes that a piece of a byte-level BPE is written for."""
    return bytes(_BYTES.get(character, 0x20) for character in piece)


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character that GPT-2 writes bytes as (encoder.py of openai/gpt-2)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_characters()


def _starts(pieces: Sequence[str | None]) -> Starts:
    return WordStarts(to_bytes(piece) if piece else None for piece in pieces)


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    library.model.save(str(directory))  # vocab.json and merges.txt
    prefix = library.pre_tokenizer.add_prefix_space
    return {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": prefix, "trim_offsets": True}


BPE = Kind(
    name="bpe",
    special=BPE_SPECIAL_TOKENS,
    decoder=decoders.ByteLevel,
    starts=_starts,
    save=_save,
    ends_twice=True,
    before=" ",
    grows=True,
)


def train_bpe(texts: Iterable[str], *, size: int, progress: bool = False) -> Tokenizer:
    """Train a vocabulary, cased as the text is.

    Args:
        texts: read once.
        size: how many pieces the vocabulary shall have at most, special tokens included; a small text gives fewer,
            because what occurs only once is not merged.
        progress: show a progress bar on standard error.

    Raises:
        UserError: there is no text, or `size` has no room for the bytes.
    """
    fixed = BYTES + len(BPE_SPECIAL_TOKENS)
    if size < fixed:
        raise UserError(f"a vocabulary of {size} is too small", remedy=f"it needs at least {fixed} pieces: all bytes")
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(BPE_SPECIAL_TOKENS), min_frequency=2, initial_alphabet=alphabet, show_progress=progress
    )
    refuse_string(texts)
    empty = True

    def read() -> Iterator[str]:
        nonlocal empty
        for text in texts:
            empty = empty and not text.strip()
            yield text

    library.train_from_iterator(read(), trainer)
    if empty:
        raise UserError("there is no text to train a tokenizer on")
    trained = json.loads(library.to_str())["model"]
    pieces = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    names = [*(BPE_SPECIAL_TOKENS[role] for role in _FIRST), *pieces, BPE_SPECIAL_TOKENS["mask_token"]]
    merges = [(first, second) for first, second in trained["merges"]]
    return Tokenizer(byte_bpe({piece: id for id, piece in enumerate(names)}, merges), BPE)
