"""Tests of word boundaries in byte-level BPE: words begin where they should, whichever tokens a text is split into."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.tokenizers.bpe import to_bytes, train_bpe
from unmask.data.tokenizers.words import WordStarts


def words(tokenizer, text):
    """The words of a text, as bytes."""
    ids = tokenizer.encode(text)
    begins = tokenizer.begins_word(ids)
    assert begins[:1].all()
    pieces = [to_bytes(piece) for piece in tokenizer.tokens(ids)]
    found = []
    for piece, new in zip(pieces, begins, strict=True):
        if new:
            found.append(b"")
        found[-1] += piece
    return found


def test_where_words_begin(bpe):
    """Pieces of one byte alone, and the bpe ones: the same words."""
    alone = train_bpe(["a"], size=261)
    for tokenizer in (bpe, alone):
        assert words(tokenizer, "The old dog, isnt it?") == [b"The", b" old", b" dog", b",", b" isnt", b" it", b"?"]
        assert words(tokenizer, "Größe naïve Привет") == ["Größe".encode(), " naïve".encode(), " Привет".encode()]
        assert words(tokenizer, "日本語 人") == [one.encode() for one in ("日", "本", "語", " 人")]
        assert words(tokenizer, "e\u0301a x1y2") == ["e\u0301a".encode(), b" x1y2"]


def test_marks_and_invisible_characters_begin_no_word(bpe):
    """Marks and invisible characters, such as joiners and soft hyphens, continue a word."""
    alone = train_bpe(["a"], size=261)
    for tokenizer in (bpe, alone):
        for text in ("می\u200cخواهم", "ക്ഷ\u200dമ", "soft\u00adhyphen", "cafe\u0301s"):
            assert words(tokenizer, text) == [text.encode()], text
    pieces = ["ท", "ี", "่", "ร", "ู้", "は", "\u3099", "な", "な\u3099"]
    starts = WordStarts(
        piece.encode() for piece in pieces
    )  # single bytes of a character do not distinguish marks from letters
    for ids, expected in (([0, 1, 2, 3, 4], [1, 0, 0, 1, 0]), ([5, 6, 7, 8, 6], [1, 0, 1, 1, 0])):
        assert starts(np.array(ids))[1:].tolist() == [bool(begins) for begins in expected[1:]]


@given(st.text(alphabet="ab 1é中ท.,'\n", max_size=30))
def test_no_word_is_split(bpe, text):
    """A word never begins within a character or within a run of letters and digits."""
    at = 0
    raw = text.encode()
    for word in words(bpe, text) if text else []:
        assert word
        if at:
            before, after = raw[:at].decode(), raw[at:].decode()  # raises an error within a character
            spaced = after[:1].isspace() or before[-1:].isspace()
            unspaced = any(one in "中ท" for one in (before[-1:], after[:1]))
            assert spaced or unspaced or not (before[-1:].isalnum() and after[:1].isalnum())
        at += len(word)


def test_special_tokens_are_separate_words():
    starts = WordStarts([None, b"a", b"b", b" c"])
    assert starts(np.array([1, 2, 0, 2, 3, 1])).tolist() == [True, False, True, True, True, False]
    assert starts(np.array([], np.int64)).tolist() == []
