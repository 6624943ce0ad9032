"""Scripts without spaces: one set of letters, compared with the names of Unicode, and known wherever words are told."""

import re
import unicodedata
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unmask.data.cleaning.overlap import split_words as words_of_overlap
from unmask.data.cleaning.rule import Document
from unmask.data.labelled.tagged_sentence import split_text
from unmask.data.tokenizers.words import WordStarts
from unmask.inference.search import split_words as words_of_search
from unmask.support.scripts import UNSPACED

SCRIPTS = re.compile(
    "(THAI|LAO|MYANMAR|KHMER|(NEW )?TAI (LE|LUE|THAM|VIET)|BALINESE|JAVANESE|AHOM|"
    "BOPOMOFO|YI|HENTAIGANA|(HALFWIDTH )?(HIRAGANA|KATAKANA|KATAKANA-HIRAGANA)|"
    "CJK (UNIFIED|COMPATIBILITY)|IDEOGRAPHIC (ITERATION|CLOSING|NUMBER)) "
)
CODES = [code for code in range(0x80, 0x40000) if unicodedata.category(chr(code))[0] in "LMN"]
LETTERS = [chr(code) for code in CODES if SCRIPTS.match(unicodedata.name(chr(code), ""))]
BASES = [letter for letter in LETTERS if unicodedata.category(letter) in ("Lo", "Lm")]


def test_the_letters_are_those_that_unicode_names():
    known = re.compile(f"[{UNSPACED}]")
    missing = [letter for letter in LETTERS if not known.match(letter)]
    assert missing == []
    others = set(map(chr, CODES)).difference(LETTERS)
    more = [unicodedata.name(letter) for letter in others if known.match(letter)]
    assert [name for name in more if not name.startswith(("HANGZHOU", "VERTICAL", "MASU", "COMBINING KAT"))] == []


@given(st.lists(st.sampled_from(BASES), min_size=2, max_size=6))
def test_each_letter_is_known_wherever_words_are_told(letters):
    text = "".join(letters)
    assert words_of_overlap(text) == [*unicodedata.normalize("NFC", text)]
    assert Document(text).words == letters
    assert not Document(text).is_spaced
    lowered = text.lower()
    assert words_of_search(text) == [first + second for first, second in pairwise(lowered)]
    starts = WordStarts([letter.encode() for letter in letters])
    assert starts(list(range(len(letters)))).all()
    sentence = split_text(text)
    assert [text[a:b] for a, b in zip(sentence.starts, sentence.stops, strict=True)] == letters
