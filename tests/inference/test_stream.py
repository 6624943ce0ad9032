"""Predictions for a stream of examples: the same as for a list, in windows, and continued after an interruption."""

import json
import pickle
import weakref

import msgspec
import pytest
import torch

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.question_files import Question
from unmask.data.labelled.tagged_sentence import split_text
from unmask.inference.predictor import Predictor
from unmask.inference.stream import identity, save_predictions, summed, write_predictions
from unmask.model.model import Model
from unmask.support.errors import ShareNote, UserError
from unmask.tasks.embedding import Embedding
from unmask.tasks.question_answering import json_object
from unmask.tasks.rows import as_rows
from unmask.tasks.text_pairs import PairTask

from .conftest import CPU, SETTINGS, TEXTS


@pytest.fixture
def predictor(make, monkeypatch):
    monkeypatch.setattr(Predictor, "window", 3)
    return Predictor(make(), CPU)


class Values(dict):
    """The values of a row, which can be watched."""


def interrupted(rows, after):
    """Yield some rows, then fail as a killed program would."""
    yield from rows[:after]
    raise KeyboardInterrupt


def test_a_stream_predicts_what_a_list_does(predictor):
    rows = as_rows(TEXTS * 2)
    windows = list(predictor.stream(iter(rows)))
    assert [len(window) for window in windows] == [3, 3, 2]
    expected = predictor.run(rows)
    for one, two in zip(expected, [row for window in windows for row in window], strict=True):
        assert one.label == two.label
    texts = [row.text for window in predictor.stream(iter(TEXTS * 2)) for row in window]
    assert texts == TEXTS * 2
    with pytest.raises(UserError, match="3 is not a string"):
        list(predictor.stream(["a", 3]))


def test_pairs_have_the_same_ranks_in_a_stream_as_in_a_list(tokenizer, monkeypatch):
    monkeypatch.setattr(Predictor, "window", 5)
    monkeypatch.setattr("unmask.tasks.text_pairs.POOL", 2)
    monkeypatch.setattr(PairTask, "pool", 2)
    torch.manual_seed(0)
    predictor = Predictor(Model(SETTINGS.build(tokenizer.size), tokenizer, {"embedding": {}}, task=Embedding()), CPU)
    rows = [Row({"text": text, "text_b": f"{other} by the sea"}, "", 0) for text in TEXTS for other in TEXTS]
    windows = list(predictor.stream(iter(rows)))
    assert len(windows[0]) == 4
    ranks = [pair.rank for window in windows for pair in window]
    assert ranks == [pair.rank for pair in predictor.run(rows)]


