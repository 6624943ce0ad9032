"""Files of texts are read line by line, unless a model was trained on pairs; other data by its columns."""

from functools import partial

import pytest

from unmask.support.errors import UserError
from unmask.support.messages import in_python, rendered
from unmask.tasks.classification import Classification
from unmask.tasks.unlabelled import iterate_examples, read_examples, read_unlabeled


@pytest.fixture
def files(tmp_path):
    """Return a file of lines and one of columns, with a header."""
    lines, columns = tmp_path / "lines.txt", tmp_path / "columns.tsv"
    lines.write_text("text\tlabel\n\nthe dog\tyes\n")
    columns.write_text("text\tlabel\nthe dog\tyes\n")
    return lines, columns


def test_lines_and_columns_are_rows_without_labels(files):
    notes = []
    rows = read_unlabeled(list(files), columns={}, kind=None, notes=notes)
    assert [row.values for row in rows] == [{"text": "text\tlabel"}, {"text": "the dog\tyes"}, {"text": "the dog"}]
    assert [rendered(note, in_python) for note in notes] == [
        f"{files[0]}: omitted: 1 empty line",
        f"{files[0]}: each of the 2 lines has 1 tab and was read as one text; if they are columns, pass "
        "format=\"tsv\", or 'conll' for words",
    ]
    assert [row.values for row in read_unlabeled(files[0], columns={}, kind="tsv", notes=[])] == [{"text": "the dog"}]


@pytest.mark.parametrize("index", [0, 1], ids=["lines", "columns"])
def test_examples_are_the_same_whether_read_at_once_or_one_by_one(files, index):
    task, notes, again = Classification(), [], []
    examples = read_examples(task, files[index], columns={}, kind=None, notes=notes)
    assert [row.values["text"] for row in examples] == [["text\tlabel", "the dog\tyes"], ["the dog"]][index]
    assert list(iterate_examples(task, files[index], columns={}, kind=None, notes=again)) == examples
    assert again == notes


def test_an_empty_one_of_several_files_is_a_note(files, tmp_path):
    """All of them would be an error, as an empty one is."""
    lines, header = tmp_path / "empty.txt", tmp_path / "empty.tsv"
    lines.write_text(" \n")
    header.write_text("text\tlabel\n")
    for read in (read_unlabeled, partial(read_examples, Classification())):
        notes = []
        rows = read([lines, files[1], header], columns={}, kind=None, notes=notes)
        assert [row.values["text"] for row in rows] == ["the dog"]
        assert notes == [f"{lines}: there are no texts", f"{header}: there are no examples"]
        with pytest.raises(UserError, match=r"empty\.tsv: there are no examples"):
            read([header, lines], columns={}, kind=None, notes=[])


def test_lines_are_no_pairs(files, tmp_path):
    task, pairs = Classification(pairs=True), tmp_path / "pairs.txt"
    pairs.write_text("text\ttext_b\nthe dog\tthe cat\n")
    (row,) = read_examples(task, pairs, columns={}, kind=None, notes=[])
    assert row.values == {"text": "the dog", "text_b": "the cat"}
    assert list(iterate_examples(task, pairs, columns={}, kind=None, notes=[])) == [row]
    with pytest.raises(UserError, match="columns has no effect on a text file"):
        read_examples(task, pairs, columns={"text": "0"}, kind="txt", notes=[])
