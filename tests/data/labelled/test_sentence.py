"""Tests of splitting texts into words and of joining words into texts; offsets are code points."""

import re
import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text
from unmask.support.scripts import UNSPACED

OLD = unicodedata.ucd_3_2_0
"""The tokenizers library has older tables than Python; it treats later additions to punctuation as letters."""


def is_old(character):
    return not unicodedata.category(character).startswith("P") or OLD.category(character) != "Cn"


WORDS = st.lists(st.text(min_size=1, max_size=6), max_size=12)


def words_of(text):
    return split_text(text).words


def test_words_of_a_text():
    assert words_of("U.S. troops, 1,000 strong.") == ["U", ".", "S", ".", "troops", ",", "1", ",", "000", "strong", "."]
    assert words_of("李明met王芳 in\u3000北京") == ["李", "明", "met", "王", "芳", "in", "北", "京"]
    assert words_of("  \t ") == words_of("") == []
    assert words_of("e\u0301cole “x”") == ["e\u0301cole", "“", "x", "”"]


def test_offsets_are_code_points():
    sentence = split_text("😀 Zürich 𠀀𠀁!")
    assert [*zip(sentence.starts, sentence.stops, strict=True)] == [(0, 1), (2, 8), (9, 10), (10, 11), (11, 12)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("สมชายอยู่ในเชียงใหม่", "ส ม ช า ย อ ยู่ ใ น เ ชี ย ง ใ ห ม่"),
        ("東京タワーに行った。", "東 京 タ ワ ー に 行 っ た 。"),
        ("か\u3099ｶﾞ時々", "か\u3099 ｶ ﾞ 時 々"),
        ("ＮＨＫは3人", "ＮＨＫ は 3 人"),
        ("葛\U000e0100飾", "葛\U000e0100 飾"),
        ("မြန်မာ ភាសា abcลาว", "မြ န် မာ ភា សា abc ล า ว"),
    ],
)
def test_letters_of_scripts_without_spaces_are_words_with_their_marks(text, words):
    assert words_of(text) == words.split(" ")


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="\ufffd").filter(is_old)))
@example("U.S. 李明met 「東京」 €5 naïve—x")
def test_words_are_those_of_bert(text):
    """BERT's normalizer would also remove control characters and U+FFFD, and change letters.

    It does not split Thai, for example, nor kana or radicals, and splits marks from Chinese characters.
    """
    basic = BasicTokenizer(do_lower_case=False, strip_accents=False)
    text = unicodedata.normalize("NFC", text)
    names = [unicodedata.name(character, "") for character in text]
    assume(
        not any(
            re.match(f"[{UNSPACED}]", character) and not basic._is_chinese_char(ord(character)) for character in text
        )
    )
    assume(
        not any(
            name[:3] == "CJK" and unicodedata.category(mark)[0] == "M"
            for name, mark in zip(names, text[1:], strict=False)
        )
    )
    assert words_of(text) == basic.tokenize(text)


@given(st.text(st.characters(codec="utf-8").filter(is_old)))
def test_words_are_at_their_offsets(text):
    sentence = split_text(text)
    assert sentence.text == text
    assert sentence.words == [text[start:stop] for start, stop in zip(sentence.starts, sentence.stops, strict=True)]
    assert all(sentence.words)
    kept = "".join(sentence.words)
    assert kept == "".join(character for character in text if not character.isspace() or character in kept)
    for word in sentence.words:
        assert len(word) == 1 or not any(unicodedata.category(character).startswith("P") for character in word)


@given(WORDS)
def test_joined_words_are_found_again(words):
    sentence = TaggedSentence(*join_words(words))
    assert sentence.words == words
    assert len(set(zip(sentence.starts, sentence.stops, strict=True))) == len(words)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["EU", "rejects", "."], "EU rejects ."),
        ([*"高勇：男，"], "高勇：男，"),
        (["李", "明", "met", "王"], "李明 met 王"),
        (["東京", "タワー", "へ"], "東京タワーへ"),
        (["สมชาย", "อยู่", "ใน", "Bangkok"], "สมชายอยู่ใน Bangkok"),
        ([], ""),
    ],
)
def test_text_of_words(words, text):
    assert join_words(words)[0] == text


def test_an_empty_word_is_refused():
    with pytest.raises(ValueError, match="a word is empty"):
        join_words(["a", ""])


def test_entities_in_the_text():
    sentence = TaggedSentence(*join_words(["in", "New", "York", ",", "N.Y."]), ("O", "B-LOC", "I-LOC", "O", "B-LOC"))
    assert [sentence.text[start:stop] for _, start, stop in sentence.entities] == ["New York", "N.Y."]
