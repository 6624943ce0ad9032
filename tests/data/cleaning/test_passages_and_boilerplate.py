"""Documents that consist of passages of earlier ones, and lines on many pages of a host."""

import numpy as np
import pytest

from unmask.data.cleaning import duplicates
from unmask.data.cleaning.duplicates import (
    BOILERPLATE,
    KEPT,
    Boilerplate,
    RepeatedPassages,
    find_boilerplate,
    find_repeated_passages,
)
from unmask.data.cleaning.store import EVERY, WORDS, Store, StoreWriter, passage_keys


def stored(folder, *sources):
    """A store of sources of texts, or of texts and addresses."""
    needed = frozenset(("lines", "counts", "hosts", "passages", "passage_counts"))
    for index, documents in enumerate(sources):
        with StoreWriter(folder, index, needed) as writer:
            for document in documents:
                writer.add(*((document,) if isinstance(document, str) else document))
    return Store(folder, len(sources))


def test_passages_are_the_same_in_every_document(prose):
    text, before, after = prose(1), prose(2), prose(3)
    keys = set(passage_keys(text).tolist())
    windows = len(text.split()) - WORDS + 1
    assert 0.5 * windows / EVERY < len(keys) < 1.7 * windows / EVERY
    assert keys < set(passage_keys(f"{before} {text.upper().replace('.', ' !')} {after}").tolist())
    assert not keys & set(passage_keys(f"{before} {after}").tolist())
    assert len(passage_keys(" ".join(text.split()[: WORDS - 1]))) == 0


@pytest.mark.parametrize("part_size", [1 << 22, 50])
def test_documents_of_repeated_passages_are_found(tmp_path, prose, monkeypatch, part_size):
    monkeypatch.setattr(duplicates, "PART", part_size)
    long = f"{prose(1, lines=12)}\n\n{prose(2, lines=12)}"
    part, mostly, partly = prose(2, lines=12), f"{prose(1, lines=12)} {prose(3, lines=3)}", prose(4, lines=12)
    partly = f"{partly} {' '.join(prose(1).split()[:80])}"
    store = stored(tmp_path, [long, "few words", part], [mostly, partly, f"{prose(5)} {prose(5)}"], [])
    dropped = np.zeros(6, np.uint8)
    assert find_repeated_passages(store, dropped, 0.5).tolist() == [False, False, True, True, False, False]
    assert find_repeated_passages(store, dropped, 0.95).tolist() == [False, False, True, False, False, False]
    dropped[0] = 1  # then the passages of the others are new
    assert find_repeated_passages(store, dropped, 0.5).tolist() == [False] * 6


def test_nothing_is_lost_with_a_document_that_is_dropped(tmp_path, prose):
    first, second = prose(1, lines=12), prose(2, lines=6)
    store = stored(tmp_path, [first, f"{first} {second}", second])
    assert find_repeated_passages(store, np.zeros(3, np.uint8), 0.5).tolist() == [False, True, False]


@pytest.mark.seeds(20)
def test_planted_passages_are_found_with_few_errors(tmp_path, prose, seed):
    rng = np.random.default_rng(seed)
    originals = [prose(1000 * seed + number, lines=10).split() for number in range(20)]
    texts, expected = [" ".join(words) for words in originals], [False] * 20
    for number in range(40):
        share = rng.choice([0.2, 0.8])
        own = prose(1000 * seed + 100 + number, lines=10).split()
        cut = int(share * 300)
        source = originals[rng.integers(20)]
        start = rng.integers(0, max(1, len(source) - cut))
        texts.append(" ".join([*own[: 300 - cut], *source[start : start + cut]]))
        expected.append(bool(share > 0.5))
    found = find_repeated_passages(stored(tmp_path, texts), np.zeros(60, np.uint8), 0.5).tolist()
    assert sum(one != other for one, other in zip(found, expected, strict=True)) <= 1


def pages(host, count, *lines):
    return [("\n\n".join([*lines, f"Story {host} {number}."]), f"https://{host}/{number}") for number in range(count)]


def marked(store, rule, dropped=None):
    """The texts of the lines that are boilerplate."""
    lines = [line for text in store.texts() for line in text.split("\n\n")]
    removed = np.zeros(len(lines), np.uint8)
    find_boilerplate(store, np.zeros(len(store), np.uint8) if dropped is None else dropped, rule, removed)
    assert set(removed.tolist()) <= {KEPT, BOILERPLATE}
    return [line for line, mark in zip(lines, removed, strict=True) if mark]


@pytest.mark.parametrize("part_size", [1 << 22, 7])
def test_lines_on_many_pages_of_a_host_are_found(tmp_path, monkeypatch, part_size):
    monkeypatch.setattr(duplicates, "PART", part_size)
    store = stored(
        tmp_path,
        pages("a.example", 6, "Menu", "Twice", "Twice"),
        [
            *pages("www.a.example", 4, "menu!"),
            *pages("b.example", 4, "Menu"),
            ("Again\n\nAgain\n\nAgain", "https://c.example"),
        ],
        [(text, "") for text, _ in pages("d.example", 20, "Menu")],
    )
    assert marked(store, Boilerplate()) == ["Menu", "Twice", "Twice"] * 6 + ["menu!"] * 4
    assert marked(store, Boilerplate(min_pages=7)) == ["Menu"] * 6 + ["menu!"] * 4
    assert marked(store, Boilerplate(min_share=0.7)) == ["Menu"] * 6 + ["menu!"] * 4
    assert set(marked(store, Boilerplate(min_pages=4))) == {"Menu", "Twice", "menu!"}
    dropped = np.zeros(len(store), np.uint8)
    dropped[:6] = 1
    assert marked(store, Boilerplate(), dropped) == []


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (RepeatedPassages, {"max_repeated": 1}),
        (RepeatedPassages, {"max_repeated": -0.1}),
        (Boilerplate, {"min_pages": 1}),
        (Boilerplate, {"min_share": 2}),
    ],
)
def test_impossible_settings_are_refused(rule, settings):
    with pytest.raises(ValueError, match="must be at least"):
        rule(**settings)
