"""Tests of the properties of kinds of vocabularies."""

import pickle

import numpy as np
import pytest

from unmask.data.tokenizers.bpe import BERT_BPE, BPE, FALLBACK_BPE, WORD_BPE
from unmask.data.tokenizers.tokenizer import ROLES
from unmask.data.tokenizers.unigram import UNIGRAM
from unmask.data.tokenizers.word_level import WORDS
from unmask.data.tokenizers.wordpiece import WORDPIECE

KINDS = [WORDPIECE, BPE, UNIGRAM, WORD_BPE]


@pytest.mark.parametrize("kind", [*KINDS, BERT_BPE], ids=[*(kind.name for kind in KINDS), "bpe as in BERT"])
def test_each_kind_names_all_special_tokens(kind):
    assert set(kind.special) == set(ROLES)
    assert len(set(kind.special.values())) == len(ROLES)


@pytest.mark.parametrize(
    ("kind", "tokens", "expected"),
    [
        (WORDPIECE, [None, "", "the", "##s"], [True, True, True, False]),
        (BPE, [None, "", "Ġthe", "s"], [True, True, True, False]),
        (UNIGRAM, [None, "", "▁the", "s"], [True, True, True, False]),
        (WORD_BPE, [None, "", "the</w>", "s</w>"], [True, True, True, True]),
    ],
    ids=[kind.name for kind in KINDS],
)
def test_each_kind_finds_where_words_begin(kind, tokens, expected):
    assert kind.starts(tokens)(np.arange(4)).tolist() == expected


@pytest.mark.parametrize("kind", [*KINDS, FALLBACK_BPE, WORDS], ids=lambda kind: kind.name)
def test_each_kind_is_copied_to_processes_that_encode(kind):
    assert pickle.loads(pickle.dumps(kind)) == kind
