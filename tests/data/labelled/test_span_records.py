"""Entities of records, written by the documented schemas of the tools, are those that were generated."""

import contextlib
import functools
import json
import random

import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

from .conftest import make_documents


def read(path, notes=None, **columns):
    options = {name: columns.pop(name) for name in ("units", "inexact", "gold", "kind") if name in columns}
    return read_annotations([path], columns=columns, notes=notes, **options)


def write(path, records, *, array=False, ascii_only=False):
    texts = [json.dumps(record, ensure_ascii=ascii_only) for record in records]
    path.write_bytes((f"[{','.join(texts)}]" if array else "\r\n".join(texts) + "\n").encode())
    return path


def triples(document):
    return [[start, end, kind] for kind, start, end in document.entities]


DOCCANO = {
    "label": lambda one: {"id": 1, "text": one.text, "label": triples(one), "Comments": []},
    "labels": lambda one: {"id": 1, "text": one.text, "meta": {}, "annotation_approver": None, "labels": triples(one)},
    "data": lambda one: {"id": 1, "data": one.text, "label": triples(one)},
    "entities": lambda one: {
        "id": 1,
        "text": one.text,
        "entities": [
            {"id": number, "label": kind, "start_offset": start, "end_offset": end}
            for number, (kind, start, end) in enumerate(one.entities)
        ],
        "relations": [{"id": 0, "from_id": 0, "to_id": 1, "type": "x"}],
        "Comments": [],
    },
    "annotations": lambda one: {
        "text": one.text,
        "annotations": [
            {"label": kind, "start_offset": start, "end_offset": end, "user": 1} for kind, start, end in one.entities
        ],
    },
}


@pytest.mark.parametrize("form", DOCCANO)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_doccano(tmp_path, documents, same_entities, form, ascii_only):
    notes = []
    path = write(tmp_path / "a.jsonl", map(DOCCANO[form], documents), ascii_only=ascii_only)
    same_entities(read(path, notes), documents)
    assert notes == []
    array = write(tmp_path / "a.json", map(DOCCANO[form], documents), array=True)
    same_entities(read(array), documents)


def test_records_in_memory(documents, same_entities):
    (table,) = as_sources([DOCCANO["label"](one) for one in documents])
    same_entities(read(table), documents)


@pytest.mark.parametrize("form", ["label", "entities"])
def test_utf16_units_are_recognized(tmp_path, documents, same_entities, form):
    records = []
    for document in documents:
        shifted = [(kind, document.utf16(start), document.utf16(end)) for kind, start, end in document.entities]
        records.append(DOCCANO[form](type(document)(document.text, [], shifted)))
    path = write(tmp_path / "a.jsonl", records)
    same_entities(read(path, units="utf-16"), documents)
    notes = []
    same_entities(read(path, notes), documents)
    assert f"{path}: offsets are read as UTF-16 units: of " in notes[0]


def prodigy(document, tokens):
    spans = [{"start": start, "end": end, "label": kind} for kind, start, end in document.entities]
    record = {"text": document.text, "_input_hash": 1, "_view_id": "ner_manual", "answer": "accept"}
    if tokens:
        record["tokens"] = [
            {"text": document.text[start:end], "start": start, "end": end, "id": number, "ws": True}
            for number, (start, end) in enumerate(document.words)
        ]
        starts, ends = [start for start, _ in document.words], [end for _, end in document.words]
        for span in spans:
            span["token_start"], span["token_end"] = starts.index(span["start"]), ends.index(span["end"])
            if tokens == "alone":
                del span["start"], span["end"]
    return record | ({"spans": spans} if spans or tokens != "with" else {})


@pytest.mark.parametrize("tokens", ["", "with", "alone"])
def test_prodigy(tmp_path, documents, same_entities, tokens):
    records = [prodigy(document, tokens) for document in documents]
    records[3:3] = [{**records[3], "answer": answer} for answer in ("reject", "ignore", "ignore")]
    notes = []
    path = write(tmp_path / "a.jsonl", records)
    same_entities(read(path, notes), documents)
    assert notes == [
        f"{path}: omitted: 1 text whose answer is 'reject'",
        f"{path}: omitted: 2 texts whose answer is 'ignore'",
    ]
    assert len(read(path, gold=False)) == len(documents) + 3


def test_tuples_of_spacy(tmp_path, documents, same_entities):
    tuples = [[one.text, {"entities": triples(one)}] for one in documents]
    same_entities(read(write(tmp_path / "a.json", tuples, array=True)), documents)
    same_entities(read(write(tmp_path / "a.jsonl", tuples)), documents)
    whole = {"classes": ["PER"], "annotations": [*tuples, None]}
    same_entities(read(write(tmp_path / "b.json", [whole])), documents)
    texts = read(write(tmp_path / "a.json", tuples, array=True), gold=False)
    assert [(one.text, one.tags) for one in texts] == [(one.text, ()) for one in documents]


