"""Questions as `datasets` stores SQuAD, a row each, are those of files in SQuAD's own format."""

import json
import random

import pytest

import unmask
from unmask.data.labelled.question_files import read_squad
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

PASSAGE = "The tower was built by Eiffel's firm 😀 in 1889."


def rows_of(seed, number=12):
    """Return rows of random questions; every fourth has no answer, and every third two."""
    rng = random.Random(seed)
    rows = []
    for index in range(number):
        passage = " ".join(rng.choices(["the", "tower", "😀", "北京", "of", "Paris", "1889"], k=12))
        answers = []
        for _ in range(0 if index % 4 == 3 else 1 + (index % 3 == 2)):
            start = rng.randrange(len(passage) - 6)
            text = passage[start : start + 6]
            answers.append((text, start))
        texts, starts = ([pair[side] for pair in answers] for side in (0, 1))
        row = {"id": f"q{index}", "title": "x", "context": passage, "question": f"where {index}?"}
        rows.append({**row, "answers": {"text": texts, "answer_start": starts}})
    return rows


def nested(rows):
    """Return the same questions in SQuAD's own format."""
    paragraphs = []
    for row in rows:
        answers = [{"text": text, "answer_start": start} for text, start in zip(*row["answers"].values(), strict=True)]
        question = {**row, "answers": answers, "is_impossible": not answers}
        paragraphs.append({"context": row["context"], "qas": [question]})
    return {"data": [{"paragraphs": paragraphs}]}


def write(rows, folder, form):
    """Return a source of rows."""
    if form == "memory":
        return as_sources(rows)[0]
    if form == "data frame":
        pandas = pytest.importorskip("pandas")
        return as_sources(pandas.DataFrame(rows))[0]
    if form in ("parquet", "read from parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        path = folder / "rows.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return as_sources(pytest.importorskip("pandas").read_parquet(path))[0] if form[0] == "r" else path
    if form == "split":
        write(rows, folder, "parquet").rename(folder / "validation-00000-of-00001.parquet")
        return f"{folder}#validation"
    path = folder / f"rows.{form.partition(' ')[0]}"
    path.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(
    "form", ["jsonl", "json", "json lines", "parquet", "split", "memory", "data frame", "read from parquet"]
)
def test_rows_are_questions(tmp_path, form):
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        rows = rows_of(seed)
        (folder / "nested.txt").write_text(json.dumps(nested(rows)))
        expected = read_squad([folder / "nested.txt"])
        found = read_squad([write(rows, folder, form)])

        def content(questions):
            return [(q.id, q.question, q.passage, q.answers, q.impossible) for q in questions]

        assert content(found) == content(expected)
        assert sum(q.impossible for q in found) == 3
        assert found[1].place == "row 2 (id q1)"


@pytest.mark.parametrize("form", ["json", "jsonl", "memory"])
def test_lists_of_paragraphs_are_questions(tmp_path, form):
    """This is what simpletransformers reads."""
    rows = rows_of(0)
    (tmp_path / "nested.txt").write_text(json.dumps(nested(rows)))
    source = write(nested(rows)["data"][0]["paragraphs"], tmp_path, form)
    expected, found = read_squad([tmp_path / "nested.txt"]), read_squad([source])
    assert [(q.id, q.passage, q.answers) for q in found] == [(q.id, q.passage, q.answers) for q in expected]
    assert found[1].place == "row 2, question 1 (id q1)"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_tables_of_cells_are_refused_with_what_to_write(tmp_path, suffix):
    with pytest.raises(UserError, match="not read from tables of cells; write a record for each, as by to_json"):
        read_squad([tmp_path / f"a.{suffix}"])


def test_rows_without_ids_are_numbered_and_without_answers_can_be_predicted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"context": PASSAGE, "question": "When?"}))
    (question,) = read_squad([path], gold=False)
    assert (question.id, question.passage, question.answers) == ("1", PASSAGE, ())
    with pytest.raises(UserError, match=r"a\.jsonl: row 1: 'answers' is missing"):
        read_squad([path])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answers": {"text": ["1889"], "answer_start": []}}, "row 1: 1 texts of answers, but 0 offsets"),
        ({"answers": {"text": ["1889"]}}, "row 1: 'answer_start' is missing"),
        ({"answers": "1889"}, "row 1: 'answers' is str, not list"),
        ({"answers": [{"text": "1889", "answer_start": "42"}]}, "answer 1: 'answer_start' is str, not int"),
        ({"answers": {"text": [], "answer_start": []}, "is_impossible": False}, "no answer"),
        ({"question": " "}, "the question is empty"),
        ({"context": None}, "'context' is NoneType, not str"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, row, message):
    good = {"context": PASSAGE, "question": "When?", "answers": {"text": ["1889"], "answer_start": [42]}}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(good | row))
    with pytest.raises(UserError, match=message):
        read_squad([path])


def test_rows_are_trained_on_and_predicted(tmp_path, published):
    rows = [
        {"context": PASSAGE, "question": f"when {number}?", "answers": {"text": ["1889"], "answer_start": [42]}}
        for number in range(8)
    ]
    settings = {"budget.steps": 1, "task.length": 64}
    start = {"dev": rows[:2], "settings": settings, "device": "cpu", "quiet": True}
    run = unmask.finetune("question-answering", published, rows, tmp_path / "run", **start)
    assert unmask.evaluate(run, rows, device="cpu", quiet=True)["examples"] == 8
