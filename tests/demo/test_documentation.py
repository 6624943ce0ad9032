"""Docstrings as text: which files are read, in which order, what is dropped, and that nothing is executed."""

import gc
import sys
import sysconfig
import textwrap
from itertools import islice
from pathlib import Path

import pytest

from unmask.demo import documentation as module
from unmask.demo.documentation import documentation, is_prose, read_docstrings

LONG = (
    "The harbour keeps a list of the boats that are due, and the list is read aloud each morning before the tide. "
    "Whoever comes late to the reading has to ask at the office, which is open until noon on all days but Sunday."
)


def write(path, docstring, code=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'"""{docstring}"""\n{code}\n', encoding="utf-8")


def about(subject):
    return LONG.replace("harbour", subject).replace("boats", f"{subject} people")


def test_one_document_per_module_in_source_order(tmp_path):
    code = textwrap.dedent(
        '''
        class Crane:
            """Lift what lies on the quay, one piece at a time."""

            def lift(self):
                """Lift the next piece and return its weight in pounds."""

                def inner():
                    """This one is hidden within a method and not read."""

        if True:
            def outer():
                """Find out which of the boats has been waiting the longest."""
        '''
    )
    write(tmp_path / "harbour.py", LONG, code)
    assert list(documentation(roots=[tmp_path])) == [
        "\n\n".join(
            [
                LONG,
                "Lift what lies on the quay, one piece at a time.",
                "Lift the next piece and return its weight in pounds.",
                "Find out which of the boats has been waiting the longest.",
            ]
        )
    ]


def test_order_of_files_and_roots(tmp_path):
    for path, subject in (
        ("second/alpha.py", "meadow"),
        ("first/beta/__init__.py", "orchard"),
        ("first/beta/apples.py", "windmill"),
        ("first/alpha.py", "castle"),
    ):
        write(tmp_path / path, about(subject))
    roots = [tmp_path / "first", tmp_path / "second", tmp_path / "first"]
    documents = list(documentation(roots=roots))
    assert documents == [about("castle"), about("orchard"), about("windmill"), about("meadow")]
    assert list(documentation(roots=roots)) == documents


@pytest.mark.parametrize(
    "path",
    [
        "tests/harbour.py",
        "test/harbour.py",
        "site-packages/harbour.py",
        ".hidden/harbour.py",
        "test_harbour.py",
        "conftest.py",
        "harbour.txt",
    ],
)
def test_tests_and_other_files_are_skipped(tmp_path, path):
    write(tmp_path / path, LONG)
    assert list(documentation(roots=[tmp_path])) == []


@pytest.mark.parametrize(
    "source", [b'"""Not closed', b'"""' + b"\xff\xfe" + b'"""', b'"""A null."""\0', b"print 'old'\n'''x'''"]
)
def test_files_that_cannot_be_parsed_are_skipped(tmp_path, source):
    (tmp_path / "bad.py").write_bytes(source)
    write(tmp_path / "good.py", LONG)
    assert list(documentation(roots=[tmp_path])) == [LONG]


def test_paragraphs_that_cannot_be_written_are_dropped(tmp_path):
    """A half of a surrogate pair, which UTF-8 does not have."""
    write(tmp_path / "half.py", f"{LONG}\n\nThe harbour writes \\ud800 where it means a flag of the boat.")
    assert list(documentation(roots=[tmp_path])) == [LONG]


def test_invalid_escapes_do_not_warn(tmp_path):
    write(tmp_path / "escapes.py", LONG, 'pattern = "\\d"')
    assert read_docstrings(tmp_path / "escapes.py") == [LONG]


def test_large_files_are_skipped(tmp_path, monkeypatch):
    write(tmp_path / "large.py", LONG)
    monkeypatch.setattr(module, "LARGEST_FILE", 100)
    assert list(documentation(roots=[tmp_path])) == []


def test_nothing_is_executed(tmp_path):
    write(tmp_path / "harbour_trap.py", LONG, "raise SystemExit('executed')")
    assert len(list(documentation(roots=[tmp_path]))) == 1
    assert "harbour_trap" not in sys.modules