def same(document, offset):
    return offset


def label_studio(document, convert=same, name="label"):
    return [
        {
            "id": "x",
            "from_name": name,
            "to_name": "text",
            "type": "labels",
            "origin": "manual",
            "value": {
                "start": convert(document, start),
                "end": convert(document, end),
                "text": document.text[start:end].replace("\r\n", "\n"),
                "labels": [kind],
            },
        }
        for kind, start, end in document.entities
    ]


def task(document, results, **more):
    annotation = {"id": 1, "completed_by": 1, "result": results, "was_cancelled": False, "ground_truth": False}
    return {"id": 1, "data": {"text": document.text, "id": "x"}, "annotations": [annotation], "predictions": [], **more}


CONVERTERS = {
    "": same,
    "UTF-16 units": lambda document, offset: document.utf16(offset),
    "characters, and CR LF as one": lambda document, offset: document.one_line_end(offset),
    "UTF-16 units, and CR LF as one": lambda document, offset: (
        len(document.text[:offset].replace("\r\n", "\n").encode("utf-16-le")) // 2
    ),
}


@pytest.mark.parametrize("units", CONVERTERS)
@pytest.mark.parametrize("minimal", [False, True])
def test_label_studio_in_every_unit(tmp_path, documents, same_entities, units, minimal):
    records = []
    for document in documents:
        results = label_studio(document, CONVERTERS[units])
        if minimal:
            record = {"text": document.text, "id": 1, "annotator": 1, "annotation_id": 1, "lead_time": 3.5}
            records.append(record | ({"label": [result["value"] for result in results]} if results else {}))
        else:
            records.append(task(document, results))
    notes = []
    path = write(tmp_path / "a.json", records, array=True)
    same_entities(read(path, notes), documents)
    assert notes == ([f"{path}: offsets count {units}, as the texts of the spans show"] if units else [])
    assert [one.text for one in read(path, gold=False)] == [document.text for document in documents]


def test_annotations_of_label_studio_that_are_not_read(tmp_path, documents, same_entities):
    first, second, third = documents[1:4]
    wrong = {"result": label_studio(first)[:0], "was_cancelled": False}
    truth = {"result": label_studio(second), "ground_truth": True}
    cancelled = {"result": [], "was_cancelled": True}
    records = [
        *(task(document, label_studio(document)) for document in documents),
        task(first, [], annotations=[]),
        task(second, [], annotations=[cancelled, wrong, truth]),
        {"id": 1, "data": {"text": third.text}, "completions": [{"result": label_studio(third)}]},
    ]
    records[0]["annotations"][0]["result"].append({"type": "choices", "value": {"choices": ["x"]}})
    notes = []
    path = write(tmp_path / "a.json", records, array=True)
    same_entities(read(path, notes), [*documents, second, third])
    assert notes == [
        f"{path}: omitted: 1 result of type 'choices' instead of spans",
        f"{path}: omitted: 1 task without an annotation",
        f"{path}: omitted: 1 further annotation of tasks that have several (ground truth first, otherwise the first)",
    ]


def test_a_set_of_labels_is_chosen(tmp_path, documents, same_entities):
    whole = [("ALL", 0, document.words[-1][1]) for document in documents]
    outer = [type(one)(one.text, [], [span]) for one, span in zip(documents, whole, strict=True)]
    pairs = zip(documents, outer, strict=True)
    records = [task(one, label_studio(one, name="ner") + label_studio(other, name="all")) for one, other in pairs]
    path = write(tmp_path / "a.json", records, array=True)
    same_entities(read(path, label="ner"), documents)
    same_entities(read(path, label="all"), outer)
    with pytest.raises(
        UserError, match=r"overlap, but a word has one tag; choose one set of labels \(all, ner\) by col"
    ):
        read(path)
    with pytest.raises(UserError, match="there is no such set of labels; did you mean 'ner'"):
        read(path, label="nerd")


def test_text_of_another_key(tmp_path, documents, same_entities):
    records = [{**task(one, label_studio(one)), "data": {"body": one.text}} for one in documents]
    same_entities(read(write(tmp_path / "a.json", records, array=True)), documents)
    records = [{**one, "data": {**one["data"], "title": "b"}} for one in records]
    path = write(tmp_path / "a.json", records, array=True)
    same_entities(read(path, text="body"), documents)
    with pytest.raises(
        UserError, match="several texts are in the data of the task; its texts: body, title; pass columns"
    ):
        read(path)


