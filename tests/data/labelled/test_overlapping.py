"""Spans that overlap are read alike from the exports of all annotators, and nothing is dropped without a count."""

import json

import numpy as np
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import UserError

WORDS = ("Anna", "of", "Łódź", "😀", "sees", "the", "sea")


def drawn(seed):
    """Return a text, and spans of its words, none of them of the same words."""
    rng = np.random.default_rng(seed)
    words = [WORDS[n] for n in rng.integers(len(WORDS), size=9)]
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    places = {tuple(sorted(rng.choice(10, 2, replace=False).tolist())) for _ in range(6)}
    spans = [(starts[a], starts[b - 1] + len(words[b - 1]), str(rng.choice(["X", "Y"]))) for a, b in sorted(places)]
    return " ".join(words), spans


def prodigy(text, spans):
    return {"text": text, "spans": [{"start": start, "end": end, "label": label} for start, end, label in spans]}


def doccano(text, spans):
    return {"id": 1, "text": text, "label": [list(span) for span in spans]}


def doccano_relations(text, spans):
    entities = [
        {"id": 7 + number, "start_offset": start, "end_offset": end, "label": label}
        for number, (start, end, label) in enumerate(spans)
    ]
    return {"id": 1, "text": text, "entities": entities, "relations": []}


def spacy(text, spans):
    return [text, {"entities": [list(span) for span in spans]}]


def label_studio(text, spans):
    results = [
        {
            "id": f"r{number}",
            "type": "labels",
            "from_name": "label",
            "value": {"start": start, "end": end, "text": text[start:end], "labels": [label]},
        }
        for number, (start, end, label) in enumerate(spans)
    ]
    return {"data": {"text": text}, "annotations": [{"result": results}]}


FORMATS = (prodigy, doccano, doccano_relations, spacy, label_studio)


@pytest.mark.parametrize("form", FORMATS)
def test_overlapping_spans_are_read(form, tmp_path):
    examples = [drawn(seed) for seed in range(50)]
    (tmp_path / "data.json").write_text(json.dumps([form(*example) for example in examples]))
    notes = []
    sentences = read_annotations([tmp_path / "data.json"], columns={}, notes=notes, overlapping=True)
    assert len(sentences) == 50
    for sentence, (text, spans) in zip(sentences, examples, strict=True):
        assert sentence.text == text
        assert sorted(sentence.entities) == sorted(Chunk(label, start, end) for start, end, label in spans)
        assert not sentence.tags
    assert not [note for note in notes if "omitted" in note]
    with pytest.raises(UserError, match=r"a word has one tag; .*; to learn both: unmask\.finetune"):
        read_annotations([tmp_path / "data.json"], columns={})


def test_overlapping_spans_of_brat_are_read_and_discontinuous_ones_counted(tmp_path):
    for number, (text, spans) in enumerate(map(drawn, range(50))):
        lines = [
            f"T{index}\t{label} {start} {end}\t{text[start:end]}\n" for index, (start, end, label) in enumerate(spans)
        ]
        (tmp_path / f"{number:02}.txt").write_text(text)
        (tmp_path / f"{number:02}.ann").write_text("".join([*lines, f"T99\tX 0 1;{len(text) - 1} {len(text)}\ta b\n"]))
    notes = []
    sentences = read_annotations([tmp_path], columns={}, notes=notes, overlapping=True)
    for sentence, (_, spans) in zip(sentences, map(drawn, range(50)), strict=True):
        assert sorted(sentence.entities) == sorted(Chunk(label, start, end) for start, end, label in spans)
    assert f"{tmp_path}: omitted: 50 discontinuous spans of X" in notes


def test_the_same_words_have_one_label(tmp_path):
    spans = [(0, 4, "X"), (0, 4, "Y"), (0, 4, "X"), (0, 3, "X"), (0, 11, "Y")]
    (tmp_path / "a.jsonl").write_text(json.dumps(prodigy("Anna of Rom", spans)))
    notes = []
    (sentence,) = read_annotations([tmp_path / "a.jsonl"], columns={}, notes=notes, overlapping=True)
    assert sentence.spans == (Chunk("X", 0, 1), Chunk("Y", 0, 3))
    assert [note.partition(": ")[2] for note in notes] == [
        "1 of 5 spans began or ended inside a word and was extended to whole words, the first 'Ann' of 'Anna' "
        "in line 1",
        "omitted: 2 spans given twice",
        "omitted: 1 span of the same words with another label",
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps(prodigy("Anna of Rom", spans[:2])))
    with pytest.raises(UserError, match=r"a.jsonl:1: the file has spans of the same words with another label"):
        read_annotations([tmp_path / "a.jsonl"], columns={}, overlapping=True, inexact="refuse")


def test_words_with_tags_have_their_entities_as_spans(tmp_path):
    (tmp_path / "a.conll").write_text("Anna B-X\nSmith I-X\nsees O\nBob B-X\n")
    (sentence,) = read_annotations([tmp_path / "a.conll"], columns={}, overlapping=True)
    assert sentence.chunks == [Chunk("X", 0, 2), Chunk("X", 3, 4)]
