"""CoQA's files: kinds of answers, the best span of a rationale, histories; what is no span is counted."""

import itertools
import json
import random
import re
import zipfile

import pytest

from unmask.data.labelled.dialogue_files import Turn, best_span, describe_rationales, kind_of, read_coqa
from unmask.metrics.question_answering import normalize, overlap
from unmask.support.errors import UserError

STORY = "Cotton was a little white kitten. She lived in a barn near a farm house."


def answer(text, rationale=None, start=None):
    place = STORY.find(rationale) if rationale else -1
    start = place if start is None else start
    end = start + len(rationale) if rationale else -1
    return {"input_text": text, "span_text": rationale or "unknown", "span_start": start, "span_end": end}


def content(*pairs, more=None, id="s", turns=None):
    numbers = turns or range(1, len(pairs) + 1)
    story = {
        "id": id,
        "source": "mctest",
        "story": STORY,
        "questions": [{"input_text": text, "turn_id": n} for (text, _), n in zip(pairs, numbers, strict=True)],
        "answers": [{**one, "turn_id": n} for (_, one), n in zip(pairs, numbers, strict=True)],
    }
    return {"version": "1.0", "data": [story | ({"additional_answers": more} if more else {})]}


def read(tmp_path, value, **options):
    path = tmp_path / "coqa.json"
    path.write_text(json.dumps(value))
    return read_coqa([path], **options)


COLOR = "what color was Cotton?", answer("White", "a little white kitten")
DOG = "was she a dog?", answer("No.", "Cotton was a little white kitten")
WHERE = "where did she live?", answer("a barn", "in a barn near a farm house")
AGE = "how old was she?", answer("unknown")


def test_answers_are_spans_or_closed(tmp_path):
    more = {"0": [answer("white"), answer("no"), answer("in a barn"), answer("unknown")]}
    color, dog, where, age = read(tmp_path, content(COLOR, DOG, WHERE, AGE, more=more))
    assert [one.kind for one in (color, dog, where, age)] == ["span", "no", "span", "unknown"]
    assert [one.answers[0].text for one in (color, dog, where)] == [
        "white",
        "Cotton was a little white kitten",
        "barn",
    ], "articles do not count"
    assert (age.answers, age.impossible, color.impossible) == ((), True, False)
    assert color.references == ("White", "white")
    assert (age.id, age.dialogue, age.turn, age.source) == ("s 4", "s", 4, "mctest")
    assert age.history[0] == Turn("what color was Cotton?", "White", 11, 32)
    assert all(STORY.startswith(one.answers[0].text, one.answers[0].start) for one in (color, dog, where))


def test_answers_are_not_needed_for_predictions(tmp_path):
    value = content(COLOR, DOG)
    del value["data"][0]["answers"]
    first, second = read(tmp_path, value, gold=False)
    assert (first.kind, first.answers, second.history) == ("", (), (Turn("what color was Cotton?"),))
    first, second = read(tmp_path, content(COLOR, DOG), gold=False)
    assert (first.kind, second.history[0].answer) == ("", "White")


def test_what_is_no_span_is_counted(tmp_path):
    none = "why?", answer("because", "a farm house")
    moved = "what was she?", answer("kitten", "white kitten", start=2)
    nowhere = "who?", {**answer("nobody"), "span_text": "not in the story"}
    closed = "did she?", {**answer("yes"), "span_text": "not in the story"}
    found = read(tmp_path, content(none, moved, nowhere, closed))
    assert [one.answers[0].text for one in found[:2]] == ["a farm house", "kitten"]
    assert [one.answers for one in found[2:]] == [(), ()]
    assert [line.partition(" (the first")[0] for line in describe_rationales(found)] == [
        "answers that share no word with their rationale, which is learned instead: 1 of 4",
        "rationales that are not at their offsets: 1 of 4",
        "answers that occur nowhere in their stories, and are used only for scoring: 2 of 4",
    ]


@pytest.mark.parametrize(
    ("text", "kind"), [("Yes", "yes"), ("no!", "no"), ("Unknown", "unknown"), ("yes, she did", "span"), ("", "span")]
)
def test_kinds(text, kind):
    assert kind_of(text) == kind


def test_no_other_span_of_words_is_better():
    rng = random.Random(0)
    for _ in range(300):
        passage = " ".join(rng.choices(["the", "dog", "cat", "sees", "a", "red", "sea", "."], k=rng.randint(1, 12)))
        wanted = " ".join(rng.choices(["dog", "cat", "red", "the", "bird"], k=rng.randint(1, 3)))
        start, end, f1 = best_span(passage, 0, len(passage), wanted)
        words = [one.span() for one in re.finditer(r"\S+", passage)]
        spans = [(a, b) for (a, _), (_, b) in itertools.combinations_with_replacement(words, 2)]
        tried = {span: overlap(normalize(wanted).split(), normalize(passage[slice(*span)]).split()) for span in spans}
        assert f1 == pytest.approx(max(tried.values()))
        if f1:
            assert tried[start, end] == pytest.approx(f1)
            assert end - start == min(b - a for (a, b), value in tried.items() if value >= f1 - 1e-9 and a == start)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"data": []}, "there are no questions in the file"),
        ([1], "row 1: int, not an object"),
        (content(COLOR, DOG, turns=[1, 1]), "question 2: the id '1' is also that of story 1 .*, question 1"),
        ({"data": content(COLOR)["data"] * 2}, r"story 2 \(id s\): the id 's' is also that of story 1"),
        (content((" ", answer("x"))), "the input_text is empty"),
        (content(COLOR, DOG, more={"0": [answer("x")]}), "1 answer to 2 questions"),
        (content(COLOR, more={"0": [answer("x") | {"turn_id": 2}]}), "'turn_id' is 1, that of its answer 2"),
        (content(("why?", {"input_text": "x"})), "'span_start' is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, value, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, value)


@pytest.mark.shared
def test_published_samples(shared, tmp_path):
    with zipfile.ZipFile(shared / "data/qa/format_samples/coqa__1.0.0.zip") as archive:
        archive.extractall(tmp_path)
    train, dev = (read_coqa([tmp_path / f"dummy_data/coqa-{name}-v1.0.json"]) for name in ("train", "dev"))
    assert {len(one.references) for one in train} == {1}
    assert {len(one.references) for one in dev} == {4}
    assert {one.kind for one in train + dev} == {"span", "no", "unknown"}
    for one in train + dev:
        assert all(one.passage.startswith(found.text, found.start) for found in one.answers)
    found = [
        overlap(normalize(one.references[0]).split(), normalize(one.answers[0].text).split())
        for one in dev
        if one.kind == "span"
    ]
    assert sum(found) / len(found) > 0.7
