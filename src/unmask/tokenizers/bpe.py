"""Train a byte-level BPE vocabulary on one's own text.

In: texts. Out: a `Tokenizer` with GPT-2's pre-tokeniser and RoBERTa's special tokens, whose ids are RoBERTa's: `<s>` 0,
`<pad>` 1, `</s>` 2, `<unk>` 3, and `<mask>` last. Every text can be written in its pieces, as all 256 bytes are among
them. The same texts give the same vocabulary.

Sennrich et al. 2016; Radford et al. 2019 (GPT-2), section 2.2; Liu et al. 2019 (RoBERTa), section 4.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from unmask.errors import UserError
from unmask.tokenizers.tokenizer import BPE_SPECIAL_TOKENS, Tokenizer, byte_bpe

_FIRST = ("cls_token", "pad_token", "sep_token", "unk_token")
"""The roles of the first four ids; the mask comes last."""
BYTES = 256


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
    return Tokenizer(byte_bpe({piece: id for id, piece in enumerate(names)}, merges), BPE_SPECIAL_TOKENS)
