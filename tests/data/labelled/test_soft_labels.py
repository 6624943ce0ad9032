"""Tests of soft labels: probabilities and votes in each form, beside pandas, and what is refused."""

import json
import random

import pandas as pd
import pytest

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import Row, parse_columns, read_rows
from unmask.data.labelled.table import as_table
from unmask.support.errors import UserError

LABELS = ["negative", "neutral", "positive"]
SOFT = Fields(soft=True)


def read(path, columns=None, notes=None):
    return read_rows([path], columns=parse_columns(columns), fields=SOFT, notes=notes)


def probabilities(rng, number):
    values = pd.DataFrame([[rng.random() for _ in LABELS] for _ in range(number)], columns=LABELS)
    return values.div(values.sum(axis=1), axis=0).round(4)


def write_table(frame, path, form):
    if form == "spreadsheet csv":
        frame.to_csv(path, sep=";", decimal=",", index=False)
    elif form in ("csv", "tsv"):
        frame.to_csv(path, sep=",\t"[form == "tsv"], index=False)
    elif form == "parquet":
        frame.to_parquet(path)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        return as_table(frame)
    return path


@pytest.mark.parametrize(
    "form",
    ["csv", "tsv", "spreadsheet csv", "jsonl", "parquet", "memory", "object", "struct", "python cell", "json cell"],
)
def test_a_distribution_is_read_with_its_most_probable_label(tmp_path, form):
    rng = random.Random(form)
    for number in range(15):
        values = probabilities(rng, rng.randrange(1, 9))
        texts = [f"text {line}" for line in range(len(values))]
        path, columns = tmp_path / f"{number}.{form.split()[-1]}", rng.choice([None, "text=text,label=p:*"])
        if form in ("object", "struct", "python cell", "json cell"):
            cells, columns = values.to_dict(orient="records"), None
            if form == "object":
                path = as_table({"text": texts, "label": cells})
            elif form == "struct":
                path = path.with_suffix(".parquet")
                cells = [{name: p for name, p in cell.items() if p} for cell in cells]  # others are null
                pd.DataFrame({"text": texts, "label": cells}).to_parquet(path)
            else:
                path = path.with_suffix(".csv")
                cells = cells if form == "python cell" else [json.dumps(cell) for cell in cells]
                pd.DataFrame({"text": texts, "label": cells}).to_csv(path, index=False)
        else:
            path = write_table(values.add_prefix("p:").assign(text=texts), path, form)
        rows = read(path, columns)
        assert [row.values for row in rows] == [
            {"text": text, "label": label} for text, label in zip(texts, values.idxmax(axis=1), strict=True)
        ]
        for row, (_, expected) in zip(rows, values.iterrows(), strict=True):
            total = expected.sum()
            assert row.probabilities == pytest.approx({name: p / total for name, p in expected.items() if p})
            assert row.votes == ()


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "memory", "list"])
def test_votes_are_a_distribution(tmp_path, form):
    rng = random.Random(form)
    for number in range(15):
        votes = pd.DataFrame(
            [[rng.choice(LABELS), *rng.choices([*LABELS, None], k=3)] for _ in range(rng.randrange(1, 9))],
            columns=["label:ann", "label:bo", "label:cy", "label:di"],
        )
        texts = [f"text {line}" for line in range(len(votes))]
        path = tmp_path / f"{number}.{form}"
        if form == "list":
            votes.iloc[0] = LABELS[0]  # a list with a label twice: these are votes
            path = as_table({"text": texts, "label": votes.to_numpy().tolist()})
        else:
            path = write_table(votes.assign(text=texts), path, form)
        notes = []
        rows = read(path, notes=notes)
        ties = 0
        for row, (_, expected) in zip(rows, votes.iterrows(), strict=True):
            counts = expected.value_counts(normalize=True)
            assert row.probabilities == pytest.approx(counts.to_dict())
            assert row.votes == tuple(expected.fillna(""))
            most = counts[counts == counts.max()].index
            assert row.values["label"] == min(most)
            ties += len(most) > 1
        assert any(f" {len(rows)} example" in note and "votes of annotators" in note for note in notes)
        assert any(f" {ties} example" in note and "several most probable" in note for note in notes) == (ties > 0)


def test_hard_and_soft_labels_may_be_mixed(tmp_path):
    path = tmp_path / "mixed.jsonl"
    labels = ["positive", {"positive": 0.25, "negative": 0.75}, {"b": 1, "a": 0}, 3, "{x", "[urgent]"]
    path.write_text("".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels))
    notes = []
    rows = read(path, notes=notes)
    assert [row.values["label"] for row in rows] == ["positive", "negative", "b", "3", "{x", "[urgent]"]
    assert [row.probabilities for row in rows] == [
        *(None, {"positive": 0.25, "negative": 0.75}, {"b": 1.0}, None, None, None)
    ]
    assert notes == [f"{path}: 2 examples have probabilities of labels, which are learned"]


