"""Formats are recognized by their content, in all containers; what is none of them is refused."""

import gzip
import io
import json
import sys

import numpy as np
import pytest
from nltk.tokenize.treebank import TreebankWordTokenizer
from seqeval.metrics.sequence_labeling import get_entities

from unmask.data.labelled.annotations import iterate_annotations, read_annotations
from unmask.support.errors import UserError


def exported(document):
    """Return the tokens of a document and their tags as label-studio-converter writes them."""
    tokens = [document.text[start:end] for start, end in TreebankWordTokenizer().span_tokenize(document.text)]
    places = list(TreebankWordTokenizer().span_tokenize(document.text))
    tags = ["O"] * len(places)
    for kind, start, end in document.entities:
        inside = [number for number, (first, last) in enumerate(places) if first < end and last > start]
        for place, number in enumerate(inside):
            tags[number] = f"{'I' if place else 'B'}-{kind}"
    return tokens, tags


def test_conll_export_of_label_studio(tmp_path, lines):
    pairs = [exported(document) for document in lines]
    text = "-DOCSTART- -X- O\n"
    for tokens, tags in pairs:
        text += "".join(f"{token} -X- _ {tag}\n" for token, tag in zip(tokens, tags, strict=True)) + "\n"
    (tmp_path / "result.conll").write_text(text)
    sentences = read_annotations([tmp_path / "result.conll"], columns={})
    assert [(one.words, list(one.tags)) for one in sentences] == pairs
    assert {one.document for one in sentences} == {None}, "one mark at the beginning is no division into documents"
    assert any(kind == "Job Title" for _, tags in pairs for kind, *_ in get_entities(tags))
    texts = read_annotations([tmp_path / "result.conll"], columns={}, gold=False)
    assert [(one.words, one.tags) for one in texts] == [(tokens, ()) for tokens, _ in pairs]


DOCCANO = "".join(json.dumps({"text": f"Anna met {name} .", "label": [[0, 4, "PER"]]}) + "\n" for name in "AB")
REGION = {"type": "labels", "value": {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}}
CONTENTS = {
    "doccano.jsonl": DOCCANO,
    "words.jsonl": json.dumps({"words": ["Anna", "met"], "tags": ["B-PER", "O"]}),
    "a.conllu": "# text = Anna met\n1\tAnna\t_\tX\t_\t_\t_\t_\t_\tNER=B-PER\n2\tmet\t_\tX\t_\t_\t_\t_\t_\t_\n",
    "a.txt": "# id 1\tdomain=en\nAnna _ _ B-PER\nmet _ _ O\n",
    "a.conll": "Anna B-PER\nmet O\n",
    "a.tsv": "#FORMAT=WebAnno TSV 3.2\n#T_SP=x.NamedEntity|value\n\n"
    "#Text=Anna met\n1-1\t0-4\tAnna\tPER\n1-2\t5-8\tmet\t_\n",
    "a.csv": "Sentence #,Word,Tag\n1,Anna,B-PER\n1,met,O\n",
    "export": json.dumps([{"text": "Anna met", "label": [[0, 4, "PER"]]}], indent=1),
    "array.jsonl": json.dumps([["Anna met", {"entities": [[0, 4, "PER"]]}]]),
    "spacy.json": '\ufeff [["Anna met", {"entities": [[0, 4, "PER"]]}]]',
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_contents_in_archives_and_with_marks(tmp_path, name, mark):
    (tmp_path / name).write_text(mark + CONTENTS[name].removeprefix("\ufeff"))
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(CONTENTS[name].encode()))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        sentences = read_annotations([path], columns={})
        assert sentences[0].words[:2] == ["Anna", "met"]
        assert sentences[0].tags[:2] == ("B-PER", "O")
        texts = list(iterate_annotations(path, columns={}))
        assert [(one.text, one.tags) for one in texts] == [(one.text, ()) for one in sentences]


@pytest.mark.parametrize("name", ["doccano.jsonl", "words.jsonl", "a.conllu", "a.conll"])
def test_standard_input(monkeypatch, name):
    kind = "jsonl" if name.endswith("jsonl") else "conll"
    for gold in (True, False):
        stream = io.BufferedReader(io.BytesIO(CONTENTS[name].encode()))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        sentences = read_annotations(["-"], columns={}, kind=kind, gold=gold)
        assert sentences[0].words[:2] == ["Anna", "met"]
        assert sentences[0].tags[:1] == (("B-PER",) if gold else ())


