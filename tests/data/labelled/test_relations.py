"""Relations are read alike from the exports of all annotators, and nothing is dropped without a count."""

import json

import numpy as np
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.span_export import Marked, export_record
from unmask.data.labelled.tagged_sentence import Relation
from unmask.support.errors import UserError

from .test_overlapping import doccano_relations, drawn, label_studio, prodigy


def related(seed):
    """Return a text, its spans, and relations: head, tail and label, one for each ordered pair at most."""
    text, spans = drawn(seed)
    rng = np.random.default_rng((seed, 1))
    pairs = [(head, tail) for head in range(len(spans)) for tail in range(len(spans)) if head != tail]
    chosen = [pair for pair in pairs if rng.random() < 0.3]
    return text, spans, [(*pair, str(rng.choice(["in", "of"]))) for pair in chosen]


def own(text, spans, relations):
    links = [{"head": head, "tail": tail, "label": label} for head, tail, label in relations]
    return {**prodigy(text, spans), "relations": links}


def of_prodigy(text, spans, relations):
    record = prodigy(text, spans)
    links = [
        {"head": 0, "child": 0, "head_span": record["spans"][head], "child_span": record["spans"][tail], "label": label}
        for head, tail, label in relations
    ]
    return {**record, "relations": links, "answer": "accept"}


def of_doccano(text, spans, relations):
    links = [
        {"id": number, "from_id": 7 + head, "to_id": 7 + tail, "type": label}
        for number, (head, tail, label) in enumerate(relations)
    ]
    return {**doccano_relations(text, spans), "relations": links}


def of_label_studio(text, spans, relations):
    """Return a task whose relations of both directions are one, and every other one points to the left."""
    record, rest = label_studio(text, spans), list(relations)
    results = record["annotations"][0]["result"]
    while rest:
        head, tail, label = rest.pop()
        both = (tail, head, label) in rest
        if both:
            rest.remove((tail, head, label))
        direction = "bi" if both else ("right", "left")[len(rest) % 2]
        ends = (tail, head) if direction == "left" else (head, tail)
        link = {"from_id": f"r{ends[0]}", "to_id": f"r{ends[1]}", "labels": [label]}
        results.append({"type": "relation", "direction": direction, **link})
    return record


def expected(text, spans, relations):
    """Return the relations with the labels and offsets of their spans."""
    return sorted((label, spans[head], spans[tail]) for head, tail, label in relations)


def found(sentence):
    places = [(start, end, label) for label, start, end in sentence.entities]
    return sorted((relation.type, places[relation.head], places[relation.tail]) for relation in sentence.relations)


@pytest.mark.parametrize("form", [own, of_prodigy, of_doccano, of_label_studio])
def test_relations_are_read(form, tmp_path):
    examples = [related(seed) for seed in range(50)]
    assert sum(len(relations) for *_, relations in examples) > 200
    (tmp_path / "data.json").write_text(json.dumps([form(*example) for example in examples]))
    notes = []
    sentences = read_annotations([tmp_path / "data.json"], columns={}, notes=notes, relations=True)
    assert [found(sentence) for sentence in sentences] == [expected(*example) for example in examples]
    assert not [note for note in notes if "omitted" in note]
    without = read_annotations([tmp_path / "data.json"], columns={}, overlapping=True)
    assert not any(sentence.relations for sentence in without)


def test_relations_of_brat_are_read_and_events_counted(tmp_path):
    examples = [related(seed) for seed in range(50)]
    for number, (text, spans, relations) in enumerate(examples):
        lines = [
            f"T{index}\t{label} {start} {end}\t{text[start:end]}" for index, (start, end, label) in enumerate(spans)
        ]
        lines += [f"R{index}\t{label} Arg1:T{head} Arg2:T{tail}" for index, (head, tail, label) in enumerate(relations)]
        lines += ["E1\tX:T0 Who:T1", "*\tEquiv T0 T1", "A1\tNegated T0", f"T99\tX 0 1;{len(text) - 1} {len(text)}\ta b"]
        lines += ["R99\tin Arg1:T99 Arg2:T0"]
        (tmp_path / f"{number:02}.txt").write_text(text)
        (tmp_path / f"{number:02}.ann").write_text("\n".join(lines) + "\n")
    notes = []
    sentences = read_annotations([tmp_path], columns={}, notes=notes, relations=True)
    assert [found(sentence) for sentence in sentences] == [expected(*example) for example in examples]
    assert sorted(note.partition("omitted: ")[2] for note in notes if "omitted" in note) == [
        "50 discontinuous spans of X",
        "50 events",
        "50 relations of spans that are omitted, or not in the file",
        "50 relations without a direction (*)",
    ]
    (tmp_path / "00.ann").write_text("T1\tX 0 1\tA\nR1\tin T1 T2\n")
    with pytest.raises(UserError, match=r"00\.ann:2: 'R1\tin T1 T2' is not a relation; relations must be R1 TAB LABEL"):
        read_annotations([tmp_path], columns={}, relations=True)


