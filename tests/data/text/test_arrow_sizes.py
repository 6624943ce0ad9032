"""Sizes of Arrow's values are those of the Python objects, and files that name a text in every row fill no memory."""

import random
from itertools import pairwise

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from unmask.data.text.arrow_sizes import NUMBER, sizes_of_rows, sizes_of_values, split_rows
from unmask.data.text.record_files import DECODED, read_arrow
from unmask.support.errors import UserError

from ... import forking

TYPES = {
    "string": pyarrow.string(),
    "large string": pyarrow.large_string(),
    "view": pyarrow.string_view(),
    "category": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    "number": pyarrow.int64(),
    "truth": pyarrow.bool_(),
    "list": pyarrow.list_(pyarrow.string()),
    "nested": pyarrow.large_list(pyarrow.list_(pyarrow.dictionary(pyarrow.int8(), pyarrow.large_string()))),
    "structure": pyarrow.struct({"a": pyarrow.float64(), "b": pyarrow.int32()}),
    "null": pyarrow.null(),
}


def value_of(kind, rng):
    """Return a random value of a type, None among them."""
    if rng.random() < 0.2 or kind == pyarrow.null():
        return None
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return [value_of(kind.value_type, rng) for _ in range(rng.randrange(4))]
    if pyarrow.types.is_struct(kind):
        return {"a": 0.5, "b": 1}
    if kind == pyarrow.int64():
        return rng.randrange(100)
    return rng.random() < 0.5 if kind == pyarrow.bool_() else "äx" * rng.randrange(12)


def size_of(value):
    """Return the bytes of a value as Python gives it."""
    if isinstance(value, list):
        return sum(NUMBER + size_of(item) for item in value)
    if isinstance(value, dict):
        return NUMBER * len(value)
    return len(value.encode()) if isinstance(value, str) else 0 if value is None else NUMBER


@pytest.mark.parametrize("name", TYPES)
def test_sizes_are_those_of_python_objects(name):
    for seed in range(15):
        rng = random.Random(seed)
        values = [value_of(TYPES[name], rng) for _ in range(rng.randrange(1, 30))]
        array = pyarrow.array(values, TYPES[name])
        start = rng.randrange(len(values))
        sizes = sizes_of_values(array.slice(start))
        for value, size in zip(values[start:], sizes, strict=True):
            fixed = name in ("number", "truth", "structure", "null") and value is None
            assert size == pytest.approx(size_of(value)) or fixed, (name, value)
        batch = pyarrow.record_batch({"a": array, "b": array})
        assert sizes_of_rows(batch) == pytest.approx(2 * sizes_of_values(array))


def test_rows_are_split_by_number_and_by_size():
    rng = np.random.default_rng(0)
    for _ in range(100):
        sizes = rng.choice([0.0, 1.0, 5.0, 30.0, 1000.0], int(rng.integers(0, 60)))
        most, total = int(rng.integers(1, 12)), float(rng.integers(1, 50))
        parts = list(split_rows(sizes, most, total))
        assert [index for start, stop in parts for index in range(start, stop)] == list(range(len(sizes)))
        assert all(stop - start <= most for start, stop in parts)
        assert all(stop - start == 1 or sizes[start:stop].sum() <= total for start, stop in parts)
        for (start, stop), (_, after) in pairwise(parts):
            assert stop - start == most or sizes[start : stop + 1].sum() > total or after == stop, (
                "no part is too short"
            )


ROWS = 200
TEXT = "x" * 9_000_000
BOMB = """
import resource, sys

from unmask.data.text.record_files import read_arrow
from unmask.support.errors import UserError

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        print(sum(1 for _ in read_arrow(path)))
    except UserError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def views(text, rows):
    """Return an array of views of a single text."""
    view = np.zeros((rows, 4), np.int32)
    view[:, 0], view[:, 1] = len(text), np.frombuffer(text[:4].encode(), np.int32)
    buffers = [None, pyarrow.py_buffer(view.tobytes()), pyarrow.py_buffer(text.encode())]
    return pyarrow.Array.from_buffers(pyarrow.string_view(), rows, buffers)


def bomb(kind):
    """Return a table of 1.8 GB of text, in few bytes."""
    categories = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(ROWS, np.int32)), pyarrow.array([TEXT]))
    if kind == "view":
        return pyarrow.table({"text": views(TEXT, ROWS)})
    if kind == "list":
        return pyarrow.table(
            {"text": pyarrow.ListArray.from_arrays(pyarrow.array([0, ROWS], pyarrow.int32()), categories)}
        )
    return pyarrow.table({"text": categories})


@pytest.mark.parametrize("name", ["category.parquet", "category.arrow", "view.arrow", "list.arrow"])
def test_D10_a_text_named_in_every_row_fills_no_memory(name, tmp_path):
    path = tmp_path / name
    content = bomb(path.stem)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(content, path, compression="zstd")
        assert path.stat().st_size < 10_000
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, content.schema) as writer:
            writer.write_table(content)
    del content
    done = forking.run(["-c", BOMB, path])
    assert done.returncode == 0, done.stderr[-1000:]
    message, megabytes = done.stdout.splitlines()
    assert "expands to more than 100 times its size" in message
    assert int(megabytes) < 100 + 5 * DECODED * len(TEXT) / 1e6


def test_long_texts_are_refused_with_their_row_and_column(tmp_path):
    path = tmp_path / "a.parquet"
    texts = ["short", "y" * 10_000_000, "z" * 10_000_001, "short"]
    pyarrow.parquet.write_table(pyarrow.table({"a": texts, "b": [1, 2, 3, 4]}), path, compression="none")
    read = []
    with pytest.raises(UserError, match=r"a\.parquet:3: a text is longer than 10,000,000 bytes \('a'\)"):
        read.extend(number for number, _ in read_arrow(path))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_deeply_nested_columns_end_in_an_error_or_are_not_read(suffix, tmp_path):
    kind, value = pyarrow.int64(), 1
    for _ in range(60):
        kind, value = pyarrow.list_(kind), [value]
    content = pyarrow.table({"text": ["a"], "deep": pyarrow.array([value], kind)})
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(content, path)
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, content.schema) as writer:
            writer.write_table(content)
    try:
        assert [record["text"] for _, record in read_arrow(path)] == ["a"]
    except UserError as error:
        assert "cannot be read" in str(error)


def test_wrong_offsets_and_lengths_never_end_in_a_crash(tmp_path):
    """Bytes of the messages of 80 files are replaced: each is read, or refused, by another process."""
    paths = [tmp_path / f"{seed}.arrow" for seed in range(80)]
    table = pyarrow.table({"text": [f"row {n}" for n in range(20)], "tags": [["a", "b"]] * 20})
    for seed, path in enumerate(paths):
        rng = random.Random(seed)
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(content) // 8) * 8
            content[place : place + 4] = rng.choice([b"\xff\xff\xff\x7f", bytes(4), b"\xff" * 4, b"\x01\0\0\0"])
        path.write_bytes(content)
    done = forking.run(["-c", BOMB, *paths])
    assert done.returncode == 0, done.stderr[-1000:]
    *messages, megabytes = done.stdout.splitlines()
    assert len(messages) == len(paths)
    assert sum("cannot be read as arrow" in message for message in messages) > 20
    assert int(megabytes) < 500
