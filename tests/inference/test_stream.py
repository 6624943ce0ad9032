"""Predictions for a stream of examples: the same as for a list, in windows, and continued after an interruption."""

import json

import msgspec
import pytest

from unmask.errors import UserError
from unmask.inference import predictor as module
from unmask.inference.predictor import Predictor
from unmask.inference.stream import identity, summed, write_predictions
from unmask.tasks.rows import as_rows

from .conftest import CPU, TEXTS


@pytest.fixture
def predictor(make, monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 3)
    return Predictor(make(), CPU)


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
    assert [json.loads(line)["label"] for line in lines] == [one.label for one in predictor.run(rows)]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_other_work_is_not_continued(predictor, tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write_predictions(predictor, interrupted(as_rows(TEXTS), 4), out, identity("model", "a.tsv"))
    with pytest.raises(UserError, match="another model, other data"):
        write_predictions(predictor, iter(as_rows(TEXTS)), out, identity("model", "b.tsv"), resume=True)


def test_nothing_is_left_of_an_empty_stream(predictor, tmp_path):
    with pytest.raises(UserError, match="no examples"):
        write_predictions(predictor, iter(()), tmp_path / "out.jsonl", identity("model", "a.tsv"))
    assert list(tmp_path.iterdir()) == []


def test_notes_of_windows_are_added():
    notes = ["2 of 1,000 texts are empty", "other", "1,001 of 2,000 texts are empty", "other"]
    assert summed(notes) == ["1,003 of 3,000 texts are empty", "other"]
    assert msgspec.json.encode(summed([])) == b"[]"
