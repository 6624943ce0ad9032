"""The characters of words: bilm-tf's ids."""

import numpy as np

from unmask.data.tokenizers.words import BEGIN_SENTENCE, LONGEST, is_cut, spell


def test_bytes_stand_between_marks():
    assert spell("né".encode()).tolist() == [258, *"né".encode(), 259] + [260] * 45
    assert spell([BEGIN_SENTENCE])[:4].tolist() == [258, 256, 259, 260]
    assert spell(b"").tolist() == [258, 259] + [260] * 48
    assert spell(b"a").dtype == np.int16


def test_long_words_are_cut():
    word = "é" * 25  # 50 bytes
    assert spell(word.encode()).tolist() == [258, *word.encode()[:48], 259]
    assert len(spell(word.encode())) == LONGEST
    assert is_cut(word)
    assert not is_cut("é" * 24)
    assert not is_cut("a" * 48)
    assert is_cut("a" * 49)
