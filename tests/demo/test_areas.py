"""Texts by area: the same each time, none under two areas, none of tests, those of a few areas left out."""

import itertools
import re

import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.demo import demonstration as module
from unmask.demo.demonstration import AREAS, Labelled, folders, texts_by_area, write_tsv
from unmask.demo.documentation import documentation

SENTENCE = "A sentence of the area {name} about {words} says what a reader may want to ask its team for."
WORDS = ("trees", "rivers", "houses", "letters", "stones", "birds", "songs", "roads")


def modules(folder, name, count):
    """Write a module whose functions have one text each."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = (SENTENCE.format(name=name, words=" and ".join(words)) for words in itertools.permutations(WORDS, 4))
    functions = [f'def f{n}():\n    """{text}"""\n' for n, text in enumerate(itertools.islice(texts, count))]
    (folder / "module.py").write_text("\n".join(functions))


@pytest.fixture(scope="module")
def examples():
    return texts_by_area()


@pytest.mark.exhaustive
def test_the_installed_packages_have_texts_of_most_areas(examples):
    assert set(examples) >= {"algebra", "graphs", "learning", "network"} and set(examples) <= set(AREAS)
    check_texts(examples)


def test_areas_have_texts_to_learn_from_and_to_test_on():
    names = ("graphs", "network")
    examples = texts_by_area({name: AREAS[name] for name in names})
    assert set(examples) == set(names)
    check_texts(examples)


def check_texts(examples):
    assert all(len(area) >= module.FEWEST for area in examples.values())
    texts = [example.text for area in examples.values() for example in area]
    assert len(set(texts)) == len(texts)
    assert all(len(text.split()) in module.WORDS for text in texts)


@pytest.mark.exhaustive
def test_the_same_installation_has_the_same_texts(examples):
    assert texts_by_area() == examples


@pytest.mark.exhaustive
def test_the_paragraphs_are_those_of_the_documentation(examples):
    paragraphs = {text for document in documentation(50_000_000, roots=folders()) for text in document.split("\n\n")}
    used = [text for area in examples.values() for example in area[:60] for text in example.paragraphs]
    # the others are near-duplicates, of which the documents contain one
    assert sum(text in paragraphs for text in used) > 0.9 * len(used)


def test_few_texts_tests_and_texts_of_two_areas_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 3)
    modules(tmp_path / "one", "first", 5)
    modules(tmp_path / "one" / "tests", "tested", 9)
    modules(tmp_path / "two", "second", 4)
    modules(tmp_path / "two" / "inner", "first", 5)
    modules(tmp_path / "three", "third", 2)
    found = texts_by_area({"a": "one", "b": "two", "c": "three"}, roots=[tmp_path])
    assert {area: {re.search("area ([a-z]+)", example.text)[1] for example in found[area]} for area in found} == {
        "b": {"second"}
    }, "the texts of one are in two as well, and three has too few"


@pytest.mark.parametrize(("words", "count"), [(10, 0), (30, 1), (70, 1), (130, 0)])
def test_texts_of_some_length_are_used(words, count, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 0)
    text = " ".join(["The words of this sentence are in it", *["that it has"] * (words // 3 - 2)]) + "."
    (tmp_path / "one.py").write_text(f'"""{text}"""\n')
    assert len(texts_by_area({"a": "one.py"}, roots=[tmp_path])["a"]) == count


def test_examples_are_written_as_a_labeled_file(tmp_path):
    examples = [Labelled(('A "quoted" text.', "It goes on."), "code"), Labelled(("Another one.",), "files")]
    rows = read_rows([write_tsv(tmp_path / "examples.tsv", examples)], columns={})
    assert [(row.values["text"], row.values["label"]) for row in rows] == [(e.text, e.label) for e in examples]
