"""Paragraphs of the standard library by topic: the same each time, none in both parts, none under two topics."""

from collections import Counter

import pytest

from unmask.demo.documentation import documentation

MODULE = '"""{text}"""\n'


@pytest.fixture
def module(benchmark_module):
    return benchmark_module("labelled")


@pytest.fixture
def parts(module):
    return module.topics()


def test_every_topic_has_its_number_of_examples(module, parts):
    train, test = parts
    assert Counter(one.label for one in train) == dict.fromkeys(module.TOPICS, module.TRAIN)
    assert Counter(one.label for one in test) == dict.fromkeys(module.TOPICS, module.TEST)
    assert len({one.text for one in (*train, *test)}) == len(train) + len(test)


@pytest.mark.exhaustive
def test_the_test_paragraphs_can_be_removed_from_the_documentation(parts):
    """They are paragraphs of its documents, to the letter."""
    paragraphs = {text for document in documentation(8_000_000) for text in document.split("\n\n")}
    found = sum(one.text in paragraphs for one in parts[1])
    assert found > 0.8 * len(parts[1]), "others are near-duplicates, which the documents contain once"


def test_paragraphs_of_two_topics_short_ones_and_tests_are_left_out(module, tmp_path, monkeypatch):
    files = {
        "csv.py": "Read and write tables of values that commas separate from each other.\n\nToo short.",
        "gzip.py": "A sentence that stands in two modules of the library alike.",
        "bz2.py": "Compress and expand files by sorting their blocks before coding them.",
        "json/__init__.py": "A sentence that stands in two modules of the library alike.",
        "json/test_it.py": "Check that objects survive a round trip through their notation.",
        "unittest/case.py": "A single test case that calls a method and reports its outcome.",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(MODULE.format(text=text))
    monkeypatch.setattr(module, "TEST", 0)
    train, test = module.topics(tmp_path)
    assert module.topics(tmp_path) == (train, test)
    assert {one.label: one.text.split()[0] for one in train} == {"text": "Read", "files": "Compress", "code": "A"}
    assert test == []
