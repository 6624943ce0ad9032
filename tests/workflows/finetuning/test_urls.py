"""Labeled files at URLs are read as local ones are, by every command, and nobody reads what may be secret."""

import json
from pathlib import Path

import pytest

import unmask
from unmask.data.labelled.hub_data import is_url, locate
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.data.text.record_files import fingerprint_source
from unmask.support.errors import UnmaskError, UserError
from unmask.support.urls import Url, address_of

from .conftest import run

OPTIONS = {"device": "cpu", "quiet": True}


@pytest.fixture
def there(store, rows, documents):
    """The URL of the directory with a labeled file, with a signature; the same rows in other formats."""
    lines = [line.split("\t") for line in rows.read_text().splitlines()[1:]]
    records = [{"text": text, "label": label} for text, label in lines]
    store.files["rows.tsv"] = rows.read_bytes()
    store.files["latin.csv"] = "text,label\nEin schöner Tag,gut\n".encode("cp1252")
    store.files["rows.jsonl"] = "".join(json.dumps(record) + "\n" for record in records).encode()
    return lambda name: f"{store.url}/{name}?sig=SECRET"


def read(source, **options):
    return [(row.values, row.line) for row in read_rows(as_sources(source, **options), columns={}, kind=None, notes=[])]


def test_rows_are_those_of_the_local_file(there, store, rows, tmp_path):
    for name in ("rows.tsv", "rows.jsonl"):
        assert [values for values, _ in read(there(name))] == [values for values, _ in read(rows)]
    assert read(there("latin.csv"), encoding="cp1252")[0][0] == {"text": "Ein schöner Tag", "label": "gut"}
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").Table
    parquet.write_table(table.from_pylist([{"text": "a", "label": "b"}]), tmp_path / "a.parquet")
    store.files["a.parquet"] = (tmp_path / "a.parquet").read_bytes()
    assert read(there("a.parquet")) == [({"text": "a", "label": "b"}, 1)]
    assert fingerprint_source(as_sources(there("rows.tsv"))[0]) == fingerprint_source(rows)


def test_errors_name_the_url_without_its_secrets(there, store):
    store.files["bad.tsv"] = b"text\tlabel\na\n"
    for name, pattern in (("bad.tsv", r"bad.tsv:2: 1 column where"), ("none.tsv", "none.tsv: does not exist")):
        with pytest.raises(UserError, match=pattern) as caught:
            read(there(name))
        assert f"{store.url}/{name}" in str(caught.value) and "SECRET" not in str(caught.value)
    store.lasting = "500"
    with pytest.raises(UnmaskError, match="cannot be read, in 3 attempts"):
        read(there("rows.jsonl"))


def test_a_training_run_is_that_on_the_local_file(there, classifier, rows, tmp_path):
    here, there_too = tmp_path / "here", tmp_path / "there"
    run(classifier, rows, here, "budget.steps=2")
    run(classifier, there("rows.tsv"), there_too, "budget.steps=2")
    for name in ("model.safetensors", "config.json"):
        assert (there_too / "model" / name).read_bytes() == (here / "model" / name).read_bytes()
    inputs = [json.loads((folder / "provenance.json").read_text())["inputs"] for folder in (here, there_too)]
    assert inputs[0] == inputs[1] and "train" in inputs[0]
    assert not any(b"SECRET" in path.read_bytes() for path in there_too.rglob("*") if path.is_file())


def test_predictions_evaluations_audits_and_suggestions_are_those_of_the_local_file(there, classifier, rows, tmp_path):
    url, outs = there("rows.tsv"), {}
    for name, data in (("here", rows), ("there", url)):
        folder = tmp_path / name
        folder.mkdir()
        unmask.predict(classifier, data=data, out=folder / "predictions.tsv", **OPTIONS)
        unmask.predict(classifier, data=data, out=folder / "predictions.tsv", resume=True, **OPTIONS)
        unmask.suggest(classifier, data, out=folder / "suggested.tsv", count=3, **OPTIONS)
        scores = unmask.evaluate(classifier, data, **OPTIONS)
        audit = unmask.audit(classifier, data, folds=2, **OPTIONS)
        outs[name] = [
            scores["metrics"],
            [suspect.line for suspect in audit.suspects],
            *(path.read_bytes() for path in sorted(folder.iterdir())),
        ]
    assert outs["here"] == outs["there"]


def test_a_comparison_reads_urls_without_secrets(there, store, classifier, tmp_path, capsys):
    url = f"{store.url}/rows.tsv"
    arms = [str(classifier), f"{classifier}+random"]
    options = {"task": "classification", "arms": arms, "seeds": 1, "dry_run": True, "device": "cpu"}
    outcome = unmask.compare(out=tmp_path / "out", train=url, test=url, **options)
    assert any("start" in line for line in outcome.planned)
    with pytest.raises(UserError, match="has a user, password or query, which a comparison does not keep"):
        unmask.compare(out=tmp_path / "out", train=there("rows.tsv"), test=url, **options)
    file = tmp_path / "pets.toml"
    file.write_text(f'arms = ["{classifier}"]\n[tasks.pets]\ntrain = ["{url}"]\n')
    with pytest.raises(UserError, match=r"pets.toml: names the URL http.*read only where they are arguments"):
        unmask.compare(file, out=tmp_path / "out", device="cpu")
    file.write_text(f'[a]\ntask = "classification"\ntrain = "{url}"\n[b]\ntask = "regression"\ntrain = "x.tsv"\n')
    with pytest.raises(UserError, match=r"pets.toml: names the URL http"):
        unmask.multitask(file, classifier, tmp_path / "out", **OPTIONS)


def test_names_of_data_sets_are_told_from_urls(tmp_path):
    assert is_url("hf://datasets/space/name/data/train.csv") and is_url("s3://bucket/a.csv")
    assert is_url("hf://datasets/space/name@main/train.csv")
    for name in ("hf://datasets/space/name", "hf://datasets/space/name@refs/convert/parquet#train", "space/name"):
        assert not is_url(name)
    for path in ("a.csv", "C:/a.csv", Path("s3/a.csv")):
        assert not is_url(path) and locate(path) == path
    url = locate("https://me:pw@host/a.csv?sig=1")
    assert isinstance(url, Url) and address_of(as_sources([url], "cp1252")[0]) == url.address
    assert locate(as_sources([url], "cp1252")[0]).encoding == "cp1252"
    assert locate(f"file://{tmp_path}/a.csv") == f"{tmp_path}/a.csv"
    with pytest.raises(UserError, match="a part after #"):
        locate("s3://bucket/a.xlsx#Sheet")
    with pytest.raises(UserError, match="is a URL as a Path"):
        as_sources(Path("s3://bucket/a.csv"))
