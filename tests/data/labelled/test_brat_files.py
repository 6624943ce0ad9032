"""Entities of brat's files are those that were generated."""

import contextlib
import re

import numpy as np
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.text.encodings import EncodedPath
from unmask.support.errors import UserError


def write(folder, name, text, lines):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.txt").write_bytes(text.encode())
    (folder / f"{name}.ann").write_bytes("".join(f"{line}\n" for line in lines).encode())


def lines(document, convert):
    """Return the lines of annotations; a span that contains line ends has a part for each line."""
    found = ["#1\tAnnotatorNotes T1\tx", "R1\tKnows Arg1:T1 Arg2:T2", "*\tEquiv T1 T2", "E1\tMeet:T1", "A1\tNegated E1"]
    for number, (kind, start, end) in enumerate(document.entities, 1):
        stated = " ".join(document.text[start:end].split())
        place = f"{convert(document, start)} {convert(document, end)}"
        parts = list(re.finditer(r"[^\r\n]+", document.text[start:end]))
        if len(parts) > 1 and convert(document, end) == end:
            place = ";".join(f"{start + part.start()} {start + part.end()}" for part in parts)
        found.append(f"T{number}\t{kind.replace(' ', '_')} {place}\t{stated}")
    return found


def renamed(documents):
    """Return documents whose labels have no spaces, as brat requires."""
    return [
        type(one)(one.text, one.words, [(kind.replace(" ", "_"), start, end) for kind, start, end in one.entities])
        for one in documents
    ]


@pytest.mark.parametrize("line_ends", ["as written", "as one"])
def test_folder(tmp_path, documents, same_entities, line_ends):
    documents = renamed(documents)
    for number, document in enumerate(documents):
        convert = (lambda one, at: at) if line_ends == "as written" else (lambda one, at: one.one_line_end(at))
        write(tmp_path / "corpus" / f"{number // 20}", f"{number:03}", document.text, lines(document, convert))
    (tmp_path / "corpus" / "x.txt").write_text("not annotated")
    notes = []
    same_entities(read_annotations([tmp_path / "corpus"], columns={}, notes=notes), documents)
    kind = ": offsets count characters, and CR LF as one, as the texts of the spans show"
    expected = [f"{tmp_path / 'corpus'}{kind}"] * (line_ends == "as one")
    assert notes == [*expected, f"{tmp_path / 'corpus'}: omitted: 1 text without a file of annotations"]
    texts = read_annotations([tmp_path / "corpus"], columns={}, gold=False)
    assert sorted(one.text for one in texts) == sorted([*(one.text for one in documents), "not annotated"])


@pytest.mark.parametrize("suffix", ["txt", "ann"])
def test_file(tmp_path, documents, suffix):
    document = renamed(documents)[5]
    write(tmp_path, "a", document.text, lines(document, lambda one, at: at))
    (sentence,) = read_annotations([tmp_path / f"a.{suffix}"], columns={})
    assert sentence.text == document.text
    assert sentence.entities == document.entities


def test_discontinuous_spans_are_counted_or_refused(tmp_path):
    write(tmp_path, "a", "left and right hand, Anna", ["T1\tX 0 4;15 19\tleft hand", "T2\tPER 21 25\tAnna"])
    notes = []
    (sentence,) = read_annotations([tmp_path / "a.ann"], columns={}, notes=notes)
    assert sentence.entities == [("PER", 21, 25)]
    assert notes == [f"{tmp_path / 'a.ann'}: omitted: 1 discontinuous span of X"]
    with pytest.raises(UserError, match=r"a\.ann:1: the file has discontinuous spans of X; annotate a contiguous part"):
        read_annotations([tmp_path], columns={}, inexact="refuse")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T1\tPER 0\tAnna", "a.ann:1: 'T1.*' is not a line of annotations; spans must be T1"),
        ("T1 PER 0 4 Anna", "is not a line of annotations"),
        ("T1\tPER 0 40\tAnna", r"a.ann:1: the span 0–40 \(PER\) is outside of its text"),
        ("T1\tPER 1 4\tAnna", "a.ann:1: .* is 'nna' in the text, but the file states 'Anna'"),
        ("T1\tPER 0 4\tAnna\nT2\tX 0 4\tAnna", "a.ann:2: .* overlap"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, message):
    write(tmp_path, "a", "Anna met", [line])
    with pytest.raises(UserError, match=message):
        read_annotations([tmp_path / "a.ann"], columns={})


def test_damaged_annotations_raise_nothing_but_user_errors(tmp_path):
    rng = np.random.default_rng(0)
    good = b"T1\tPER 0 4;5 8\tAnna met\nT2\tX 9 12\tBob\nR1\tA Arg1:T1 Arg2:T2\n"
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(damaged))] = (
                rng.integers(256) if rng.random() < 0.5 else rng.choice([*b"\t\n 059;"])
            )
        write(tmp_path, "a", "Anna met Bob", [])
        (tmp_path / "a.ann").write_bytes(damaged)
        with contextlib.suppress(UserError):
            read_annotations([tmp_path], columns={})


def test_missing_texts(tmp_path):
    (tmp_path / "a.ann").write_text("")
    with pytest.raises(UserError, match=r"a\.ann: there is no text a\.txt beside it"):
        read_annotations([tmp_path / "a.ann"], columns={})
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="a folder without files of annotations; read are: "):
        read_annotations([tmp_path / "empty"], columns={})


def test_a_text_that_was_read_in_a_wrong_encoding_is_told_as_such(tmp_path):
    (tmp_path / "a.txt").write_bytes("at Zürich.".encode("latin-1"))
    (tmp_path / "a.ann").write_text("T1\tLOC 3 9\tZürich\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.ann:1: .*'ZÃ¼rich'; .* wrong encoding: save both in UTF-8"):
        read_annotations([EncodedPath(tmp_path, "latin-1")], columns={})
