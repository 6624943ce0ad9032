"""Rows of QuAC, CoQA and HotpotQA, as `datasets` stores them, are the questions of the published files."""

import json
import random

import pytest

from unmask.data.labelled.dialogue_files import read_coqa, read_quac
from unmask.data.labelled.hotpotqa_file import read_hotpotqa
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

WORDS = ["the", "tower", "😀", "北京", "of", "Paris", "1889"]
READERS = {"quac": read_quac, "coqa": read_coqa, "hotpotqa": read_hotpotqa}
FORMS = ["jsonl", "json", "parquet", "split", "memory"]


def spans(rng, passage, number):
    starts = [rng.randrange(len(passage) - 6) for _ in range(number)]
    return [{"text": passage[start : start + 6], "answer_start": start} for start in starts]


def make_quac(rng, number):
    """Return the content of a file, and the same dialogues as rows."""
    text = " ".join(rng.choices(WORDS, k=12))
    passage = f"{text} CANNOTANSWER"
    none = {"text": "CANNOTANSWER", "answer_start": passage.index("CANNOTANSWER")}
    turns = [
        {
            "id": f"C_{number}_q#{turn}",
            "question": f"where {turn}?",
            "answers": rng.choice([[none, none], spans(rng, text, 2), [*spans(rng, text, 1), none]]),
            "orig_answer": rng.choice([none, *spans(rng, text, 1)]),
            "yesno": rng.choice("ynx"),
            "followup": rng.choice("ynm"),
        }
        for turn in range(rng.randint(1, 4))
    ]
    row = {
        "dialogue_id": f"C_{number}",
        "wikipedia_page_title": "x",
        "context": passage,
        "turn_ids": [turn["id"] for turn in turns],
        "questions": [turn["question"] for turn in turns],
        "followups": [turn["followup"] for turn in turns],
        "yesnos": [turn["yesno"] for turn in turns],
        "answers": {
            "texts": [[answer["text"] for answer in turn["answers"]] for turn in turns],
            "answer_starts": [[answer["answer_start"] for answer in turn["answers"]] for turn in turns],
        },
        "orig_answers": {
            "texts": [turn["orig_answer"]["text"] for turn in turns],
            "answer_starts": [turn["orig_answer"]["answer_start"] for turn in turns],
        },
    }
    return {"paragraphs": [{"id": row["dialogue_id"], "context": passage, "qas": turns}]}, row


def make_coqa(rng, number):
    """Return a story of a file, and the same as a row."""
    story = " ".join(rng.choices(WORDS, k=12))
    answers = [
        {
            "input_text": rng.choice([span["text"], "yes", "unknown"]),
            "span_start": span["answer_start"],
            "span_end": end,
        }
        for span in spans(rng, story, rng.randint(1, 4))
        for end in [span["answer_start"] + 6]
    ]
    asked = [f"where {turn}?" for turn in range(len(answers))]
    row = {
        "source": "cnn",
        "story": story,
        "questions": asked,
        "answers": {
            "input_text": [answer["input_text"] for answer in answers],
            "answer_start": [answer["span_start"] for answer in answers],
            "answer_end": [answer["span_end"] for answer in answers],
        },
    }
    questions = [{"input_text": text, "turn_id": turn} for turn, text in enumerate(asked, 1)]
    answers = [{**answer, "turn_id": turn} for turn, answer in enumerate(answers, 1)]
    return {"id": str(number), "source": "cnn", "story": story, "questions": questions, "answers": answers}, row


def make_hotpotqa(rng, number):
    """Return a question of a file, and the same as a row."""
    context = [[f"title {at}", [" ".join(rng.choices(WORDS, k=4)) for _ in range(3)]] for at in range(3)]
    facts = [[f"title {rng.randrange(3)}", rng.randrange(3)] for _ in range(2)]
    record = {"question": "where?", "answer": rng.choice([*WORDS, "yes"]), "type": "bridge"}
    row = {
        "id": f"q{number}",
        **record,
        "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [sentence for _, sentence in facts]},
        "context": {"title": [title for title, _ in context], "sentences": [texts for _, texts in context]},
    }
    return {"_id": f"q{number}", **record, "supporting_facts": facts, "context": context}, row


MAKERS = {"quac": make_quac, "coqa": make_coqa, "hotpotqa": make_hotpotqa}


def write(rows, folder, form):
    """Return a source of rows."""
    if form == "memory":
        return as_sources(rows)[0]
    if form in ("parquet", "split"):
        pyarrow = pytest.importorskip("pyarrow")
        path = folder / ("rows.parquet" if form == "parquet" else "validation-00000-of-00001.parquet")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
        return path if form == "parquet" else f"{folder}#validation"
    path = folder / f"rows.{form}"
    path.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)))
    return path


def content(questions):
    """Return all but where questions are from."""
    names = [name for name in questions[0].__struct_fields__ if name not in ("file", "place")]
    return [[getattr(question, name) for name in names] for question in questions]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", READERS)
def test_rows_are_the_questions_of_the_published_files(tmp_path, name, form):
    rng = random.Random(f"{name} {form}")
    records, rows = map(list, zip(*(MAKERS[name](rng, number) for number in range(1, 9)), strict=True))
    (tmp_path / "official.json").write_text(json.dumps(records if name == "hotpotqa" else {"data": records}))
    expected = READERS[name]([tmp_path / "official.json"])
    folder = tmp_path / "rows"
    folder.mkdir()
    source = write(rows, folder, form)
    assert content(READERS[name]([source])) == content(expected)
    for row in rows:
        for key in ("answers", "orig_answers", "yesnos", "followups", "answer", "supporting_facts"):
            row.pop(key, None)
    without = READERS[name]([as_sources(rows)[0]], gold=False)
    assert [question.id for question in without] == [question.id for question in expected]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("quac", {"yesnos": []}, r"row 1: \d questions, but 'yesno' has 0 values"),
        (
            "quac",
            {"answers": {"texts": [["a"]], "answer_starts": []}},
            "row 1, answers: lists of different lengths: 1, 0",
        ),
        ("quac", {"dialogue_id": None}, "row 1: 'dialogue_id' is NoneType, not str"),
        ("quac", {"questions": "why?"}, "row 1: 'questions' is str, not list"),
        ("coqa", {"answers": {"input_text": ["a"]}}, "row 1, answers: 'answer_start' is missing"),
        ("coqa", {"story": " "}, r"row 1 \(id 1\): the story is empty"),
        (
            "hotpotqa",
            {"context": {"title": ["a"], "sentences": []}},
            "row 1, context: lists of different lengths: 1, 0",
        ),
        ("hotpotqa", {"id": 3}, "row 1: '_id' is int, not str"),
    ],
)
def test_what_is_wrong_is_named(name, change, message):
    _, row = MAKERS[name](random.Random(0), 1)
    with pytest.raises(UserError, match=f"<list>: {message}"):
        READERS[name](as_sources([row | change]))
