"""Tests of finding duplicates: planted ones, beside similarities of all pairs."""

import random

import numpy as np
import pytest

from unmask.data.cleaning import duplicates
from unmask.data.cleaning.duplicates import AGAIN, EQUAL, KEPT, NEAR, equal_keys, find_duplicates, find_repeated_lines
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


@pytest.mark.seeds(20)
def test_equal_keys_are_together_and_each_source_is_read_twice(tmp_path, monkeypatch, seed):
    """However many parts there are: time grows with the number of keys alone."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(duplicates, "PART", int(rng.integers(1, 100)))
    sizes = rng.integers(0, 200, int(rng.integers(1, 5)))
    keys = [rng.integers(0, rng.choice([5, 500, 1 << 63]), size, dtype=np.uint64) for size in sizes]
    chosen, read = [rng.random(size) < rng.choice([0, 0.5, 1]) for size in sizes], []
    store = Store(tmp_path, 0)
    store.sources = len(keys)

    def keys_of(index):
        read.append(index)
        return keys[index]

    rows = {}
    for row, (key, is_chosen) in enumerate(zip(np.concatenate(keys), np.concatenate(chosen), strict=True)):
        if is_chosen:
            rows.setdefault(int(key), []).append(row)
    found = {}
    for equal in equal_keys(store, keys_of, lambda index: chosen[index], sum(sizes)):
        firsts = equal.spread(equal.rows)
        for key, row, is_first, first in zip(equal.keys, equal.rows, equal.is_first, firsts, strict=True):
            assert is_first == (int(key) not in found) == (row == first)
            found.setdefault(int(key), []).append(int(row))
            assert first == found[int(key)][0]
    assert found == rows
    assert read == [*range(len(keys))] * 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", [1 << 22, 7])
def test_the_first_of_equal_documents_stays(tmp_path, monkeypatch, part):
    monkeypatch.setattr(duplicates, "PART", part)
    texts = ["a cat sat", "A cat, sat!", "b", "a cat sat", "a dog sat", "!?", "b", ""]
    store = stored(tmp_path, texts[:4], texts[4:])
    found = find_duplicates(store, similarity=None)
    assert found.tolist() == [KEPT, EQUAL, KEPT, EQUAL, KEPT, KEPT, EQUAL, KEPT]


@pytest.mark.parametrize("similar", [0.9, 0.8])
def test_D15_planted_near_duplicates_are_found_and_others_stay(tmp_path, monkeypatch, prose, similar):
    """Recall of pairs above the similarity, and precision: nothing else is dropped."""
    monkeypatch.setattr(duplicates, "PART", 100)
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


@pytest.mark.parametrize("part", [1 << 22, 2])
def test_the_first_of_equal_lines_stays(tmp_path, monkeypatch, part):
    monkeypatch.setattr(duplicates, "PART", part)
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