@pytest.mark.parametrize("name", ["out.doccano.jsonl", "out.labelstudio.json"])
def test_exported_relations_are_read_again(name, tmp_path):
    for text, spans, relations in map(related, range(50)):
        marked = [Marked(start, end, label, text[start:end], 1.0) for start, end, label in spans]
        record = export_record(tmp_path / name, text, marked, [(*relation, 0.5) for relation in relations])
        content = json.dumps([record]).replace('"predictions"', '"annotations"')
        (tmp_path / "a.json").write_text(content)
        (sentence,) = read_annotations([tmp_path / "a.json"], columns={}, relations=True)
        assert found(sentence) == expected(text, spans, relations)


@pytest.mark.parametrize("ids", [(None, None), ("r0", None), (["r0"], {"r1": 1})])
def test_relations_of_regions_without_an_id_are_counted(tmp_path, ids):
    task = label_studio("Anna of Rom", [(0, 4, "X"), (5, 7, "Y")])
    results = task["annotations"][0]["result"]
    del results[1]["id"]
    results.append({"type": "relation", "from_id": ids[0], "to_id": ids[1], "labels": ["in"]})
    (tmp_path / "a.json").write_text(json.dumps([task]))
    notes = []
    (sentence,) = read_annotations([tmp_path / "a.json"], columns={}, notes=notes, relations=True)
    assert sentence.relations == ()
    assert notes[-1].endswith("omitted: 1 relation of spans that are omitted, or not in the file")


def test_what_cannot_be_expressed_is_counted_or_refused(tmp_path):
    spans = [(0, 4, "X"), (5, 7, "Y"), (5, 7, "Z")]
    relations = [(0, 1, "in"), (0, 1, "of"), (0, 1, "in"), (1, 1, "in"), (0, 2, "in")]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(own("Anna of Rom", spans, relations)))
    notes = []
    (sentence,) = read_annotations([path], columns={}, notes=notes, relations=True)
    assert sentence.relations == (Relation("in", 0, 1),)
    assert [note.partition("omitted: ")[2] for note in notes] == [
        "1 span of the same words with another label",
        "1 further relation of the same two spans",
        "1 relation of a span with itself",
        "1 relation of spans that are omitted, or not in the file",
    ]
    path.write_text(json.dumps(own("Anna of Rom", spans[:2], relations[:2])))
    with pytest.raises(UserError, match=r"a\.jsonl:1: the file has further relations of the same two spans"):
        read_annotations([path], columns={}, relations=True, inexact="refuse")


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        ({"head": 0, "tail": 2, "label": "in"}, "is not one of two spans of the text"),
        ({"head": 0, "tail": -1, "label": "in"}, "is not one of two spans of the text"),
        ({"head": 0, "tail": True, "label": "in"}, "is not one of two spans of the text"),
        ({"from_id": 0, "to_id": 1, "label": "in"}, "is not one of two spans of the text"),
        ({"from_id": [0], "to_id": {"a": 1}, "label": "in"}, "is not one of two spans of the text"),
        ({"head_span": {"start": [0]}, "child_span": {}, "label": "in"}, "is not one of two spans of the text"),
        ({"head": 0, "label": "in"}, "is not one of two spans of the text"),
        ({"head": 0, "tail": 1}, "the label of a relation is None, not a name"),
        ({"head": 0, "tail": 1, "label": ["a", "b"]}, r"a relation has several labels \(a, b\)"),
        ([0, 1, "in"], "is not a relation"),
    ],
)
def test_malformed_relations_are_refused(relation, message, tmp_path):
    record = {**prodigy("Anna of Rom", [(0, 4, "X"), (5, 7, "Y")]), "relations": [relation]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    with pytest.raises(UserError, match=rf"a\.jsonl:1: .*{message}"):
        read_annotations([tmp_path / "a.jsonl"], columns={}, relations=True)
