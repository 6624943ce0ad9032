"""Tests of reading and writing the files of a tokenizer, and of the kinds' properties."""

import pickle

import numpy as np
import pytest

from unmask.data.tokenizers.bpe import BERT_BPE, BPE, FALLBACK_BPE, WORD_BPE
from unmask.data.tokenizers.tokenizer import ROLES, read_json, read_text, write_json
from unmask.data.tokenizers.unigram import UNIGRAM
from unmask.data.tokenizers.word_level import WORDS
from unmask.data.tokenizers.wordpiece import WORDPIECE
from unmask.support.errors import UserError

KINDS = [WORDPIECE, BPE, UNIGRAM, WORD_BPE]


def test_text_is_utf8_or_named(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("a\r\né".encode())
    assert read_text(path) == "a\r\né", "line ends are kept"
    path.write_bytes(b"a\xff")
    with pytest.raises(UserError, match=rf"^{path}: is not UTF-8$"):
        read_text(path)
    path.unlink()
    with pytest.raises(UserError, match=rf"^{path}: cannot be read \(No such file or directory\)$"):
        read_text(path)


def test_json_is_an_object_or_named(tmp_path):
    path = tmp_path / "config.json"
    assert read_json(path) == {}, "the file is optional"
    content = {"b": [1, "é"], "a": None}
    write_json(path, content)
    assert read_json(path) == content
    assert path.read_text(encoding="utf-8") == '{\n  "b": [\n    1,\n    "é"\n  ],\n  "a": null\n}\n'
    for broken in ("{", "", "[" * 100_000):
        path.write_text(broken)
        with pytest.raises(UserError, match=rf"^{path}: is not valid JSON \("):
            read_json(path)
    for other in ("[1]", "null", '"text"'):
        path.write_text(other)
        with pytest.raises(UserError, match=rf"^{path}: does not contain a JSON object$"):
            read_json(path)


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
