"""Equal and nearly equal texts are those that a naive comparison of all pairs finds."""

import random
import unicodedata
from functools import partial

import numpy as np
import pytest

from unmask.data.labelled import duplicates, folding
from unmask.data.labelled.duplicates import (
    NGRAM,
    SIMILAR,
    distinct,
    near_duplicates,
    ngrams,
    overlap,
)
from unmask.data.labelled.folding import FoldedTexts
from unmask.data.labelled.identities import Identities, identities


def naive(text):
    composed = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    left = [
        it
        for it in composed
        if unicodedata.category(it)[0] not in "PZ" and unicodedata.category(it) not in ("Cc", "Cf")
    ]
    return "".join(left) or text.replace("\0", " ").strip()


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


def compare(train, held, search=overlap):
    return search(*(Identities.of((text,) for text in part) for part in (train, held)))


@pytest.mark.seeds(50)
def test_overlap_is_what_a_comparison_of_all_pairs_finds(seed):
    train, held = made(seed)
    found = compare(train, held)
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


@pytest.mark.seeds(50)
def test_estimates_find_what_nearly_equals_a_sample(seed):
    train, held = made(seed)
    known, asked = (Identities.of((text,) for text in part) for part in (train, held))
    whole = overlap(known, asked)
    assert overlap(known, asked, len(known)) == whole
    estimate = overlap(known, asked, 80)
    assert (whole.searched, estimate.searched) == (len(train), 80)
    assert (estimate.equal, estimate.compared) == (whole.equal, whole.compared)
    assert estimate.near.keys() <= whole.near.keys()
    for index, place in estimate.near.items():
        assert similar(naive(asked.texts[index]).encode(), naive(train[place]).encode())


@pytest.mark.seeds(50)
def test_the_share_of_what_is_found_in_a_sample_is_its_share(seed):
    """Each held-out text nearly equals one training text; the sample is from all parts of them."""
    rng = random.Random(seed)
    train = ["".join(rng.choices("abcdefgh", k=90)) for _ in range(400)]
    if seed % 2:
        train.sort()
    estimate = compare(train, [text + "x" for text in train], partial(overlap, most=100))
    assert not estimate.equal
    assert 98 <= len(estimate.near) <= 100  # sketches miss one of 600
    assert all(index == place for index, place in estimate.near.items())
    assert all(
        15 <= sum(start <= place < start + 100 for place in estimate.near.values()) <= 35
        for start in (0, 100, 200, 300)
    )


def test_texts_that_share_a_phrase_are_compared():
    """Their common n-grams are in the sketches of all: pairs are then counted, and compared, in another way."""
    rng, ending = random.Random(0), " with kind regards from the whole team of the shop"
    for _ in range(15):
        train = [("".join(rng.choices("abcdef ", k=rng.randrange(5, 60))) + ending,) for _ in range(60)]
        held = [(rng.choice(train)[0][rng.randrange(8) :] + rng.choice("xyz"),) for _ in range(20)]
        known, asked = identities(train), identities(held)
        similar = [
            {number for number, other in enumerate(known) if reference(text, other) >= SIMILAR} for text in asked
        ]
        result = overlap(Identities.of(train), Identities.of(held))
        pairs = result.near | result.equal
        assert all(pairs[index] in similar[index] for index in pairs)
        # half of a sketch is in common in almost all cases
        assert len(pairs) >= 0.95 * sum(map(bool, similar))


def reference(text, other):
    first, second = ({it[start : start + NGRAM] for start in range(len(it) - NGRAM + 1)} for it in (text, other))
    return len(first & second) / max(1, len(first | second))


def test_short_and_no_texts_are_similar_to_none():
    none, some = FoldedTexts.of([]), FoldedTexts.of([b"abcdefghijk"])
    assert near_duplicates(none, list(some)) == near_duplicates(some, []) == {}
    short = b"a" * (NGRAM - 1)
    assert near_duplicates(FoldedTexts.of([short, b""]), [short, b"", b"abcdefghijk"]) == {}


@pytest.mark.seeds(50)
def test_texts_in_several_chunks_are_compared(monkeypatch, seed):
    train, held = made(seed)
    whole = compare(train, held)
    monkeypatch.setattr(folding, "CHUNK", 7)
    monkeypatch.setattr(duplicates, "SCANNED", 300)
    assert compare(train, held) == whole
    both, is_held = Identities.of((text,) for text in [*train, *held]), np.arange(len(train) + len(held)) >= len(train)
    assert overlap(both.select(~is_held), both.select(is_held)) == whole


@pytest.mark.seeds(50)
def test_distinct_texts_are_those_that_a_comparison_of_all_pairs_leaves(seed):
    rng = random.Random(seed)
    bases = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 60))).encode() for _ in range(8)]
    texts = [rng.choice(bases) + b"x" * rng.randint(0, 3) for _ in range(rng.randint(0, 60))]
    chosen = distinct(texts)
    assert chosen == sorted(set(chosen))
    for index, text in enumerate(texts):
        like = [other for other in range(len(texts)) if texts[other] == text or similar(texts[other], text)]
        if index in chosen:
            assert set(like) & set(chosen) <= {index}, "no two are alike"
        else:
            assert min(like) < index, "what is left out is like a text before it"


def similar(text, other):
    parts = [{each[at : at + NGRAM] for at in range(len(each) - NGRAM + 1)} for each in (text, other)]
    return len(parts[0] & parts[1]) / max(1, len(parts[0] | parts[1])) >= SIMILAR
