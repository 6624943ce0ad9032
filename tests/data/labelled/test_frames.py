"""Data frames in memory and the files that pandas writes of them: the same examples, or both are refused."""

import random
import string

import pandas
import polars
import pyarrow
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

WRITERS = {
    "tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True, double_precision=15),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
}
NAMES = ["pos", "neg ", " neutral", "ü,;|", "True", "1.0", "a b"]
LABELS = {
    "int64": [0, 1, -7, 10**15],
    "Int64": [0, 1, -7],
    "int8": [0, 1, -7],
    "bool": [True, False],
    "boolean": [True, False],
    "float64": [0.0, 1.0, 0.25, -2.5],
    "Float64": [0.0, 1.0, 0.25],
    "object": NAMES,
    "string": NAMES,
    "category": NAMES,
    "int64[pyarrow]": [0, 1, -7],
    "bool[pyarrow]": [True, False],
    "string[pyarrow]": NAMES,
}
"""Values of labels by the data type of their column."""
NULLABLE = ("Int64", "boolean", "Float64", "object", "string", "category", "int64[pyarrow]", "string[pyarrow]")
SEEDS = range(5)


def labels_of(rng, dtype, *, missing=False):
    """Return a column of random labels; if wanted, one of them is missing."""
    labels = rng.choices(LABELS[dtype], k=8)
    if missing:
        labels[rng.randrange(8)] = None
    column = pandas.Series(labels, dtype=dtype)
    return column.cat.add_categories(["unused"]) if dtype == "category" else column


def frame_of(rng, labels):
    """Return a frame of random texts and these labels, its index and the order of its columns random."""
    letters = string.ascii_letters + "  äß,;'|"
    texts = ["x" + "".join(rng.choices(letters, k=12)) for _ in labels]
    columns = {"text": texts, "label": labels, "id": range(len(labels))}
    frame = pandas.DataFrame({name: columns[name] for name in rng.sample(list(columns), len(columns))})
    return frame.set_index(pandas.Index(rng.sample(range(99), len(labels))))


def read(data):
    """Return the examples of a source as pairs of text and label."""
    return [(row.values["text"], row.values["label"]) for row in read_rows(as_sources(data), columns={})]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", LABELS)
def test_a_frame_and_its_files_are_the_same_examples(dtype, seed, tmp_path):
    rng = random.Random(f"{dtype} {seed}")
    frame = frame_of(rng, labels_of(rng, dtype))
    expected = [(text.strip(), str(label).strip()) for text, label in zip(frame["text"], frame["label"], strict=True)]
    assert read(frame) == expected
    if dtype != "category":
        assert read(polars.from_pandas(frame)) == expected
    assert read(pyarrow.Table.from_pandas(frame)) == expected
    for suffix, write in WRITERS.items():
        write(frame, tmp_path / f"frame.{suffix}")
        assert read(tmp_path / f"frame.{suffix}") == expected, suffix


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", NULLABLE)
def test_a_missing_label_is_refused_wherever_the_frame_is(dtype, seed, tmp_path):
    rng = random.Random(f"{dtype} {seed}")
    frame = frame_of(rng, labels_of(rng, dtype, missing=True))
    row = frame["label"].isna().tolist().index(True) + 1
    for suffix, write in WRITERS.items():
        write(frame, tmp_path / f"frame.{suffix}")
        line = row + (suffix in ("tsv", "csv"))  # after the header
        with pytest.raises(UserError, match=rf"frame\.{suffix}:{line}: (the label is empty|'label' is missing)"):
            read(tmp_path / f"frame.{suffix}")
    for table in (frame, pyarrow.Table.from_pandas(frame)):
        with pytest.raises(UserError, match=f">:{row}: 'label' is missing"):
            read(table)


def test_a_number_that_python_does_not_write_is_refused():
    with pytest.raises(UserError, match="<dict>:2: 'label' is a number with too many digits"):
        read({"text": ["a", "b"], "label": [1, 10**5000]})


@pytest.mark.parametrize("text", ["the dog", "the dog sees the sea " * 20, "the dog/the sea", "Is it # 1?"])
@pytest.mark.parametrize("several", [False, True])
def test_texts_that_are_passed_as_files_are_refused(text, several):
    with pytest.raises(UserError, match=r"\{'text': \[...\]\}|no file"):
        read_rows(as_sources([text, text] if several else text), columns={})
