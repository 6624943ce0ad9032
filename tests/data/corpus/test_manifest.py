"""Tests of the manifest of a corpus, of the arrays that it describes, and of the checksums of documents."""

import json
import zlib

import numpy as np
import pytest

from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.manifest import ARRAYS, PartEntry, ShardEntry, checksum, dtypes, lengths, read_manifest
from unmask.support.errors import UserError


def test_damaged_manifest_is_named(built):
    path = built.directory / "manifest.json"
    good = json.loads(path.read_text())
    shard = good["train"]["shards"][0]
    escaped = good | {"train": good["train"] | {"shards": [shard | {"name": "../x"}]}}
    miscounted = good | {"train": good["train"] | {"documents": 3}}
    for content in (b"", b"{", b"[" * 100_000, b"{}", *(json.dumps(it).encode() for it in (escaped, miscounted))):
        path.write_bytes(content)
        with pytest.raises(UserError, match=str(path)):
            open_corpus(built.directory)
    path.write_text(json.dumps(good | {"version": 1}))
    with pytest.raises(UserError, match="has version 1, not 2"):
        open_corpus(built.directory)
    path.write_text(json.dumps(good | {"dtype": "<f4"}))
    with pytest.raises(UserError, match="has tokens of the unknown type '<f4'"):
        open_corpus(built.directory)
    path.write_text(json.dumps(good | {"most_frequent_token": {"id": 2**60, "share": 0.1}}))
    with pytest.raises(UserError, match="has the token 1152921504606846976 of a vocabulary of"):
        open_corpus(built.directory)
    path.unlink()
    with pytest.raises(UserError, match="is this the directory of a corpus"):
        open_corpus(built.directory)


def test_the_manifest_of_a_corpus_is_read(built):
    assert read_manifest(built.directory / "manifest.json") == built.manifest


def test_unknown_fields_are_refused(built):
    path = built.directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"more": 1}))
    with pytest.raises(UserError, match=rf"{path}: is not the manifest of a corpus \(.*more.*; build the corpus again"):
        read_manifest(path)


@pytest.mark.parametrize("tokens", ["<u2", "<u4"])
def test_files_have_the_described_types_and_lengths(built, tokens):
    assert dtypes(tokens)["tokens"] == np.dtype(tokens)
    assert list(dtypes(tokens)) == list(ARRAYS)
    for shard in built.manifest.train.shards:
        for kind, length in lengths(shard).items():
            array = np.load(built.directory / f"{shard.name}.{kind}.npy")
            assert (array.dtype, array.shape) == (dtypes("<u2")[kind], (length,))


def test_counts_are_written_out():
    shard = ShardEntry("train-00000", {}, 1, 2, 3000)
    assert PartEntry(1, 2, 3000, [shard]).amounts == "1 document, 2 sentences, 3,000 tokens"


def test_the_checksum_covers_ids_and_sentence_ends():
    ids, ends = np.array([5, 6, 7], "<u2"), np.array([0, 2, 3], "<i8")
    assert checksum(ids, ends) == zlib.crc32(ends.tobytes() + ids.tobytes())
    assert checksum(ids, np.array([0, 1, 3], "<i8")) != checksum(ids, ends)
    assert checksum(np.array([5, 6, 8], "<u2"), ends) != checksum(ids, ends)
