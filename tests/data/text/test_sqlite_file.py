"""Tests of reading SQLite databases, beside the rows that were written."""

import random
import sqlite3
from contextlib import closing

import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.record_files import read_file
from unmask.data.text.sqlite_file import read_sqlite
from unmask.support.errors import UserError


def write(path, tables):
    """Write tables: the rows of each by its name, with the columns text, label, score and image."""
    with closing(sqlite3.connect(path)) as database, database:
        for name, rows in tables.items():
            quoted = name.replace('"', '""')
            database.execute(f'CREATE TABLE "{quoted}" (text, label, score, image)')
            database.executemany(f'INSERT INTO "{quoted}" VALUES (?, ?, ?, ?)', rows)
    return path


def made(rng):
    text = "".join(rng.choices("ab ä中😀'\";\n", k=rng.randrange(1, 30)))
    return text, rng.choice(["x", 1, None]), rng.choice([0.5, -1, None]), b"\0"


def test_rows_are_those_of_the_table(tmp_path):
    rng = random.Random(0)
    for number in range(15):
        name = rng.choice(["reviews", 'a "quoted" name', "select", "中"])
        rows = [made(rng) for _ in range(rng.randrange(30))]
        path = write(tmp_path / f"{number}.{rng.choice(['sqlite', 'sqlite3', 'db', 'DB'])}", {name: rows})
        expected = [
            (row, dict(zip(("text", "label", "score"), values, strict=False))) for row, values in enumerate(rows, 1)
        ]
        assert list(read_file(path)) == list(read_file(f"{path}#{name}")) == expected


def test_one_of_several_tables_is_named_or_a_query(tmp_path):
    path = write(
        tmp_path / "a.db", {"train": [("one", "x", 1, b"")], "test": [("two", "y", 2, b""), ("three", "x", 3, b"")]}
    )
    with pytest.raises(UserError, match=rf"^{path}: there are 2 tables; name one: {path}#test, {path}#train"):
        list(read_sqlite(path))
    with pytest.raises(UserError, match="there is no table 'tests'"):
        list(read_sqlite(f"{path}#tests"))
    assert [row.values for row in read_rows([f"{path}#train"], columns={})] == [{"text": "one", "label": "x"}]
    query = f"{path}#SELECT text AS body, score FROM test WHERE score > 2"
    (row,) = read_rows([query], columns={"text": "body", "label": "score"})
    assert (row.values, row.file, row.line) == ({"text": "three", "label": "3"}, query, 1)
    assert list(read_documents([f"{path}#test"], TextOptions(), Skipped())) == ["two", "three"]


def test_a_file_whose_name_contains_the_mark_is_read(tmp_path):
    path = write(tmp_path / "a.db#train.db", {"t": [("one", "x", 1, b"")]})
    assert [record["text"] for _, record in read_file(path)] == ["one"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT text FROM t; DROP TABLE t", "one statement"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "not authorized|readonly"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT absent FROM t", "no such column: absent"),
        ("SELECT text, label AS text FROM t", "several columns are named text"),
        ("SELECT CAST(x'ff' AS TEXT) AS text", "UTF-8"),
    ],
)
def test_other_queries_are_refused(tmp_path, query, message):
    path = write(tmp_path / "a.db", {"t": [("one", "x", 1, b"")]})
    before = path.read_bytes()
    with pytest.raises(UserError, match=message):
        list(read_sqlite(f"{path}#{query}"))
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path):
    path = tmp_path / "a.db"
    with pytest.raises(UserError, match="there is no such file"):
        list(read_sqlite(path))
    assert not path.exists()
    path.write_bytes(b"text,label\n" * 100)
    with pytest.raises(UserError, match="cannot be read as SQLite"):
        list(read_sqlite(path))
    path.unlink()
    write(path, {})
    with pytest.raises(UserError, match="there are 0 tables"):
        list(read_sqlite(path))
