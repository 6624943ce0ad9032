"""Tests of soft labels of texts with several labels: probabilities and votes in each form, and what is refused."""

import json
import random

import pandas as pd
import pytest

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import parse_columns, read_rows
from unmask.data.labelled.table import as_table
from unmask.support.errors import UserError

LABELS = ["anger", "joy", "no, not that"]
SETS = Fields(several=True, soft=True)


def read(path, columns=None, notes=None):
    return read_rows([path], columns=parse_columns(columns), fields=SETS, notes=notes)


def save(frame, path, form):
    """Return a source with a table in a form; objects in cells are written by JSON or by Python."""
    if form == "memory":
        return as_table(frame)
    if form == "parquet":
        frame.to_parquet(path)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    return path


@pytest.mark.parametrize("shape", ["columns", "objects"])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "memory"])
def test_probabilities_are_read_as_they_are(tmp_path, form, shape):
    rng = random.Random(form + shape)
    for number in range(15):
        cells = [
            {label: round(rng.choice([0, 0.5, 1, rng.random()]), 4) for label in LABELS}
            for _ in range(rng.randrange(1, 9))
        ]
        texts = [f"text {line}" for line in range(len(cells))]
        frame = pd.DataFrame(cells).add_prefix("p:").assign(text=texts)
        if shape == "objects":
            written = rng.choice([str, json.dumps]) if form in ("csv", "tsv") else dict
            frame = pd.DataFrame({"text": texts, "label": [written(cell) for cell in cells]})
        source = save(frame, tmp_path / f"{number}.{form}", form)
        notes = []
        rows = read(source, rng.choice([None, "text=text,label=p:*"]) if shape == "columns" else None, notes)
        assert [row.values for row in rows] == [{"text": text} for text in texts]
        for row, cell in zip(rows, cells, strict=True):
            assert row.probabilities == {name: p for name, p in cell.items() if p}
            assert row.labels == tuple(name for name, p in cell.items() if p > 0.5)
            assert row.votes == ()
        assert any(f" {len(rows)} example" in note and "probabilities of labels" in note for note in notes)
        halves = sum(0.5 in cell.values() for cell in cells)
        assert any(f" {halves} example" in note and "probability of one half" in note for note in notes) == (halves > 0)
        ones = all(abs(sum(cell.values()) - 1) < 1e-3 for cell in cells)
        assert any("for one label per text, fine-tune for classification" in note for note in notes) == ones


@pytest.mark.parametrize("shape", ["columns", "lists"])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "memory"])
def test_votes_are_shares_of_the_annotators(tmp_path, form, shape):
    rng = random.Random(form + shape)
    in_cells = form in ("csv", "tsv")
    for number in range(15):
        units = []
        for _ in range(rng.randrange(1, 9)):
            votes = [rng.sample(LABELS, rng.randrange(4)) for _ in range(4)]
            if not (in_cells and shape == "columns"):  # where an empty cell is refused
                votes = [vote if rng.random() < 0.8 else None for vote in votes[:-1]] + votes[-1:]
            units.append(votes)
        texts = [f"text {line}" for line in range(len(units))]
        if shape == "lists":
            cells = [json.dumps(votes) if in_cells else votes for votes in units]
            frame = pd.DataFrame({"text": texts, "label": cells})
        else:
            names = [f"label:{name}" for name in "abcd"]
            cells = [[json.dumps(vote) if in_cells else vote for vote in votes] for votes in units]
            frame = pd.DataFrame(cells, columns=names).assign(text=texts)
        notes = []
        rows = read(save(frame, tmp_path / f"{number}.{form}", form), notes=notes)
        assert [row.values for row in rows] == [{"text": text} for text in texts]
        for row, votes in zip(rows, units, strict=True):
            cast = [vote for vote in votes if vote is not None]
            shares = {label: sum(label in vote for vote in cast) / len(cast) for label in LABELS}
            assert row.probabilities == pytest.approx({label: share for label, share in shares.items() if share})
            assert set(row.labels) == {label for label, share in shares.items() if share > 0.5}
            assert row.votes == tuple(vote if vote is None else tuple(vote) for vote in votes)
        assert any(f" {len(rows)} example" in note and "votes of annotators" in note for note in notes)


def test_hard_and_soft_labels_may_be_mixed(tmp_path):
    path = tmp_path / "mixed.jsonl"
    labels = [["joy"], {"joy": 0.9, "anger": 0.6}, [], "anger", [["joy"], ["joy", "anger"], None], {}, '{"joy": 0.75}']
    path.write_text("".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels))
    rows = read(path)
    assert [row.labels for row in rows] == [("joy",), ("joy", "anger"), (), ("anger",), ("joy",), (), ("joy",)]
    assert [row.probabilities is not None for row in rows] == [False, True, False, False, True, True, True]
    assert rows[4].probabilities == {"joy": 1.0, "anger": 0.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,p:a,p:b\nx,0.5,70\n", ":2: the probability of 'b' is 70, above 1; divide percentages by 100"),
        ("text,p:a,p:b\nx,0.5,-0.4\n", ":2: the probability of 'b' is '-0.4', not a number from 0 to 1"),
        ("text,p:a,p:b\nx,,1\n", ":2: the probability of 'a' is '', not a number"),
        ("text,p:a,p: a\nx,1,0\n", ":1: a column of probabilities occurs twice; rename one"),
        ("text,label,p:a,p:b\nx,a,1,0\n", r":1: the label may be in the columns label or p:\*; pass columns="),
        (
            "text,label:x,label:y\nx,a,\n",
            r":2: a vote is empty; write \[\] for no label; for no vote, use null in",
        ),
        ("text,label:x,label:y\nx,a;b,c\n", ":2: the label 'a;b' contains ';', which may separate labels"),
        ('text,label\nx,"[[""a"", ""a""]]"\n', ":2: a label occurs twice in a, a"),
        ('text,label\nx,"[[""a""], ""b,c""]"\n', None),
        ('text,label\nx,"[[""a""], 3]"\n', ":2: a vote is int, not a list of labels"),
        ('text,label\nx,"[[""a""], true]"\n', ":2: a vote is bool, not a list of labels"),
        ('text,label\nx,"{""a"": 0.5, "" a"": 0.5}"\n', ":2: a label occurs twice among the probabilities"),
    ],
)
def test_what_is_unclear_is_refused(tmp_path, content, message):
    path = tmp_path / "soft.csv"
    path.write_text(content)
    if message is None:
        assert read(path)[0].votes == (("a",), ("b", "c"))
        return
    with pytest.raises(UserError, match=message):
        read(path)


def test_records_are_checked_likewise():
    for label, message in (
        ([None, []], None),
        ([None, None], "'label' contains NoneType, not names"),
        ({"a": True}, "the probability of 'a' is 'True', not a number"),
        ([["a"], 0.5], "a vote is float, not a list of labels"),
    ):
        source = as_table([{"text": "x", "label": ["b"]}, {"text": "y", "label": label}])
        if message is None:
            assert read(source)[1].votes == (None, ())
            continue
        with pytest.raises(UserError, match=f":2: {message}"):
            read(source)
    source = as_table({"text": ["x"], "label:a": [None], "label:b": [None]})
    with pytest.raises(UserError, match=":1: no annotator voted; remove the row"):
        read(source)


def test_a_task_with_one_label_suggests_several(tmp_path):
    path = tmp_path / "soft.csv"
    path.write_text("text,p:a,p:b\nx,0.9,0.4\n")
    with pytest.raises(UserError, match=r"sum to 1.3, not to 1; correct them, or, if those of the labels are indep"):
        read_rows([path], columns={}, fields=Fields(soft=True))