def test_short_documents_are_dropped(tmp_path):
    write(tmp_path / "short.py", "Keep a list of the boats that are due.")
    assert list(documentation(roots=[tmp_path])) == []


def test_a_paragraph_of_a_dropped_document_is_not_lost(tmp_path):
    paragraph = "Keep a list of the boats that are due."
    write(tmp_path / "a_short.py", paragraph)
    write(tmp_path / "long.py", f"{paragraph}\n\n{LONG}")
    assert list(documentation(roots=[tmp_path])) == [f"{paragraph}\n\n{LONG}"]


def test_repeated_paragraphs_are_dropped_across_documents(tmp_path):
    licence = "You may use the harbour as you like, if you leave this note where it is and do not blame us."
    write(tmp_path / "a.py", f"{about('meadow')}\n\n{licence}")
    write(tmp_path / "b.py", f"{about('windmill')}\n\n{licence}")
    assert list(documentation(roots=[tmp_path])) == [f"{about('meadow')}\n\n{licence}", about("windmill")]


def test_paragraphs_that_differ_in_a_name_are_repetitions(tmp_path):
    write(tmp_path / "a.py", LONG + "\n\nBuild the settings of a BertModel with 12 layers.")
    write(tmp_path / "b.py", about("windmill") + "\n\nBuild the settings of a GPTModel with 24 layers.")
    assert ["12 layers" in document or "24 layers" in document for document in documentation(roots=[tmp_path])] == [
        True,
        False,
    ]


def test_limit(tmp_path):
    for subject in ("castle", "meadow", "orchard"):
        write(tmp_path / f"{subject}.py", about(subject))
    everything = list(documentation(roots=[tmp_path]))
    assert len(everything) == 3
    size = sum(len(document.encode()) for document in everything)
    assert list(documentation(size, roots=[tmp_path])) == everything
    assert list(documentation(size - 1, roots=[tmp_path])) == everything[:2]
    assert list(documentation(0, roots=[tmp_path])) == []
    with pytest.raises(ValueError, match="limit_bytes"):
        documentation(-1)


def test_lazy(tmp_path, monkeypatch):
    for subject in ("castle", "meadow"):
        write(tmp_path / f"{subject}.py", about(subject))
    opened = []
    monkeypatch.setattr(module, "read_docstrings", lambda path: opened.append(path.name) or read_docstrings(path))
    documents = documentation(roots=[tmp_path])
    assert opened == []
    assert next(documents) == about("castle")
    assert opened == ["castle.py"]
    assert gc.isenabled()


def test_a_missing_folder_yields_nothing(tmp_path):
    assert list(documentation(roots=[tmp_path / "nowhere"])) == []


def test_a_part_of_the_standard_library():
    documents = list(documentation(300_000, roots=[Path(sysconfig.get_paths()["stdlib"]) / "email"]))
    assert len(documents) >= 5
    text = "\n".join(documents)
    assert all(len(document) >= 200 for document in documents)
    assert ">>>" not in text
    assert "message" in text
    assert text.count(" the ") > len(text) / 150


def test_order_of_the_default(monkeypatch):
    monkeypatch.setattr(module, "_sources_below", lambda roots: iter([[about(root.name)] for root in roots]))
    monkeypatch.setattr(module, "_topics", lambda: iter([[about("topic")]]))
    paths = {"stdlib": "/somewhere/library", "purelib": "/somewhere/pure", "platlib": "/somewhere/platform"}
    monkeypatch.setattr(module.sysconfig, "get_paths", lambda: paths)
    assert list(documentation()) == [about("library"), about("topic"), about("pure"), about("platform")]


def test_the_default_begins_with_the_standard_library():
    assert all(map(is_prose, "\n\n".join(islice(documentation(), 3)).split("\n\n")))


def test_topics_of_help():
    topics = list(module._topics())
    assert len(topics) > 50 or topics == []
