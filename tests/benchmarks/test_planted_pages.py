"""The benchmark of what rules find runs at toy size, and counts what is not found, and what was not planted."""

import random

import pytest

pytest.importorskip("fasttext")
pytestmark = pytest.mark.shared
SETTINGS = {"ARTICLES": 60, "PLANTED": 8, "SITES": 2}


@pytest.fixture
def module(benchmark_module, monkeypatch):
    module = benchmark_module("planted_pages")
    for name, value in SETTINGS.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_what_is_planted_is_found(module, run_main, shared, records):
    kinds = ["equal", "near-0.9", "foreign", "leaked", "boilerplate", "mail"]
    run_main(module, *kinds)
    found = records("planted_pages")
    assert [record["planted"] for record in found] == kinds
    for record in found:
        assert record["recall"] == 100 and record["precision"] > 70 and record["count"] >= 8


def test_errors_count(module, tmp_path):
    rng, articles = random.Random(0), ["The cat sat.", "A dog ran.", "The cow was here.", "A pig slept."]
    pages = module.Pages(settings="[duplicates]\n")
    for text in (*articles, articles[0].upper(), articles[1].upper(), "A pig"):
        pages.add(rng, text)
    address = {text: address for address, text in pages.texts.items()}
    pages.names = {address["A pig"]: 0, address["A pig slept."]: 0}
    pages.names |= {address["THE CAT SAT."]: 1, address["The cat sat."]: 1}
    assert module.score(pages, tmp_path, rng) == {"count": 2, "recall": 50.0, "precision": 50.0}
