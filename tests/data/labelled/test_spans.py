"""Spans become tags of whole words; what words cannot express is counted or refused."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.span_export import Marked, export_record
from unmask.data.labelled.spans import Annotated, Reading, Span, convert_spans, to_sentence
from unmask.data.labelled.tagged_sentence import split_text
from unmask.support.errors import UserError

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases" / "offset_annotations"


def convert(text, *spans, **options):
    """Return the sentence of a text with spans, and the notes of its reading."""
    reading = Reading("a.jsonl", **options)
    (annotated,) = convert_spans([Annotated(text, [Span(*span) for span in spans], "a.jsonl", 7)], reading)
    return to_sentence(annotated, reading), list(reading.notes())


@given(st.lists(st.text("北京😀เชี東か𠀀", min_size=1, max_size=9), min_size=1, max_size=5), st.data())
def test_entities_written_for_doccano_are_read_again(texts, data):
    """In scripts without spaces no way of counting cuts fewer words."""
    entities = []
    for text in texts:
        words = split_text(text)
        first = data.draw(st.integers(0, len(words.starts) - 1))
        entities.append((words.starts[first], words.stops[data.draw(st.integers(first, len(words.starts) - 1))]))
    with TemporaryDirectory() as folder:
        path = Path(folder, "out.doccano.jsonl")
        marked = [[Marked(*place, "X", text[slice(*place)], 1.0)] for text, place in zip(texts, entities, strict=True)]
        records = [export_record(path, text, spans) for text, spans in zip(texts, marked, strict=True)]
        path.write_text("\n".join(map(json.dumps, records)))
        sentences = read_annotations([path], columns={})
    assert [sentence.entities for sentence in sentences] == [[("X", *place)] for place in entities]


@given(st.text(max_size=40), st.data())
def test_entities_are_those_of_an_independent_conversion(text, data):
    """Each word gets B- if it is the first that touches the span, and I- if it is another one."""
    words = split_text(text)
    bounds = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)))
    spans = list(zip(bounds[::2], bounds[1::2], strict=False))
    tags = ["O"] * len(words.starts)
    touched = []
    for start, end in spans:
        inside = {at for at in range(start, end) if not text[at].isspace()}
        inside = range(min(inside), max(inside) + 1) if inside else ()
        of_span = [
            number
            for number, (first, last) in enumerate(zip(words.starts, words.stops, strict=True))
            if set(range(first, last)) & set(inside)
        ]
        touched += of_span
        for place, number in enumerate(of_span):
            tags[number] = "I-X" if place else "B-X"
    if len(touched) > len(set(touched)):
        with pytest.raises(UserError, match="are in the same word, but a word has one tag"):
            convert(text, *((*span, "X") for span in spans), units="characters")
        return
    sentence, _ = convert(text, *((*span, "X") for span in spans), units="characters")
    assert list(sentence.tags) == tags
    expected = [(kind, words.starts[first], words.stops[last]) for kind, first, last in get_entities(tags)]
    assert sentence.entities == expected


def test_spans_that_cut_words_are_extended_and_counted():
    sentence, notes = convert(
        "Anna, Smiths in Bamberg 😀Rome",
        *((0, 4, "PER"), (6, 11, "PER"), (17, 23, "LOC"), (25, 29, "LOC")),
        units="characters",
    )
    assert [(kind, sentence.text[start:stop]) for kind, start, stop in sentence.entities] == [
        ("PER", "Anna"),
        ("PER", "Smiths"),
        ("LOC", "Bamberg"),
        ("LOC", "😀Rome"),
    ]
    assert notes == [
        "a.jsonl: 3 of 4 spans began or ended inside a word and were extended to whole words, the first 'Smith' of "
        "'Smiths' in line 7"
    ]
    sentence, notes = convert("สมชายอยู่ในเชียงใหม่", (0, 5, "PER"), (11, 20, "LOC"))  # scripts without spaces
    assert not notes
    assert [(kind, sentence.text[start:stop]) for kind, start, stop in sentence.entities] == [
        ("PER", "สมชาย"),
        ("LOC", "เชียงใหม่"),
    ]
    with pytest.raises(
        UserError, match=r"a\.jsonl:7: the span 0–3 \(X\) 'Ann' begins or ends inside a word of 'Anna'; cor"
    ):
        convert("Anna", (0, 3, "X"), inexact="refuse")


def test_white_space_around_a_span_is_no_cut():
    sentence, notes = convert("in New York  now", (2, 12, "LOC"), inexact="refuse")
    assert [sentence.text[start:stop] for _, start, stop in sentence.entities] == ["New York"]
    assert notes == []


def test_spans_of_spaces_and_equal_spans_are_counted():
    sentence, notes = convert("a  b", (1, 3, "X"), (3, 4, "Y"), (3, 4, "Y"))
    assert sentence.tags == ("O", "B-Y")
    assert notes == ["a.jsonl: omitted: 1 span without a word", "a.jsonl: omitted: 1 span given twice"]
    with pytest.raises(UserError, match="spans without a word"):
        convert("a  b", (1, 3, "X"), inexact="refuse")


@pytest.mark.parametrize("labels", [("B-PER", "O"), ("B-PER", "I-PER"), ("I-PER", "B-PER", "LOC")])
def test_tags_of_words_as_labels_of_spans_are_refused(labels):
    spans = [(2 * place, 2 * place + 1, label) for place, label in enumerate(labels)]
    with pytest.raises(UserError, match=r"'B-PER' of a span is a tag of a word.*one span with its type, 'PER'"):
        convert("a b c", *spans)
    for types in (("B-cell", "T-cell"), ("O", "PER"), ("I-PER", "O")):  # types of published corpora
        sentence, _ = convert("a b c", *((*span[:2], kind) for span, kind in zip(spans, types, strict=False)))
        assert sentence.tags[:2] == tuple(f"B-{kind}" for kind in types)


@pytest.mark.parametrize(
    ("spans", "what"),
    [
        ([(0, 10, "PER"), (5, 10, "NAME")], r"the spans 0–10 \(PER\) 'Anna Smith' and 5–10 \(NAME\) 'Smith' overlap"),
        ([(0, 10, "PER"), (0, 10, "NAME")], "overlap"),
        ([(0, 7, "PER"), (5, 14, "NAME")], "overlap"),
        ([(0, 2, "A"), (2, 4, "B")], "are in the same word"),
    ],
)
def test_overlapping_and_nested_spans_are_refused(spans, what):
    for order in (spans, spans[::-1]):
        with pytest.raises(UserError, match=rf"a\.jsonl:7: .*{what}, but a word has one tag; remove one of them, or"):
            convert("Anna Smith came", *order)


def test_texts_of_spans_that_contradict_the_text_are_refused():
    with pytest.raises(UserError, match="is 'Anna' in the text, but the file states 'Berlin'; was the text changed"):
        convert("Anna met", (0, 4, "X", "Berlin"))


def test_units_are_found_for_the_whole_file():
    spans = [[Span(2, 3, "X", "b")], [Span(3, 4, "X", "b")]]  # the second is right in UTF-16 units only
    texts = [Annotated(text, of, "a", 1) for text, of in zip(("a b", "😀 b"), spans, strict=True)]
    reading = Reading("a")
    assert [one.spans[0][:2] for one in convert_spans(texts, reading)] == [(2, 3), (2, 3)]
    assert list(reading.notes()) == ["a: offsets count UTF-16 units, as the texts of the spans show"]


def test_an_offset_between_the_halves_of_a_character_is_refused():
    with pytest.raises(UserError, match="outside"):
        convert("😀 b", (1, 4, "X"), units="utf-16")


EXPECTED = {
    "conllu.conllu": 1,
    "doccano.jsonl": 0,
    "doccano_entities.jsonl": 0,
    "labelstudio.json": 0,
    "prodigy.jsonl": 0,
}


@pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases")
@pytest.mark.parametrize("name", [*EXPECTED, "spacy.json"])
def test_reported_cases(name):
    notes = []
    sentences = read_annotations([CASES / name], columns={}, notes=notes)
    words = ["Yes", ",", "Anna", "Smith", "it", "was", "."]
    assert (sentences[0].words, sentences[0].tags) == (words, ("O", "O", "B-PER", "I-PER", "O", "O", "O"))
    kinds = {"Anna Smith": "PER", "Berlin": "LOC", "Acme Corp": "ORG"}
    for sentence in sentences:
        ((kind, start, stop),) = sentence.entities
        assert kinds[sentence.text[start:stop]] == kind
    assert (len(sentences), len(notes)) == (60, EXPECTED.get(name, 0))


@pytest.mark.parametrize(
    ("span", "part", "notes"),
    [
        ((2, 6, "X"), "Anna", 0),  # as UTF-16 units it would cut a word
        ((3, 7, "X"), "Anna", 1),  # as characters it would
        ((2, 7, "X"), "Anna", 1),  # neither would
        ((3, 5, "X"), "Anna", 1),  # both would: characters
    ],
)
def test_units_without_texts_are_those_that_cut_fewer_words(span, part, notes):
    sentence, found = convert("😀 Anna met", span)
    assert [sentence.text[start:stop] for _, start, stop in sentence.entities] == [part]
    assert sum("offsets are read as" in note for note in found) == notes


@given(st.lists(st.sampled_from(["Åsa", "Käthe", "met", "Anna", "中", "😀", "in", "Köln"]), min_size=2, max_size=20))
def test_offsets_in_bytes_are_recognized(words):
    """Where there are no texts of the spans, bytes are what cuts no word; a word at random is no proof."""
    text = " ".join(["Åsa", *words, "saw"])
    parts = split_text(text)
    places = list(zip(parts.starts, parts.stops, strict=True))
    spans = [(*(len(text[:place].encode()) for place in pair), "X") for pair in places]
    sentence, notes = convert(text, *spans)
    assert sentence.entities == [("X", *pair) for pair in places]
    assert "offsets are read as bytes of UTF-8: of " in notes[0]
    assert convert(text, *spans, units="bytes")[0].tags == sentence.tags
    stated = [(*span, text[slice(*pair)]) for span, pair in zip(spans, places, strict=True)]
    assert convert(text, *stated)[0].tags == sentence.tags
    assert convert(text, *((*pair, "X") for pair in places)) == (sentence, [])


@pytest.mark.parametrize("units", ["characters", "bytes"])
@pytest.mark.seeds(20)
def test_offsets_of_words_with_particles(seed, units):
    """Where all spans end inside a word, as before Korean particles, the impossible way of counting is not chosen."""
    rng = random.Random(seed)
    texts, expected = [], []
    for line in range(6):
        stems = ["".join(rng.choices("김철수서울부산영희", k=rng.randrange(2, 4))) for _ in range(4)]
        text = " ".join(stem + rng.choice(["가", "는", "에서"]) for stem in stems)
        start = text.index(" ") + 1
        place = start, start + len(stems[1])
        size = [len(text[:offset].encode()) if units == "bytes" else offset for offset in place]
        texts.append(Annotated(text, [Span(*size, "X")], "a.jsonl", line))
        expected.append(place)
    reading = Reading("a.jsonl")
    converted = convert_spans(texts, reading)
    assert [(one.spans[0].start, one.spans[0].end) for one in converted] == expected
    assert [f"offsets are read as {'bytes' if units == 'bytes' else ''}" in one for one in reading.remarks] == (
        [True] if units == "bytes" else []
    )