def test_percentages_are_read_with_a_note(tmp_path):
    path = tmp_path / "percent.csv"
    path.write_text("text,p:yes,p:no\nx,70,30\ny,0.2,0.8\nz,33.35,66.7\n")
    notes = []
    rows = read(path, notes=notes)
    assert [row.probabilities["yes"] for row in rows] == pytest.approx([0.7, 0.2, 33.35 / 100.05])
    assert f"{path}: 2 examples have percentages that sum to 100, which are read as probabilities" in notes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,p:a,p:b\nx,0.5,0.5\ny,0.5,0.4\n", ":3: the probabilities sum to 0.9, not to 1; correct them"),
        ("text,p:a,p:b\nx,1.5,-0.5\n", ":2: the probability of 'b' is '-0.5', not a number from 0 to 1"),
        ("text,p:a,p:b\nx,nan,1\n", ":2: the probability of 'a' is 'nan', not a number"),
        ("text,p:a,p:b\nx,inf,1\n", ":2: the probability of 'a' is 'inf', not a number"),
        ("text,p:a,p:b\nx,,1\n", ":2: the probability of 'a' is '', not a number"),
        ("text,p:a,p:b\nx,1_0,1\n", ":2: the probability of 'a' is '1_0', not a number"),
        ("text,p:a,p:b\nx,0,0\n", ":2: the probabilities sum to 0, not to 1"),
        ("text,p:a,p: a\nx,1,0\n", ":1: a column of probabilities occurs twice; rename one"),
        ("text,p:a,p:a\nx,1,0\n", ":1: a column of labels occurs twice"),
        ("text,p:a,p:\nx,1,0\n", ":2: a probability has no name of a label"),
        ("text,label,p:a,p:b\nx,a,1,0\n", r":1: the label may be in the columns label or p:\*; pass columns="),
        ("text,label:x,p:a,p:b\nx,a,1,0\n", r":1: the label may be in the columns p:\* or label:\*"),
        ("text,label:x,label:y\nx,,\n", ":2: no annotator voted; remove the row"),
        ("text,label:x,label:y\nx,a,NaN\n", ":2: the label is 'NaN', which data frames write for a missing value"),
        ('text,label\nx,"{""a"": 0.5}"\n', ":2: the probabilities sum to 0.5, not to 1"),
        ('text,label\nx,"{}"\n', ":2: the probabilities sum to 0, not to 1"),
        ('text,label\nx,"[]"\n', ":2: no annotator voted"),
        ('text,label\nx,"{""a"": 0.5, "" a"": 0.5}"\n', ":2: a label occurs twice among the probabilities"),
    ],
)
def test_what_is_not_a_distribution_is_refused(tmp_path, content, message):
    path = tmp_path / "soft.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ({"a": True, "b": 0}, "the probability of 'a' is 'True', not a number"),
        ({"a": [1], "b": 0}, r"the probability of 'a' is '\[1\]', not a number"),
        ([0.5, "a"], "a vote is float, not the name of a label"),
        ([True], "a vote is bool, not the name of a label"),
        ([None, ""], "no annotator voted"),
    ],
)
def test_records_are_checked_likewise(label, message):
    with pytest.raises(UserError, match=f":2: {message}"):
        read(as_table([{"text": "x", "label": "a"}, {"text": "y", "label": label}]))


def test_columns_beside_a_label_are_chosen(tmp_path):
    path = tmp_path / "both.csv"
    path.write_text("text,label,p:a,p:b\nx,b,0.8,0.2\n")
    assert type(read(path, "text=text,label=label")[0]) is Row
    assert read(path, "text=text,label=p:*")[0].probabilities == {"a": 0.8, "b": 0.2}


def test_other_tasks_refuse_distributions():
    with pytest.raises(UserError, match="'label' is dict, not text"):
        read_rows([as_table([{"text": "x", "label": {"a": 1.0}}])], columns={})


def test_pairs_have_distributions_too(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("premise\thypothesis\tp:yes\tp:no\na\tb\t0.25\t0.75\n")
    row = read(path)[0]
    assert row.values == {"text": "a", "text_b": "b", "label": "no"}
    assert row.probabilities == {"yes": 0.25, "no": 0.75}


def written(rows, form, folder):
    """Return rows in memory, or the file that a data frame writes of them."""
    path = folder / f"a.{form}"
    if form == "memory":
        return as_table(rows)
    if form == "csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        pd.DataFrame(rows).to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl", "memory"])
def test_lists_in_which_no_label_is_twice_are_not_taken_for_votes(tmp_path, form):
    rows = [{"text": "a", "label": ["joy"]}, {"text": "b", "label": ["joy", "fear"]}]
    source = written(rows, form, tmp_path)
    with pytest.raises(UserError, match="no list of the file has a label twice, as votes would; fine-tune for multi-"):
        read(source)


def test_texts_in_memory_that_look_like_lists_are_labels():
    rows = read(as_table({"text": ["a", "b"], "label": ["[1]", "[2]"]}))
    assert [row.values["label"] for row in rows] == ["[1]", "[2]"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "memory"])
def test_a_list_of_one_label_is_that_label(tmp_path, form):
    """As doccano exports texts with labels, whatever their number."""
    rows = [{"text": "a", "label": ["joy"]}, {"text": "b", "label": [3]}, {"text": "c", "label": ["joy", "joy"]}]
    source, notes = written(rows, form, tmp_path), []
    found = read(source, notes=notes)
    assert [(row.probabilities is not None, row.values["label"]) for row in found] == [
        (False, "joy"),
        (False, "3"),
        (True, "joy"),
    ]
    assert len(notes) == 1 and "1 example has votes" in notes[0]
