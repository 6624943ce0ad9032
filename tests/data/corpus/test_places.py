"""Corpora and raw files at URLs give what they give on this machine, and damage is named by its URL."""

import gzip
import json
import pickle

import msgspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.manifest import NAME
from unmask.data.corpus.sample import read_sample
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.support import cache
from unmask.support.choices import as_files
from unmask.support.errors import UnmaskError, UserError


@pytest.fixture
def remote(store, built):
    """The corpus `built` on a server."""
    store.put(built.directory, "my/corpus")
    return f"{store.url}/my/corpus"


def test_a_corpus_at_a_url_is_that_on_this_machine(store, built, remote):
    corpus = open_corpus(remote)
    assert str(corpus.place) == remote and corpus.manifest == built.manifest
    assert corpus.tokenizer.sha256 == built.tokenizer.sha256
    assert read_sample(corpus.directory) == read_sample(built.directory)
    assert not any(path.endswith(".npy") for _, path, _ in store.asked)
    documents = pickle.loads(pickle.dumps(corpus.train))
    for index in np.random.default_rng(0).permutation(len(documents))[:100].tolist():
        assert all(map(np.array_equal, documents.sentences(index), built.train.sentences(index)))
    for block, same in zip(corpus.heldout.blocks(), built.heldout.blocks(), strict=True):
        assert all(map(np.array_equal, block, same))
    corpus.verify()
    store.asked.clear()
    open_corpus(remote).verify()
    assert not any(path.endswith(".npy") for _, path, _ in store.asked)


def test_the_cache_of_shards_is_bounded(store, source, tokenizer, tmp_path, monkeypatch):
    built = write_corpus([source], tokenizer, tmp_path / "corpus", shard_tokens=500)
    store.put(built.directory)
    shards = [[entry.bytes for entry in shard.files.values()] for shard in built.manifest.train.shards]
    limit = 3 * max(map(sum, shards))
    assert sum(map(sum, shards)) > 2 * limit
    documents = open_corpus(store.url).train
    for path in cache.cache_folder().iterdir():
        path.unlink()
    monkeypatch.setenv(cache.SIZE, str(limit / 1e9))
    for index in range(0, len(documents), 3):
        assert np.array_equal(documents.sentences(index)[0], built.train.sentences(index)[0])
        assert sum(path.stat().st_size for path in cache.cache_folder().iterdir()) <= limit


def test_D18_faults_of_a_corpus_at_a_url_are_named(store, built, remote):
    name = "my/corpus/train-00000.tokens.npy"
    with pytest.raises(UserError, match=r"my/none/manifest.json: does not exist"):
        open_corpus(f"{store.url}/my/none")
    corpus, content = open_corpus(remote), store.files.pop(name)
    with pytest.raises(UserError, match=f"{name}: does not exist"):
        corpus.train.sentences(0)
    store.files[name] = content[:-1]
    with pytest.raises(UserError, match=f"{name}: has {len(content) - 1:,} bytes, not {len(content):,}"):
        corpus.train.sentences(0)
    store.files[name] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(UnmaskError, match=f"{name}: cannot be read, .*its sha256 differs"):
        corpus.train.sentences(0)
    store.files[name] = content
    corpus.train.sentences(0)
    manifest = store.files[f"my/corpus/{NAME}"]
    store.files[f"my/corpus/{NAME}"] = manifest.replace(b'"version": 2', b'"version": 9')
    with pytest.raises(UserError, match=f"^{remote}/manifest.json: has version 9"):
        open_corpus(remote)
    store.files["my/corpus/tokenizer/tokenizer.json"] = b"{}"
    store.files[f"my/corpus/{NAME}"] = manifest
    with pytest.raises(UserError, match=f"^{remote}/tokenizer"):
        open_corpus(remote)


def test_a_store_that_refuses_what_is_missing_is_read_nevertheless(store, built, remote):
    store.missing = 403
    assert open_corpus(remote).manifest == built.manifest
    del store.files["my/corpus/manifest.json"]
    with pytest.raises(UserError, match=r"manifest.json: may not be read"):
        open_corpus(remote)


def test_a_damaged_copy_is_named_and_replaced(store, built, remote):
    open_corpus(remote).verify()
    name = built.manifest.train.shards[0].files["train-00000.tokens.npy"].sha256
    path = cache.cache_folder() / name
    path.write_bytes(path.read_bytes()[:-2] + b"\1\0")
    documents = open_corpus(remote).train
    with pytest.raises(UserError, match=r"train-00000.tokens.npy: is damaged.* copy in the cache is removed"):
        for index in range(len(documents)):
            documents.sentences(index)
    open_corpus(remote).verify()


