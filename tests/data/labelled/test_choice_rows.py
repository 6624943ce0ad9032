"""Multiple-choice questions in rows, as `datasets` stores them and as they are published, wherever the rows are."""

import json
import random

import pytest

import unmask
from tests.data.labelled.test_squad_rows import write
from unmask.data.labelled.choices_file import read_choices
from unmask.support.errors import UserError

WORDS = ["Rome", "北京", "the", "old", "😀", "river", "runs", "nan", "None"]


def drawn(seed, number=8, *, choices=None):
    """Return random questions: passage, question, choices, and which is right."""
    rng = random.Random(seed)

    def text(size):
        return " ".join(rng.choices(WORDS, k=size))

    questions = []
    for index in range(number):
        several = [f"{text(2)} {place}" for place in range(choices or rng.randrange(2, 6))]
        questions.append((f"{text(6)} {index}", text(4), several, rng.randrange(len(several))))
    return questions


def swag(passage, question, choices, right):
    endings = {f"ending{number}": choice for number, choice in enumerate(choices)}
    return {"video-id": "v", "fold-ind": "3", "sent1": passage, "sent2": question, **endings, "label": right}


def hellaswag(passage, question, choices, right):
    return {"ind": 4, "ctx_a": passage, "ctx_b": question, "ctx": "x", "endings": choices, "label": str(right)}


def race(passage, question, choices, right):
    names = {"example_id": "high3.txt", "answer": "ABCDE"[right]}
    return {**names, "article": passage, "question": question, "options": choices}


def arc(passage, question, choices, right, names="ABCDE"):
    listed = {"text": choices, "label": [*names][: len(choices)]}
    return {"id": passage, "question": question, "choices": listed, "answerKey": names[right]}


def numbered_arc(*question):
    return arc(*question, names="12345")


def published_arc(passage, question, choices, right):
    listed = [{"text": text, "label": label} for text, label in zip(choices, "ABCDE", strict=False)]
    return {"id": passage, "question": {"stem": question, "choices": listed}, "answerKey": "ABCDE"[right]}


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "split", "memory", "data frame", "read from parquet"])
@pytest.mark.parametrize("row", [swag, hellaswag, race, arc, numbered_arc, published_arc])
def test_rows_are_questions(tmp_path, row, form):
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        questions = drawn(seed, choices=4 if row is swag else None)
        found = read_choices([write([row(*question) for question in questions], folder, form)])
        asks = row in (arc, numbered_arc, published_arc)
        expected = [
            (question if asks else passage, "" if asks else question, tuple(choices), right)
            for passage, question, choices, right in questions
        ]
        assert [(one.passage, one.question, one.choices, one.gold) for one in found] == expected
        assert len({one.id for one in found}) == len(found)
        assert {one.part for one in found} == ({"high"} if row is race else {""})


def test_lines_in_a_json_file_and_articles_in_lines(tmp_path):
    """What `to_json` of `datasets` writes is read by whichever name, and RACE's articles may be lines, too."""
    path = tmp_path / "a.json"
    path.write_text("".join(json.dumps(hellaswag(*question)) + "\n" for question in drawn(0)))
    assert len(read_choices([path])) == 8
    article = {
        "id": "middle1",
        "article": "a",
        "questions": ["b", "c"],
        "options": [["d", "e"]] * 2,
        "answers": ["A", "B"],
    }
    path.write_text(json.dumps(article, indent=1))
    assert [one.gold for one in read_choices([path])] == [0, 1]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({**article, "id": name}) + "\n" for name in ("x", "y")))
    assert [one.id for one in read_choices([path])] == ["x 0", "x 1", "y 0", "y 1"]


def test_a_sentence_that_nothing_precedes_is_in_place_of_the_passage(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(hellaswag("", "He", ["runs.", "sleeps."], 1)))
    (found,) = read_choices([path])
    assert (found.passage, found.question) == ("He", "")


def test_rows_without_ids_are_numbered_over_files_and_without_answers_can_be_predicted(tmp_path):
    bare = [{"question": "a", "choices": {"text": ["b", "c"], "label": ["A", "B"]}}] * 2
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        path.write_text("\n".join(map(json.dumps, bare)))
    assert [one.id for one in read_choices(paths, gold=False)] == ["1", "2", "3", "4"]
    with pytest.raises(UserError, match=r"a\.jsonl: row 1: the answerKey None is none of the 2 choices \(A, B\)"):
        read_choices(paths)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (arc("a", "b", ["c", "d"], 0) | {"answerKey": "C"}, "the answerKey 'C' is none of the 2 choices"),
        (arc("a", "b", ["c"], 0), "fewer than two choices"),
        (arc("a", " ", ["c", "d"], 0), "the question is empty"),
        (arc("a", "b", ["c", " "], 0), "text 1: the text is empty"),
        (arc("a", "b", ["c", "d"], 0, names="AA"), "two choices have the same label: A, A"),
        (arc("a", "b", ["c", "d"], 0, names="A"), "2 choices, but 1 label"),
        (hellaswag("a", "b", ["c", "d"], 2), "the label '2' is none of the 2 choices"),
        (hellaswag("", "", ["c", "d"], 1), "ctx_a and ctx_b are empty"),
        (race("a", "b", ["c", "d"], 0) | {"options": "c"}, "'options' is str, not list"),
        (swag("a", "b", ["c"] * 4, 0) | {"label": True}, "the label True is none of the 4 choices"),
        (
            {"text": "a", "label": "b"},
            "the keys text, label are not those of a question with choices; files must be in",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, row, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(UserError, match=rf"a\.jsonl: row 1.*{message}".replace("(", r"\(")):
        read_choices([path])


def test_rows_are_trained_on_and_predicted(tmp_path, published):
    rows = [hellaswag(*question) for question in drawn(1)]
    settings = {"budget.steps": 1, "task.length": 64}
    start = {"dev": rows[:2], "settings": settings, "device": "cpu", "quiet": True}
    run = unmask.finetune("multiple-choice", published, rows, tmp_path / "run", **start)
    assert unmask.evaluate(run, rows, device="cpu", quiet=True)["examples"] == 8
