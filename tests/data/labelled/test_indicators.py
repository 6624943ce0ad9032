"""Tests of labels in columns of zeros and ones, beside pandas."""

import random

import pandas as pd
import pytest

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import parse_columns, read_rows
from unmask.data.labelled.table import as_table
from unmask.support.errors import UserError

LABELS = ["toxic", "obscene", "is_insult", "is_threat"]
SEVERAL = Fields(several=True)


def made(rng, *, one):
    rows = []
    for number in range(rng.randrange(1, 20)):
        first = rng.randrange(len(LABELS))
        bits = [int(place == first) if one else rng.randrange(2) for place in range(len(LABELS))]
        rows.append({"id": number, **dict(zip(LABELS, bits, strict=True)), "text": f"text {number}"})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "memory", "float", "bool"])
@pytest.mark.parametrize("one", [True, False], ids=["one label", "several"])
def test_labels_are_those_whose_column_is_one(tmp_path, form, one):
    rng = random.Random(f"{form}{one}")
    for number in range(15):
        frame = made(rng, one=one)
        labels = rng.sample(LABELS, 4)
        path = tmp_path / f"{number}.{form}"
        if form in ("csv", "tsv"):
            frame.to_csv(path, sep=",\t"[form == "tsv"], index=False)
        elif form == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            path = as_table(frame.astype({label: {"memory": int}.get(form, form) for label in LABELS}))
        columns = rng.choice([f"text=text,label={','.join(labels)}", "label=toxic,obscene,is_*,text=text"])
        rows = read_rows([path], columns=parse_columns(columns), fields=SEVERAL if not one else Fields())
        if one:
            assert [row.values["label"] for row in rows] == list(frame[LABELS].idxmax(axis=1))
        else:
            expected = [{label for label in LABELS if row[label]} for _, row in frame.iterrows()]
            assert [set(row.labels) for row in rows] == expected
        assert [row.values["text"] for row in rows] == list(frame["text"])


@pytest.mark.parametrize("prefix", ["is_", "p:"])
def test_labels_have_the_same_columns_everywhere(tmp_path, prefix):
    """A label without a column, in another file or another record, would be taken for absent."""
    (tmp_path / "a.csv").write_text(f"text,{prefix}a,{prefix}b\nx,1,0\n")
    (tmp_path / "b.csv").write_text(f"{prefix}b,{prefix}a,text\n1,0,y\n")
    (tmp_path / "c.csv").write_text(f"text,{prefix}a\nx,1\n")
    (tmp_path / "d.jsonl").write_text(
        f'{{"text": "x", "{prefix}a": 1, "{prefix}b": 1}}\n{{"text": "y", "{prefix}b": 1}}\n'
    )
    fields, columns = Fields(several=True, soft=True), parse_columns(f"text=text,label={prefix}*")

    def read(*names):
        return [row.labels for row in read_rows([tmp_path / name for name in names], columns=columns, fields=fields)]

    a, b = ("a", "b") if prefix == "p:" else ("is_a", "is_b")
    assert read("a.csv", "b.csv") == [(a,), (b,)]
    assert read("c.csv") == [(a,)]
    for names, message in (
        (["a.csv", "c.csv"], f"c.csv:2: there is a column '{b}' of a label elsewhere, but not here, where the label"),
        (["c.csv", "a.csv"], f"a.csv:2: there is a column '{b}' of a label here, but not elsewhere, where the label"),
        (["d.jsonl"], f"d.jsonl:2: there is a column '{a}' of a label elsewhere, but not here"),
    ):
        with pytest.raises(UserError, match=message):
            read(*names)
    assert len(read_rows([tmp_path / "a.csv", tmp_path / "c.csv"], columns=columns, fields=Fields(soft=True))) == 2


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("text,a,b\nx,1,2\n", "label=a,b", ":2: 'b' is '2', not 0 or 1"),
        ("text,a,b\nx,1,\n", "label=a,b", ":2: 'b' is '', not 0 or 1"),
        ("text,a,b\nx,1,1\n", "label=a,b", ":2: 2 columns of labels have a 1, but this task has one"),
        ("text,a,b\nx,0,0\n", "label=*a,b", ":2: no column of labels has a 1"),
        ("text,a,b\nx,1,0\n", "label=a,c", ":1: no column named c; columns: text, a, b"),
        ("text,a,b\nx,1,0\n", "label=a,*", ":1: a column of labels occurs twice"),
    ],
)
def test_other_values_are_refused(tmp_path, content, columns, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"^{path}{message}"):
        read_rows([path], columns=parse_columns(columns))


def test_a_column_may_have_such_a_name(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\ta,b\nx\tyes\n")
    assert [row.values["label"] for row in read_rows([path], columns={"label": "a,b"})] == ["yes"]