@pytest.mark.parametrize("name", ["../x", "a/b", "http://127.0.0.1:1/x"])
def test_a_manifest_names_no_files_elsewhere(store, built, remote, name):
    manifest = msgspec.json.decode(store.files[f"my/corpus/{NAME}"])
    shard = manifest["train"]["shards"][0]
    shard["files"] = {key.replace(shard["name"], name): entry for key, entry in shard["files"].items()}
    shard["name"] = name
    store.files[f"my/corpus/{NAME}"] = msgspec.json.encode(manifest)
    store.asked.clear()
    with pytest.raises(UserError, match="are not those of a shard"):
        open_corpus(remote)
    assert all(path.startswith("my/corpus") for _, path, _ in store.asked)


def test_files_at_urls_give_the_corpus_of_files_on_this_machine(store, tmp_path, make_documents, tokenizer):
    folder, texts = tmp_path / "files", make_documents(120)
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(texts[:40]))
    records = [json.dumps({"text": text}) for text in texts[40:80]]
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(records).encode()))
    (folder / "c.html").write_text(f"<html><body><p>{texts[80]} {texts[81]}</p></body></html>")
    (folder / "d.txt").write_text("\n\n".join(texts[80:100]), encoding="utf-16")
    pyarrow.parquet.write_table(pyarrow.table({"text": texts[100:]}), folder / "e.parquet")
    store.put(folder, "files")
    paths = sorted(folder.iterdir())
    here = write_corpus(paths, tokenizer, tmp_path / "here", shard_tokens=200)
    urls = as_files([f"{store.url}/files/{path.name}?token=SECRET" for path in paths])
    there = write_corpus(urls, tokenizer, tmp_path / "there", shard_tokens=200)
    assert (there.manifest.train, there.manifest.heldout) == (here.manifest.train, here.manifest.heldout)
    assert there.manifest.sources == [f"{store.url}/files/{path.name}" for path in paths]
    assert not any(b"SECRET" in path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file())


def test_faults_of_files_at_urls_name_the_url(store, tmp_path, tokenizer):
    store.files |= {"a.txt": b"\xff\xfe not text", "b.gz": gzip.compress(b"text" * 999)[:-9], "c.parquet": b"PAR1 no"}
    for name, message in (
        ("a.txt", "a.txt:1: not UTF-16"),
        ("b.gz", "b.gz: the archive is damaged"),
        ("c.parquet", "c.parquet: cannot be read as parquet"),
        ("d.txt", "d.txt: does not exist"),
    ):
        with pytest.raises(UserError, match=f"^{store.url}/{message}"):
            write_corpus(as_files(f"{store.url}/{name}"), tokenizer, tmp_path / "out")
    for twice in (["a.txt", "a.txt"], ["a.txt?x", "a.txt?x"]):
        with pytest.raises(UserError, match="given twice"):
            write_corpus(as_files([f"{store.url}/{name}" for name in twice]), tokenizer, tmp_path / "out")
    with pytest.raises(UserError, match="this machine only"):
        write_corpus(as_files(f"{store.url}/a.txt"), tokenizer, "s3://bucket/out")


def test_what_is_no_argument_is_no_url(store):
    store.files["a.txt"] = b"text"
    with pytest.raises(UserError, match="cannot be read"):
        list(read_documents([f"{store.url}/a.txt"], TextOptions(), Skipped()))
    assert not store.asked


@pytest.mark.exhaustive
def test_a_corpus_on_s3_is_that_on_this_machine(store, built, source, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server_of = pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    for name, value in (("ACCESS_KEY_ID", "name"), ("SECRET_ACCESS_KEY", "SECRET"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    server = server_of.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        client = boto3.client("s3")
        client.create_bucket(Bucket="texts")
        client.upload_file(str(source), "texts", "a.jsonl")
        for path in built.directory.rglob("*"):
            if path.is_file():
                client.upload_file(str(path), "texts", f"corpus/{path.relative_to(built.directory).as_posix()}")
        corpus = open_corpus("s3://texts/corpus")
        corpus.verify()
        assert corpus.manifest == built.manifest
        there = write_corpus(as_files("s3://texts/a.jsonl"), tokenizer, tmp_path / "there", shard_tokens=2000)
        assert (there.manifest.train, there.manifest.heldout) == (built.manifest.train, built.manifest.heldout)
        for missing in ("s3://texts/none", "s3://nowhere/none"):
            with pytest.raises(UserError, match=f"{missing}: does not exist"):
                write_corpus(as_files(missing), tokenizer, tmp_path / "none")
    finally:
        server.stop()
