"""BPE over words whose last piece is marked (`</w>`), GPT's kind of vocabulary: read from `vocab.json`, `merges.txt`.

Text is lower-cased and cut into words as BERT does (transformers, tokenization_openai.py, which takes spaCy's words
only where spaCy is installed). Its vocabulary has no special tokens but `<unk>`: the others are added at its end, as
the reference code does for each task (Radford et al. 2018, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from unmask.tokenizers.bpe import BPE_SPECIAL_TOKENS
from unmask.tokenizers.kind import Kind, Starts

END = "</w>"
"""Of the last piece of a word."""


def word_bpe(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], unk: str) -> tokenizers.Tokenizer:
    """Put BERT's normaliser and pre-tokeniser before a vocabulary.

    Args:
        vocabulary: pieces to ids.
        merges: pairs of pieces, the first merged first.
        unk: the piece for what the vocabulary cannot write.
    """
    model = models.BPE(dict(vocabulary), list(merges), end_of_word_suffix=END, unk_token=unk)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _starts(pieces: Sequence[str | None]) -> Starts:
    alone = np.array([not piece for piece in pieces])
    ends = alone | np.array([(piece or "").endswith(END) for piece in pieces])

    def starts(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        before: npt.NDArray[np.bool_] = np.concatenate([[True], ends[ids]])[: len(ids)]
        return before | alone[ids]

    return starts


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    library.model.save(str(directory))  # vocab.json and merges.txt
    return {"tokenizer_class": "PreTrainedTokenizerFast"}  # transformers' own class for it adds no special tokens


WORD_BPE = Kind(
    name="word_bpe",
    special=BPE_SPECIAL_TOKENS,
    decoder=lambda: decoders.BPEDecoder(suffix=END),
    starts=_starts,
    save=_save,
    grows=True,
)