def test_texts_are_yielded_before_the_rest_of_the_file_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text(DOCCANO + "{")
    texts = iterate_annotations(tmp_path / "a.jsonl", columns={})
    assert next(texts).text == "Anna met A ."
    with pytest.raises(UserError, match=r"a\.jsonl:3: broken JSON"):
        list(texts)


def test_binary_files_of_spacy_name_the_package(tmp_path):
    pytest.importorskip("unmask")
    (tmp_path / "a.spacy").write_bytes(b"x")
    try:
        import spacy  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"a\.spacy: needs the package spacy; pip install spacy, or convert"):
            read_annotations([tmp_path / "a.spacy"], columns={})


def test_binary_files_of_spacy(tmp_path, documents, same_entities):
    spacy = pytest.importorskip("spacy", reason="needs spacy")
    pipeline = spacy.blank("xx")
    made, kept = spacy.tokens.DocBin(), []
    for document in documents:
        parsed = pipeline(document.text)
        spans = [parsed.char_span(start, end, label=kind) for kind, start, end in document.entities]
        if all(spans):
            parsed.ents = spans
            made.add(parsed)
            kept.append(document)
    made.to_disk(tmp_path / "a.spacy")
    same_entities(read_annotations([tmp_path / "a.spacy"], columns={}), kept)


NONE = [
    ("a.json", '[{"question": "a", "answer": "b"}]', "no key words or tokens, and no text with spans; keys: question"),
    ("a.json", '[["a", "b"]]', "not a JSON object; read are: JSON with words and tags, doccano"),
    ("a.jsonl", '{"text": "a", "label": "b"}', "no text with spans; keys: text, label; read are: "),
    ("a.csv", "text,label\na,b\n", "tagged words cannot be read from CSV without ids of their sentences; read are: "),
    ("a.xml", "<?xml version='1.0'?>\n<a>\n", "is XML, not text; extract its text first"),
    ("a.docx", "PK\x03\x04\0", "is a zip archive, not text; unpack it"),
    ("a.tsv", "text\tlabel\nA good film\tpos\n", "1 of 2 words contain spaces: they are texts with labels"),
    ("a.tsv", "Word\tPOS\nA\tDET\n", "a.tsv:1: the line is a header, whose 'POS' would be a tag; remove it"),
    ("a.tsv", "A good film\tpos\nA bad one\tneg\n", "2 of 2 words contain spaces: they are texts with labels"),
    ("a.jsonl", '{"text": "a b", "label": []}\n{"text": "", "label": []}', None),
    ("a.jsonl", '{"text": " ", "label": []}', "there are no sentences in the file, apart from 1 empty text"),
]


@pytest.mark.parametrize(("name", "text", "message"), NONE)
def test_what_is_no_format_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    if message is None:
        assert len(read_annotations([tmp_path / name], columns={})) == 1
        return
    with pytest.raises(UserError, match=message):
        read_annotations([tmp_path / name], columns={})


@pytest.mark.parametrize("first", ["<url>\tO", "<url> O", "<user> NN B-PER", "<\tO", "<a>\t-X-\tB-PER\r"])
def test_words_in_angle_brackets_are_no_markup(tmp_path, first):
    (tmp_path / "a.conll").write_text(f"{first}\n")
    (sentence,) = read_annotations([tmp_path / "a.conll"], columns={})
    assert (sentence.words, sentence.tags) == ([first.split()[0]], (first.split()[-1],))


@pytest.mark.parametrize("name", CONTENTS)
def test_damaged_files_raise_nothing_but_user_errors(tmp_path, name):
    rng = np.random.default_rng(0)
    content = (CONTENTS[name] * 2).encode()
    whole = json.dumps([{"data": {"text": "Anna"}, "annotations": [{"result": [REGION]}]}]) if name == "export" else ""
    refused = 0
    for _ in range(100):
        damaged = bytearray(whole.encode() if whole and rng.random() < 0.5 else content)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(damaged))
            cut = damaged[at : at + int(rng.integers(0, 9))]
            damaged[at : at + len(cut)] = [b"", bytes(cut) * 2, bytes(rng.integers(0, 256, 2, np.uint8)), b"null"][
                rng.integers(4)
            ]
        (tmp_path / name).write_bytes(damaged)
        try:
            read_annotations([tmp_path / name], columns={})
            list(iterate_annotations(tmp_path / name, columns={}))
        except UserError:
            refused += 1
    assert refused > 10
