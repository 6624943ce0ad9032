"""Equal and nearly equal texts are those that a naive comparison of all pairs finds."""

import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.labelled.duplicates import (
    NGRAM,
    SIMILAR,
    fold,
    fold_all,
    identities,
    near_duplicates,
    ngrams,
    overlap,
)


def naive(text):
    composed = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    left = [
        it
        for it in composed
        if unicodedata.category(it)[0] not in "PZ" and unicodedata.category(it) not in ("Cc", "Cf")
    ]
    return "".join(left) or text.replace("\0", " ").strip()


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_folding_is_that_of_the_unicode_database(text):
    assert fold(text) == naive(text).encode("utf8", "surrogatepass")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=5)))
def test_many_texts_are_folded_like_each_alone(texts):
    assert fold_all(texts) == [fold(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Not bad!", "not  bad"),
        ("caf\u00e9", "CAFE\u0301"),
        ("don't", "dont"),
        ("stra\u00dfe", "STRASSE"),
        ("a\u200bb", "ab"),
        ("\u4f60\u597d\u3002", "\u4f60\u597d"),
        ("end\r\n", "end"),
    ],
)
def test_what_people_read_as_the_same_is_equal(text, other):
    assert fold(text) == fold(other)


@pytest.mark.parametrize(
    ("text", "other"), [("C++", "C"), ("\U0001f600", "\U0001f622"), ("?", "!"), ("1", "2"), ("\u0915\u093f", "\u0915")]
)
def test_symbols_marks_and_digits_make_a_difference(text, other):
    assert fold(text) != fold(other)


def test_pairs_are_equal_in_any_order_but_not_to_their_concatenation():
    first, swapped, joined, single = identities([("a b", "c"), ("C.", "ab"), ("a", "b c"), ("a b c",)])
    assert first == swapped
    assert len({first, joined, single}) == 3


def made(seed):
    """Texts of random words, and copies of some of them of which some words are replaced."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij\u00e9\u4e2d", k=rng.randint(1, 9))) for _ in range(500)]
    train = [" ".join(rng.choices(words, k=rng.randint(1, 25))) for _ in range(200)]
    held = []
    for number in range(120):
        copied = rng.choice(train).split()
        for _ in range(number % 4):
            copied[rng.randrange(len(copied))] = rng.choice(words)
        held.append(" ".join(copied))
    return train, held


@pytest.mark.parametrize("seed", range(50))
def test_overlap_is_what_a_comparison_of_all_pairs_finds(seed):
    train, held = made(seed)
    found = overlap([(text,) for text in train], [(text,) for text in held])
    folded, asked = [naive(text) for text in train], [naive(text) for text in held]
    assert found.equal == {index: folded.index(text) for index, text in enumerate(asked) if text in folded}
    known = [ngrams(text.encode()) for text in folded]
    similar = set()
    for index, text in enumerate(asked):
        grams = ngrams(text.encode())
        if index not in found.equal and any(len(grams & it) >= SIMILAR * len(grams | it) > 0 for it in known):
            similar.add(index)
    assert found.near.keys() <= similar
    assert len(similar - found.near.keys()) <= 1
    for index, place in found.near.items():
        grams = ngrams(asked[index].encode())
        assert len(grams & known[place]) >= SIMILAR * len(grams | known[place])


@pytest.mark.parametrize("few", [0, 50])
def test_characters_are_left_out_one_by_one_or_together(monkeypatch, few):
    monkeypatch.setattr("unmask.data.labelled.duplicates.FEW_LEFT_OUT", few)
    texts = ["naïve “ok”… – 😀!", "«a»\u200b b\u3000c", "ÀÉ, e\u0301", "…", "plain"]
    assert fold_all(texts) == [naive(text).encode() for text in texts]


def test_texts_that_share_a_phrase_are_compared():
    """Their common n-grams are in the sketches of all: pairs are then counted, and compared, in another way."""
    rng, ending = random.Random(0), " with kind regards from the whole team of the shop"
    for _ in range(50):
        train = [("".join(rng.choices("abcdef ", k=rng.randrange(5, 60))) + ending,) for _ in range(60)]
        held = [(rng.choice(train)[0][rng.randrange(8) :] + rng.choice("xyz"),) for _ in range(20)]
        known, asked = identities(train), identities(held)
        similar = [
            {number for number, other in enumerate(known) if reference(text, other) >= SIMILAR} for text in asked
        ]
        result = overlap(train, held)
        pairs = result.near | result.equal
        assert all(pairs[index] in similar[index] for index in pairs)
        # half of a sketch is in common in almost all cases
        assert len(pairs) >= 0.95 * sum(map(bool, similar))


def reference(text, other):
    first, second = ({it[start : start + NGRAM] for start in range(len(it) - NGRAM + 1)} for it in (text, other))
    return len(first & second) / max(1, len(first | second))


def test_short_and_no_texts_are_similar_to_none():
    assert near_duplicates([], [b"abcdefghijk"]) == near_duplicates([b"abcdefghijk"], []) == {}
    short = b"a" * (NGRAM - 1)
    assert near_duplicates([short, b""], [short, b"", b"abcdefghijk"]) == {}


def test_texts_in_several_chunks_are_compared(monkeypatch):
    train, held = made(0)
    whole = overlap([(text,) for text in train], [(text,) for text in held])
    monkeypatch.setattr("unmask.data.labelled.duplicates.CHUNK", 100)
    assert overlap([(text,) for text in train], [(text,) for text in held]) == whole
