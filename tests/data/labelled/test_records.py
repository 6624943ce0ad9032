"""Records from all formats: JSON Lines, JSON arrays, Parquet; compressed or not; from rows to sentences."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.records import has_records, read_records
from unmask.data.labelled.table import ExampleTable
from unmask.support.errors import UserError

RECORDS = [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}]


def zstandard(content):
    return pyarrow.compress(content, "zstd", asbytes=True)


def test_an_array_of_objects_is_read_as_its_rows(tmp_path):
    path = tmp_path / "a.json"
    for content in (json.dumps(RECORDS), "\ufeff \n" + json.dumps(RECORDS, indent=2)):
        path.write_text(content, encoding="utf8")
        assert list(read_records(path)) == [(1, RECORDS[0]), (2, RECORDS[1])]
    path.write_text("\n".join(map(json.dumps, RECORDS)))
    assert list(read_records(path)) == [(1, RECORDS[0]), (2, RECORDS[1])]
    path.write_text('[{"text": "a", "label": ""}]')
    with pytest.raises(UserError, match=r"a\.json:1: the label is empty"):
        read_rows([path], columns={})
    for content, message in (("[1]", "row 1: int, not an object"), ("[{", "broken JSON")):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            list(read_records(path))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard)])
def test_compressed_files_keep_the_suffix_of_their_format(tmp_path, suffix, compress):
    for name in ("a.jsonl", "a.json"):
        content = json.dumps(RECORDS) if name == "a.json" else "\n".join(map(json.dumps, RECORDS))
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(compress(content.encode()))
        assert suffix_of(path) == name[2:]
        assert [record for _, record in read_records(path)] == RECORDS


def test_parquet_is_read_as_rows_and_as_sentences(tmp_path):
    names = {"names": ["O", "B-X"], "_type": "ClassLabel"}
    features = {"ner_tags": {"feature": names, "_type": "Sequence"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = tmp_path / "a.parquet"
    rows = pyarrow.table({"tokens": [["a", "b"], ["c"]], "ner_tags": [[0, 1], [0]]})
    pyarrow.parquet.write_table(rows.replace_schema_metadata(metadata), path)
    assert [one.tags for one in read_annotations([path], columns={})] == [("O", "B-X"), ("O",)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path)
    assert [row.values for row in read_rows([path], columns={})] == RECORDS
    assert has_records(path, None) and not has_records(path, "tsv")


def test_which_sources_have_records():
    assert has_records(ExampleTable("<dict>", {}), None)
    assert [has_records(name, None) for name in ("a.JSON", "a.ndjson.gz", "a.tsv", "a.csv.zst", "-")] == [
        *(True, True, False, False, False)
    ]
    assert has_records("a.txt", "jsonl") and not has_records("a.jsonl", "tsv")
