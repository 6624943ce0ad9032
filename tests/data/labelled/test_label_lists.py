"""Several labels of a text in cells and lists; what could be read in two ways is refused."""

import pytest

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import list_labels, read_rows, split_labels
from unmask.support.errors import UserError


def test_labels_of_cells_and_of_lists_are_read_alike(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabels\none\tjoy, fear\ntwo\t\nthree\t7\n")
    (tmp_path / "a.csv").write_text('text,labels\none,"joy,fear"\ntwo,\nthree,7\n')
    lines = [
        '{"text": "one", "labels": ["joy", "fear"]}',
        '{"text": "two", "labels": []}',
        '{"text": "three", "label": 7}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        rows = read_rows([tmp_path / name], columns={}, fields=Fields(several=True))
        assert [row.labels for row in rows] == [("joy", "fear"), (), ("7",)]
        assert [row.values for row in rows] == [{"text": "one"}, {"text": "two"}, {"text": "three"}]
        assert all(
            row.labels is None
            for row in read_rows([tmp_path / name], columns={}, fields=Fields(several=True), gold=False)
        )


def test_names_with_separators_are_read_from_lists():
    assert list_labels(["salt, pepper", "a|b"], "a.jsonl", 1) == ("salt, pepper", "a|b")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("a;b", "contains ';', which may separate labels; separate labels by ','"),
        ("a|b", r"contains '\|', which may separate labels"),
        ("a,,b", "one of the labels is empty; remove it"),
        ("a,b,a", "a label occurs twice in a, b, a"),
    ],
)
def test_ambiguous_cells_are_refused(cell, message):
    with pytest.raises(UserError, match=rf"^x\.tsv:3: .*{message}"):
        split_labels(cell, "x.tsv", 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a,b", "the label 'a,b' may be several; make it a list"),
        ([["a"]], "'label' contains list, not names"),
        ([False], "'label' contains bool, not names"),
        (None, "'label' contains NoneType, not names"),
        (["a", " a"], "a label occurs twice"),
        ([""], "one of the labels is empty"),
    ],
)
def test_other_values_are_refused(value, message):
    with pytest.raises(UserError, match=message):
        list_labels(value, "x.jsonl", 3)
