"""Folded texts are those of a naive definition by the Unicode database, however many are folded together."""

import random
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import folding
from unmask.data.labelled.folding import FoldedTexts, fold, fold_all


def ordinary(character):
    form, _, code = unicodedata.decomposition(character).partition(" ")
    return chr(int(code, 16)) if form in ("<wide>", "<narrow>") else character


def naive(text):
    composed = unicodedata.normalize("NFC", "".join(map(ordinary, text)))
    composed = unicodedata.normalize("NFC", composed.casefold())
    left = [
        it
        for it in composed
        if unicodedata.category(it)[0] not in "PZ" and unicodedata.category(it) not in ("Cc", "Cf")
    ]
    return ("".join(left) or text.replace("\0", " ").strip()).encode("utf8", "surrogatepass")


@given(st.text())
def test_folding_is_that_of_the_unicode_database(text):
    assert fold(text) == naive(text)


def test_every_character_is_folded_as_alone():
    texts = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200), sys.maxunicode)]
    assert list(fold_all(texts)) == list(map(naive, texts))


SPECIAL = [
    character
    for character in map(chr, range(0x80, 0x20000))
    if unicodedata.combining(character) or unicodedata.decomposition(character) or len(character.casefold()) > 1
]
HANGUL = [chr(code) for code in (*range(0x1100, 0x1200), *range(0xAC00, 0xAC60))]
POOLS = (
    "ab AB.,!\t\0",
    "ＡｂＣ２０+＋ｶﾊﾞﾟガﾡ　",
    "aé’–“ ÉΣß\u0301\u200b",
    SPECIAL,
    HANGUL,
    " .;\0\n",
    "中文。字",
    "\ud83d\ude00😀+",
)


@pytest.mark.seeds(60)
def test_many_texts_are_folded_like_each_alone(monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(folding, "CHUNK", rng.choice([1, 3, 20, 1024]))
    pools = rng.sample(POOLS, rng.randint(1, 3))
    texts = ["".join(rng.choices(rng.choice(pools), k=rng.randrange(9))) for _ in range(rng.randrange(80))]
    folded = fold_all(texts)
    expected = list(map(naive, texts))
    assert list(folded) == [folded[index] for index in range(len(texts))] == expected
    chosen = np.array([rng.random() < 0.5 for _ in texts], bool)
    assert list(folded.select(chosen)) == [text for text, flag in zip(expected, chosen, strict=True) if flag]
    assert list(FoldedTexts.of(expected)) == expected


def test_all_characters_that_may_compose_are_known():
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(sys.maxunicode + 1))
    second = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    assert folding._second() >= {character for character in second if not unicodedata.combining(character)}


@pytest.mark.seeds(50)
def test_blocks_are_the_content_in_the_order_of_the_texts(monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(folding, "CHUNK", rng.randint(1, 9))
    texts = ["".join(rng.choices("abcé", k=rng.randrange(1, 9))) for _ in range(rng.randrange(60))]
    folded = fold_all(texts)
    starts, stops = folded.spans()
    blocks = list(folded.blocks(rng.choice([1, 30, 1000])))
    assert [start for start, _ in blocks] == [0, *(stop for _, stop in blocks)][: len(blocks)]
    inside = [np.flatnonzero((start <= starts) & (stops < stop)).tolist() for start, stop in blocks]
    assert [index for part in inside for index in part] == list(range(len(texts)))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Not bad!", "not  bad"),
        ("caf\u00e9", "CAFE\u0301"),
        ("don't", "dont"),
        ("stra\u00dfe", "STRASSE"),
        ("a\u200bb", "ab"),
        ("\u4f60\u597d\u3002", "\u4f60\u597d"),
        ("２０２０年、ＪＲ", "2020年, jr"),
        ("ｶﾞﾊﾟ", "ガパ"),
        ("end\r\n", "end"),
    ],
)
def test_what_people_read_as_the_same_is_equal(text, other):
    assert fold(text) == fold(other)


@pytest.mark.parametrize(
    ("text", "other"),
    [("C++", "C"), ("\U0001f600", "\U0001f622"), ("?", "!"), ("1", "2"), ("\u0915\u093f", "\u0915"), ("x²", "x2")],
)
def test_symbols_marks_and_digits_make_a_difference(text, other):
    assert fold(text) != fold(other)
