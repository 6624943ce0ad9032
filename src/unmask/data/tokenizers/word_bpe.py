"""BPE vocabularies in which `</w>` marks the last token of a word, as in GPT, read from `vocab.json` and `merges.txt`.

Text is lower-cased and split into words as in BERT (transformers, tokenization_openai.py, which uses spaCy's words only
if spaCy is installed). `<unk>` is the only special token of such a vocabulary; the others are appended to it, as the
reference code does for each task (Radford et al. 2018, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from unmask.data.tokenizers.bpe import BPE_SPECIAL_TOKENS
from unmask.data.tokenizers.kind import Kind, Starts, write_model

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


def _starts(tokens: Sequence[str | None]) -> Starts:
    alone = np.array([not token for token in tokens])
    ends = alone | np.array([(token or "").endswith(END) for token in tokens])

    def starts(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        before: npt.NDArray[np.bool_] = np.concatenate([[True], ends[ids]])[: len(ids)]
        return before | alone[ids]

    return starts


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    write_model(library, directory)
    return {"tokenizer_class": "PreTrainedTokenizerFast"}  # GPT's own class in transformers adds no special tokens


WORD_BPE = Kind(
    name="word_bpe",
    special=BPE_SPECIAL_TOKENS,
    decoder=lambda: decoders.BPEDecoder(suffix=END),
    starts=_starts,
    save=_save,
    adds_special_tokens=True,
)