def test_an_interrupted_file_is_continued(predictor, tmp_path):
    rows, out = as_rows(TEXTS * 2), tmp_path / "out.jsonl"
    about = identity("model", tmp_path / "data.tsv")
    with pytest.raises(KeyboardInterrupt):
        write_predictions(predictor, interrupted(rows, 7), out, about)
    part = tmp_path / ".out.jsonl.part"
    assert not out.exists() and len(part.read_bytes().splitlines()) in (3, 6)
    first = part.read_bytes().splitlines()[0]
    with part.open("ab") as file:
        file.write(b'{"label": "cut of')
    assert write_predictions(predictor, iter(rows), out, about, resume=True) == 8
    lines = out.read_bytes().splitlines()
    assert lines[0] == first
    write_predictions(predictor, iter(rows), tmp_path / "unbroken.jsonl", about)
    assert (tmp_path / "unbroken.jsonl").read_bytes() == out.read_bytes()
    (tmp_path / "unbroken.jsonl").unlink()
    assert [json.loads(line)["label"] for line in lines] == [one.label for one in predictor.run(rows)]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_other_work_is_not_continued(predictor, tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write_predictions(predictor, interrupted(as_rows(TEXTS), 4), out, identity("model", "a.tsv", format="tsv"))
    with pytest.raises(UserError, match="another one: format was tsv, now csv; model was model, now other; repeat"):
        other = identity("other", "a.tsv", format="csv")
        write_predictions(predictor, iter(as_rows(TEXTS)), out, other, resume=True)


def test_nothing_is_left_of_an_empty_stream(predictor, tmp_path):
    with pytest.raises(UserError, match="no examples"):
        write_predictions(predictor, iter(()), tmp_path / "out.jsonl", identity("model", "a.tsv"))
    assert list(tmp_path.iterdir()) == []


def test_notes_of_windows_are_added():
    empty = [ShareNote(2, 1000, "texts are empty"), ShareNote(1001, 2000, "texts are empty")]
    assert summed([empty[0], "other", empty[1], "other"]) == ["1,003 of 3,000 texts are empty", "other"]
    assert msgspec.json.encode(summed(empty)) == b'["1,003 of 3,000 texts are empty"]'
    assert pickle.loads(pickle.dumps(empty[0])).total == 1000


def test_windows_without_a_note_count(predictor, tmp_path):
    """Of a text that is empty in a large file, it was said that it was one of those of its window."""
    notes, rows = list[str](), as_rows([*TEXTS, "", *TEXTS, "the dog " * 30])
    write_predictions(predictor, iter(rows), tmp_path / "out.jsonl", identity("model", "a.tsv"), notes=notes)
    assert [note.partition(" texts")[0] for note in sorted(notes)] == [f"1 of {len(rows)}"] * 2
    tokens = [ShareNote(0, 4, ""), ShareNote(7, 50, "tokens"), ShareNote(0, 4, ""), ShareNote(0, 4, "")]
    assert summed([*tokens, ShareNote(3, 20, "tokens")]) == ["10 of 70 tokens"]


WORDS = [split_text(text) for text in TEXTS * 2]
QUESTIONS = [Question(f"q{number}", "who?", text) for number, text in enumerate(TEXTS * 2)]
CASES = [
    ("token-classification", WORDS, "out.jsonl"),
    ("token-classification", WORDS, "out.conll"),
    ("regression", as_rows(TEXTS * 2), "out.jsonl"),
    ("question-answering", QUESTIONS, "out.json"),
]


@pytest.mark.parametrize(("kind", "examples", "name"), CASES, ids=[f"{kind} {name}" for kind, _, name in CASES])
def test_every_task_writes_the_same_bytes_at_once_in_windows_and_after_an_interruption(
    make, monkeypatch, tmp_path, kind, examples, name
):
    predictor, about = Predictor(make(kind), CPU), identity("model", "data")
    folders = [tmp_path / where for where in ("memory", "unbroken", "resumed")]
    for folder in folders:
        folder.mkdir()
    save_predictions(predictor.task, folders[0] / name, examples, predictor.run(examples))
    for size, folder in ((8, folders[1]), (3, folders[2])):
        monkeypatch.setattr(Predictor, "window", size)
        if size == 3:
            with pytest.raises(KeyboardInterrupt):
                write_predictions(predictor, interrupted(examples, 7), folder / name, about)
        assert write_predictions(predictor, iter(examples), folder / name, about, resume=True) == 8
    found = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert found[0] == found[1] and found[0].keys() == found[2].keys() and found[0][name]
    write_predictions(predictor, iter(examples), folders[1] / name, about)
    assert {path.name: path.read_bytes() for path in folders[1].iterdir()} == found[2], "unbroken, in the same windows"


def test_answers_and_alternatives_are_written_by_id(make, tmp_path):
    predictor = Predictor(make("question-answering"), CPU)
    write_predictions(predictor, iter(QUESTIONS), tmp_path / "out.json", identity("model", "data"))
    found = predictor.run(QUESTIONS)
    for name, attribute in (("out.json", "answer"), ("out.json.nbest.json", "nbest")):
        expected = msgspec.json.encode({one.id: getattr(one, attribute) for one in found})
        assert (tmp_path / name).read_bytes() == msgspec.json.format(expected) + b"\n"


def test_no_more_than_two_windows_of_examples_are_in_memory(predictor, tmp_path):
    alive, most = [], 0

    def examples():
        nonlocal most
        for _ in range(40):
            values = Values(text="the dog")
            alive.append(None)
            weakref.finalize(values, alive.pop)
            yield Row(values, "", 0)
            del values
            most = max(most, len(alive))

    assert write_predictions(predictor, examples(), tmp_path / "out.jsonl", identity("model", "data")) == 40
    assert most <= 3 * predictor.window


def test_a_json_object_in_parts_is_that_of_msgspec():
    for content in ({}, {"a": ""}, {"é\n": [{"b": None, "c": [1.5, []]}, "x\ny"], "z": {}}):
        assert b"".join(json_object(content.items())) == msgspec.json.format(msgspec.json.encode(content)) + b"\n"
