"""Parquet, Arrow and directories of datasets: rows, names of classes, limits, damage."""

import datetime
import decimal
import json
import random
import sys
import zoneinfo

import pyarrow
import pyarrow.parquet
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text import files, record_files
from unmask.data.text.record_files import class_names, has_reader, name_classes, read_arrow
from unmask.support.errors import UserError

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["no", "yes"], "_type": "ClassLabel"},
    "tags": {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "Sequence"},
}
ROWS = {"text": ["good", "bad", "fair"], "label": [1, 0, -1], "tags": [[0, 1], [0], []], "image": [b"\0", b"", b"x"]}
EXPECTED = [
    (1, {"text": "good", "label": "yes", "tags": ["O", "B-X"]}),
    (2, {"text": "bad", "label": "no", "tags": ["O"]}),
    (3, {"text": "fair", "label": None, "tags": []}),
]


def table(rows=ROWS, features=FEATURES):
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    return pyarrow.table(rows).replace_schema_metadata(metadata)


def write(path, content):
    """Write a table in the format of the suffix, or as a directory of datasets."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(content, path)
    elif path.suffix:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, content.schema) as writer:
            writer.write_table(content, max_chunksize=2)
    else:
        path.mkdir()
        names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
        for name, part in zip(names, (content.slice(0, 2), content.slice(2)), strict=True):
            with pyarrow.OSFile(str(path / name), "wb") as sink, pyarrow.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
        (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather", "saved"])
def test_each_format_yields_the_same_rows_with_names_of_classes(tmp_path, name):
    path = write(tmp_path / name, table())
    assert has_reader(path)
    assert list(read_arrow(path)) == EXPECTED


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_dates_times_and_decimal_numbers_are_text(tmp_path, suffix):
    """As Python writes them; times with a zone are those in UTC."""
    rng = random.Random(0)
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    days = [datetime.date.fromordinal(rng.randrange(1, 3_000_000)) for _ in range(50)] + [None]
    seconds = [rng.choice([0, 1, 10**6, 123_456]) * rng.randrange(80_000) % (86_400 * 10**6) for _ in range(50)]
    clock = [(datetime.datetime.min + datetime.timedelta(microseconds=value)).time() for value in seconds] + [None]
    moments = [datetime.datetime.combine(*pair) if pair[0] else None for pair in zip(days, clock, strict=True)]
    prices = [decimal.Decimal(value).scaleb(-2) for value in seconds] + [None]
    rows = {"day": days, "clock": clock, "moment": moments, "price": prices, "text": ["a"] * 51}
    columns = {name: pyarrow.array(values) for name, values in rows.items()}
    columns["zoned"] = pyarrow.array(moments, pyarrow.timestamp("us", "UTC")).cast(pyarrow.timestamp("us", zone.key))
    read = [record for _, record in read_arrow(write(tmp_path / f"a.{suffix}", pyarrow.table(columns)))]
    assert read[-1] == dict.fromkeys(columns) | {"text": "a"}
    for number, record in enumerate(read[:-1]):
        assert datetime.date.fromisoformat(record["day"]) == days[number]
        assert datetime.time.fromisoformat(record["clock"]) == clock[number]
        assert datetime.datetime.fromisoformat(record["moment"]) == moments[number]
        assert datetime.datetime.fromisoformat(record["zoned"]) == moments[number].replace(tzinfo=datetime.UTC)
        assert decimal.Decimal(record["price"]) == prices[number]
        assert not record["moment"].endswith(".000000")
    assert read_rows([tmp_path / f"a.{suffix}"], columns={}, gold=False)[0].source == read[0]


def test_categories_and_long_strings_are_texts(tmp_path):
    rows = {
        "text": pyarrow.array(["a", "b"], pyarrow.large_string()),
        "label": pyarrow.array(["x", "y"]).dictionary_encode(),
    }
    path = write(tmp_path / "a.parquet", pyarrow.table(rows))
    assert list(read_arrow(path)) == [(1, {"text": "a", "label": "x"}), (2, {"text": "b", "label": "y"})]


def test_a_class_without_a_name_is_an_error_with_its_row(tmp_path):
    path = write(tmp_path / "a.parquet", table({"text": ["a", "b"], "label": [0, 2]}))
    with pytest.raises(UserError, match=r"a\.parquet:2: 'label' is 2, but its 2 classes are numbered from 0"):
        list(read_arrow(path))
    assert name_classes({"label": [1, None]}, {"label": ("a", "b")}, "", 1) == {"label": ["b", None]}


def test_names_of_classes_in_all_notations_of_lists():
    label = {"names": ["a", "b"], "_type": "ClassLabel"}
    features = {"one": label, "two": [label], "three": {"feature": label, "_type": "List"}, "four": {"names": ["no"]}}
    assert class_names(features) == dict.fromkeys(("one", "two", "three"), ("a", "b"))
    assert class_names(None) == {}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_files_are_named(tmp_path, name):
    path = write(tmp_path / name, table())
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"x" * 100, b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{name}: cannot be read as "):
            list(read_arrow(path))
    path.unlink()
    with pytest.raises(UserError, match=f"{name}: cannot be read"):
        list(read_arrow(path))


def test_a_directory_of_several_splits_names_them(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert has_reader(tmp_path)
    with pytest.raises(UserError, match=r"holds several splits; name one: .*/train, .*/test"):
        list(read_arrow(tmp_path))


@pytest.mark.parametrize("wrong", [b"\xff", b"a\0b"])
def test_a_few_bytes_that_are_no_text_cost_their_rows_alone(tmp_path, wrong):
    texts = [b"The story."] * 30 + [wrong, None] + [b"It ends."] * 10
    rows = pyarrow.table(
        {"text": pyarrow.array(texts, pyarrow.binary()), "image": pyarrow.array([b"\x89PNG\0"] * len(texts))}
    )
    pyarrow.parquet.write_table(rows, tmp_path / "a.parquet")
    read = [record for _, record in read_arrow(tmp_path / "a.parquet")]
    assert [record["text"] for record in read] == ["The story."] * 30 + [None] * 2 + ["It ends."] * 10
    assert not any("image" in record for record in read)


def test_rows_that_indices_choose_are_refused(tmp_path):
    (tmp_path / "state.json").write_text(
        '{"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "b"}]}'
    )
    with pytest.raises(UserError, match=r"chosen by indices.*flatten_indices"):
        list(read_arrow(tmp_path))


@pytest.mark.parametrize("state", ['{"_data_files": [{"filename": "../secret.arrow"}]}', "{}", '{"_data_files": [3]}'])
def test_a_directory_names_only_its_own_files(tmp_path, state):
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(UserError, match=r"state\.json: does not name the files"):
        list(read_arrow(tmp_path))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_files_that_expand_too_much_and_long_texts_are_refused(tmp_path, name, monkeypatch):
    path = tmp_path / name
    content = pyarrow.table({"text": pyarrow.array(["x" * 1000] * 5000).dictionary_encode()})
    write(path, content.cast(pyarrow.schema({"text": pyarrow.string()})) if name == "a.parquet" else content)
    for module in (files, record_files):
        monkeypatch.setattr(module, "FREE", 1000)
        monkeypatch.setattr(module, "MAX_RATIO", 3)
    if name == "a.parquet":  # Arrow files are not compressed
        with pytest.raises(UserError, match=r"a\.parquet: the archive expands to more than"):
            list(read_arrow(path))
    monkeypatch.setattr(record_files, "MAX_RATIO", 10_000)
    monkeypatch.setattr(record_files, "MAX_DOCUMENT", 999)
    with pytest.raises(UserError, match=rf"{name}:1: a text is longer"):
        list(read_arrow(path))


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"a\.parquet: needs pyarrow; pip install 'unmask\[arrow\]'"):
        list(read_arrow(tmp_path / "a.parquet"))