BAD = [
    (
        {"text": "a b"},
        "no key words or tokens, and no text with spans; keys: text; read are: JSON with words and tags, doc",
    ),
    ({"text": "a b", "label": "x"}, "no key words or tokens, and no text with spans"),
    ({"text": "a b", "label": ["x"]}, "no text with spans"),
    ({"text": "a b", "label": [[0, 1]]}, "no text with spans"),
    ({"text": "a b", "label": [[0, 9, "X"]]}, r"the span 0–9 \(X\) is outside of its text of 3 characters; correct"),
    (
        {"text": "😀 b", "label": [[3, 5, "X"]]},
        "outside of its text of 3 characters; correct the offsets, or pass .*utf-16",
    ),
    ({"text": "a b", "label": [[-1, 1, "X"]]}, "outside"),
    ({"text": "a b", "label": [[2, 2, "X"]]}, r"the span 2–2 \(X\) is empty; remove it"),
    ({"text": "a b", "label": [[0, 1, 7]]}, "the label of a span is 7, not a name"),
    ({"text": "a b", "label": [[0, 1, ""]]}, "the label of a span is '', not a name"),
    ({"text": "a b", "label": [[0, 1, ["X", "Y"]]]}, r"a span has several labels \(X, Y\)"),
    ({"text": "a b", "label": [[0, 1, "X"], 7]}, "7 is not a span; spans must be"),
    (
        {"text": "a b", "spans": [{"start": "0", "end": 1, "label": "X"}]},
        "the start of a span is '0', not a whole number",
    ),
    (
        {"text": "a b", "spans": [{"token_start": 0, "token_end": 3, "label": "X"}]},
        "the tokens 0 and 3 of a span are not",
    ),
    (
        {"text": "a b", "spans": [{"start": 0, "end": 1, "text": "b", "label": "X"}]},
        "'a' in the text, but the file states 'b'",
    ),
    (
        {"text": "a b", "label": [[0, 3, "X"], [2, 3, "Y"]]},
        r"the spans 0–3 \(X\) 'a b' and 2–3 \(Y\) 'b' overlap, but a word",
    ),
    (["a b", {"cats": {}}], "the second part of the tuple has no list 'entities'"),
    (
        {"data": {"text": "a"}, "annotations": [{"result": [{"type": "labels", "value": {"start": "/p[1]"}}]}]},
        "of HTML",
    ),
]


@pytest.mark.parametrize(("record", "message"), BAD, ids=range(len(BAD)))
def test_bad_records_are_refused_with_their_line(tmp_path, record, message):
    good = {"text": "a b", "label": [[0, 1, "X"]]}
    with pytest.raises(UserError, match=message) as caught:
        read(write(tmp_path / "a.jsonl", [good, record]))
    assert str(caught.value).startswith(f"{tmp_path / 'a.jsonl'}:2: ")


WHOLE = [
    DOCCANO["label"](make_documents(0, 2)[1]),
    DOCCANO["entities"](make_documents(0, 2)[1]),
    prodigy(make_documents(0, 2)[1], "alone"),
    task(make_documents(0, 2)[1], label_studio(make_documents(0, 2)[1])),
    {"text": "Anna met", "label": [{"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}], "annotation_id": 1},
    ["Anna met", {"entities": [[0, 4, "PER"]]}],
]
REPLACED = (None, 1, "x", [], {}, True, 1.5, -1, 10**30, "", [1], {"a": 1}, [[0, 1, "X"]], "/p[1]")


def places(value, path=()):
    """Yield the paths of all values inside a JSON value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_any_other_value_is_read_or_refused(tmp_path, number):
    rng = random.Random(number)
    for path in list(places(WHOLE[number])):
        for replaced in rng.sample(REPLACED, 2):
            record = json.loads(json.dumps(WHOLE[number]))
            inner = functools.reduce(lambda value, key: value[key], path[:-1], record)
            inner[path[-1]] = replaced
            file = write(tmp_path / "a.jsonl", [WHOLE[number], record])
            for gold in (True, False):
                with contextlib.suppress(UserError):
                    assert all(len(sentence.tags) in (0, len(sentence.words)) for sentence in read(file, gold=gold))


def test_words_with_tags_beside_a_text_are_read_as_before(tmp_path):
    record = {"text": "a b", "tokens": ["a", "b"], "ner_tags": ["O", "B-X"], "spans": [[0, 1, "Y"]]}
    (sentence,) = read(write(tmp_path / "a.jsonl", [record]))
    assert (sentence.words, sentence.tags) == (["a", "b"], ("O", "B-X"))
