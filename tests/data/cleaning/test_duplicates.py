"""Tests of finding duplicates: planted ones, beside similarities of all pairs."""

import random

import numpy as np
import pytest

from unmask.data.cleaning import duplicates
from unmask.data.cleaning.duplicates import AGAIN, EQUAL, KEPT, NEAR, find_duplicates, find_repeated_lines
from unmask.data.cleaning.store import BANDS, Store, StoreWriter, bands
from unmask.data.labelled.duplicates import similarity
from unmask.data.labelled.folding import fold

ALL = frozenset({"identities", "bands", "lines", "counts"})
COUNT = 60
"""Planted documents; each test of all pairs takes time that grows with it."""


def stored(folder, *sources):
    for index, texts in enumerate(sources):
        with StoreWriter(folder, index, ALL) as writer:
            for text in texts:
                writer.add(text)
    return Store(folder, len(sources))


def altered(text, similar, rng):
    """Return a text, words of which are replaced until the similarity is about the given one."""
    words = text.split(" ")
    order = iter(rng.sample(range(len(words)), len(words)))
    step = max(1, len(words) // 200)
    while similarity(fold(text), fold(" ".join(words))) > similar:
        for _ in range(step):
            words[next(order)] = f"x{rng.randrange(10**6)}"
    return " ".join(words)


def test_texts_are_those_that_were_stored(tmp_path):
    sources = [["One.\n\nTwo.", "Zwei ü"], [], ["猫" * 1000, "Last."]]
    store = stored(tmp_path, *sources)
    texts = [text for source in sources for text in source]
    assert list(store.texts()) == texts == [store.text(number) for number in range(len(store))]


@pytest.mark.parametrize("block", [1 << 22, 7])
def test_the_first_of_equal_documents_stays(tmp_path, monkeypatch, block):
    monkeypatch.setattr(duplicates, "BLOCK", block)
    texts = ["a cat sat", "A cat, sat!", "b", "a cat sat", "a dog sat", "!?", "b", ""]
    store = stored(tmp_path, texts[:4], texts[4:])
    found = find_duplicates(store, similarity=None)
    assert found.tolist() == [KEPT, EQUAL, KEPT, EQUAL, KEPT, KEPT, EQUAL, KEPT]


@pytest.mark.parametrize("similar", [0.9, 0.8])
def test_D15_planted_near_duplicates_are_found_and_others_stay(tmp_path, monkeypatch, prose, similar):
    """Recall of pairs above the similarity, and precision: nothing else is dropped."""
    monkeypatch.setattr(duplicates, "BLOCK", 100)
    rng = random.Random(0)
    originals = [prose(number, lines=rng.randint(2, 8)) for number in range(COUNT)]
    copies = [altered(text, similar + 0.03, rng) for text in originals]
    others = [altered(text, similar - 0.12, rng) for text in originals[:20]]
    texts = originals + copies + others
    order = rng.sample(range(len(texts)), len(texts))
    store = stored(tmp_path, [texts[at] for at in order[:50]], [texts[at] for at in order[50:]])
    found = find_duplicates(store, similarity=similar)
    dropped = {order[place] for place in np.flatnonzero(found == NEAR).tolist()}
    place = {at: number for number, at in enumerate(order)}
    planted = [
        max(first, COUNT + first, key=place.__getitem__)
        for first in range(COUNT)
        if similarity(fold(originals[first]), fold(copies[first])) >= similar
    ]
    assert len(planted) > COUNT // 2
    recall = len(dropped & set(planted)) / len(planted)
    assert recall >= (0.99 if similar == 0.9 else 0.95)
    for at in dropped:  # precision: each is similar to a document of its group that was dropped or stays
        original = at % COUNT if at < 2 * COUNT else at - 2 * COUNT
        family = {original, COUNT + original, at}
        assert max(similarity(fold(texts[at]), fold(texts[other])) for other in family - {at}) >= similar


def test_bands_agree_as_often_as_theory_says(prose):
    rng, agreed, expected = random.Random(1), 0, 0.0
    for number in range(60):
        text = prose(number, lines=4)
        other = altered(text, rng.uniform(0.4, 0.75), rng)
        agreed += bool((bands(fold(text)) == bands(fold(other))).any())
        expected += 1 - (1 - similarity(fold(text), fold(other)) ** 6) ** BANDS
    assert abs(agreed - expected) < 12  # the places of a signature depend on each other


def test_groups_keep_their_first_document_by_way_of_others(tmp_path, prose):
    rng, chain = random.Random(0), [prose(0, lines=8)]
    for _ in range(4):
        chain.append(altered(chain[-1], 0.9, rng))
    assert similarity(fold(chain[0]), fold(chain[-1])) < 0.8
    store = stored(tmp_path, [prose(9)], list(reversed(chain)), ["short", "Short!", "tiny"])
    found = find_duplicates(store, similarity=0.85)
    assert found.tolist() == [KEPT, KEPT, NEAR, NEAR, NEAR, NEAR, KEPT, EQUAL, KEPT]


@pytest.mark.parametrize("block", [1 << 22, 2])
def test_the_first_of_equal_lines_stays(tmp_path, monkeypatch, block):
    monkeypatch.setattr(duplicates, "BLOCK", block)
    store = stored(tmp_path, ["Home\n\nA cat.\n\nHome", "home\n\nA dog."], ["A cat.\n\nA cow.", "A pig."])
    dropped = np.array([KEPT, KEPT, KEPT, EQUAL], np.uint8)
    removed = np.zeros(8, np.uint8)
    find_repeated_lines(store, dropped, removed)
    assert removed.tolist() == [0, 0, AGAIN, AGAIN, 0, AGAIN, 0, 0]
    removed[:] = [1, 0, 0, 0, 0, 0, 0, 0]  # what is removed already is not the first
    find_repeated_lines(store, dropped, removed)
    assert removed.tolist() == [1, 0, 0, AGAIN, 0, AGAIN, 0, 0]
    dropped[0], removed[:] = EQUAL, 0
    find_repeated_lines(store, dropped, removed)
    assert removed.tolist() == [0] * 8
