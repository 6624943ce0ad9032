"""Entities of WebAnno TSV 3 are those that were generated."""

import re

import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.support.errors import UserError

ENTITY = "de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity"
POS = "de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS"
HEAD = f"#FORMAT=WebAnno TSV 3.3\n#T_SP={POS}|PosValue|coarseValue\n#T_SP={ENTITY}|identifier|value\n"
HEAD += "#T_RL=webanno.custom.Dependency|BT_x\n\n\n"


def escape(text, reserved=r"\\[\]|_;*"):
    text = re.sub(f"([{reserved}])", r"\\\1", text)
    return text.replace("->", "\\->").replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n")


def write(path, documents, *, pos=False):
    """Write each document as a sentence; offsets are UTF-16 units of the whole file."""
    text, base, numbers = HEAD, 0, iter(range(1, 10**6))
    for index, document in enumerate(documents, 1):
        text += f"\n#Text={escape(document.text, chr(92) * 2)}\n"
        cells = dict.fromkeys(document.words, "_")
        for kind, start, end in document.entities:
            inside = [word for word in document.words if start <= word[0] and word[1] <= end]
            mark = "" if len(inside) == 1 else f"[{next(numbers)}]"
            cells |= dict.fromkeys(inside, escape(kind) + mark)
        for number, ((start, end), value) in enumerate(cells.items(), 1):
            place = f"{base + document.utf16(start)}-{base + document.utf16(end)}"
            tag = ("N\\_N", "V")[number % 2] if pos else "_"
            token = escape(document.text[start:end])
            text += f"{index}-{number}\t{place}\t{token}\t{tag}\t_\t_\t{value}\t_\t\n"
        base += document.utf16(len(document.text)) + 1
    path.write_text(text, newline="")
    return path


def test_entities(tmp_path, documents, same_entities):
    notes = []
    path = write(tmp_path / "a.tsv", documents)
    sentences = read_annotations([path], columns={}, notes=notes)
    same_entities(sentences, documents)
    assert notes == []
    for sentence, document in zip(sentences, documents, strict=True):
        assert list(zip(sentence.starts, sentence.stops, strict=True)) == document.words
    texts = read_annotations([path], columns={}, gold=False)
    assert [(one.text, one.tags) for one in texts] == [(document.text, ()) for document in documents]


def test_layers_are_chosen(tmp_path, lines, same_entities):
    notes = []
    path = write(tmp_path / "a.tsv", lines, pos=True)
    same_entities(read_annotations([path], columns={}, notes=notes), lines)
    assert notes == [f"{path}: the tags are those of NamedEntity.value; others: POS.PosValue"]
    for name in ("PosValue", "POS.PosValue"):
        tagged = read_annotations([path], columns={"label": name})
        for sentence, document in zip(tagged, lines, strict=True):
            assert sentence.tags == tuple(("N_N", "V")[number % 2] for number in range(1, len(document.words) + 1))
    same_entities(read_annotations([path], columns={"label": "NamedEntity"}), lines)
    with pytest.raises(UserError, match=r"is not one feature; did you mean 'POS.PosValue'"):
        read_annotations([path], columns={"label": "POS.PosValu"})


SENTENCE = (
    HEAD + "\n#Text=😀 well-known Anna\n1-1\t0-2\t😀\t_\t_\t_\t{}\t_\t\n1-2\t3-13\twell-known\t_\t_\t_\t{}\t_\t\n"
)
SENTENCE += "1-2.1\t8-13\tknown\t_\t_\t_\t{}\t_\t\n1-3\t14-18\tAnna\t_\t_\t_\t{}\t_\t\n"


def read(path, *values, **options):
    path.write_text(SENTENCE.format(*values))
    notes = []
    (sentence,) = read_annotations([path], columns={}, notes=notes, **options)
    return [(kind, sentence.text[start:stop]) for kind, start, stop in sentence.entities], notes


def test_parts_of_tokens_are_extended(tmp_path):
    path = tmp_path / "a.tsv"
    found, notes = read(path, "_", "_", "X", "_")
    assert found == [("X", "well-known")]
    assert notes == [
        f"{path}: 1 of 1 span began or ended inside a word and was extended to whole words, the first 'known' of "
        "'well-known' in line 11"
    ]
    with pytest.raises(UserError, match=r"a\.tsv:11: the span 7–12 \(X\) 'known' begins or ends inside a word"):
        read(path, "_", "_", "X", "_", inexact="refuse")


def test_stacked_and_nested_spans_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"a\.tsv:\d+: .*overlap, but a word has one tag"):
        read(tmp_path / "a.tsv", "X[1]", "X[1]|Y[2]", "_", "Y[2]")
    assert read(tmp_path / "a.tsv", "X[1]", "X[1]", "_", "X[2]")[0] == [("X", "😀 well-known"), ("X", "Anna")]
    assert read(tmp_path / "a.tsv", "X", "X", "_", r"a\_b\|c\[1\]")[0][2] == ("a_b|c[1]", "Anna")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "\n#Text=a\n1-1\t0-1\tb\t_\t_\t_\tX\t_\n", "a.tsv:9: the token 'b' is not in the text of its sentence"),
        (HEAD + "\n1-1\t0-1\tb\t_\t_\t_\tX\t_\n", "a.tsv:8: not a token of a sentence"),
        (HEAD + "\n#Text=a\nx\n", "a.tsv:9: 'x' is neither a token nor a comment"),
        (HEAD + "\n#Text=a\n1-1\t0-1\ta\t_\t_\t_\t*\t_\n", "no layer has values"),
        (
            HEAD + "\n#Text=a\n1-1\t0-1\ta\tN\tN\t_\t_\t_\n",
            "several layers have values: POS.PosValue, POS.coarseValue; choose",
        ),
        (SENTENCE.format("X", "*", "_", "_"), "a.tsv:10: a span has no value"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_annotations([tmp_path / "a.tsv"], columns={})
