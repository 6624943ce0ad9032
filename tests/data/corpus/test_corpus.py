"""Tests of reading a corpus: opening is cheap, and damage is detected and named before damaged data is used."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.corpus import corpus as corpus_module
from unmask.data.corpus import manifest
from unmask.data.corpus.corpus import open_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256


def test_documents_are_pickled_without_their_arrays(built):
    built.train.sentences(0)
    content = pickle.dumps(built.train)
    assert len(content) < 5_000
    copy = pickle.loads(content)
    assert [ids.tolist() for ids in copy.sentences(7)] == [ids.tolist() for ids in built.train.sentences(7)]


def num_open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_the_number_of_open_shards_is_limited(built, monkeypatch):
    monkeypatch.setattr(corpus_module, "MOST_OPEN", 2)
    before = num_open_files()
    documents = open_corpus(built.directory).train
    for index in range(len(documents)):
        assert documents.sentences(index)[0].tolist() == built.train.sentences(index)[0].tolist()
        assert len(documents._open) <= 2
    assert num_open_files() == before + 4 * (2 + len(built.train._open))
    built.train._open.clear()
    documents._open.clear()
    assert num_open_files() == before


@pytest.fixture
def opened(monkeypatch):
    """The names of the shards that are opened."""
    names, init = [], corpus_module._OpenShard.__init__

    def counted(self, directory, shard, tokens):
        names.append(shard.name)
        init(self, directory, shard, tokens)

    monkeypatch.setattr(corpus_module._OpenShard, "__init__", counted)
    return names


def test_the_shard_that_was_used_least_recently_is_closed(built, monkeypatch, opened):
    monkeypatch.setattr(corpus_module, "MOST_OPEN", 2)
    documents = open_corpus(built.directory).train
    starts = documents._starts
    for shard in (0, 1, 0, 2, 0, 1):
        documents.sentences(starts[shard])
    assert opened == [f"train-0000{shard}" for shard in (0, 1, 2, 1)]


def test_the_documents_of_a_block_are_read_shard_by_shard(built, monkeypatch, opened):
    """Each shard is opened once for the lengths of all sentences, and once for all text."""
    monkeypatch.setattr(corpus_module, "MOST_OPEN", 1)
    documents, shards = open_corpus(built.directory).train, [shard.name for shard in built.manifest.train.shards]
    source = DocumentSentencesSettings(length=32).source(documents, Frame.of(built.tokenizer), seed=1)
    assert source.num_blocks == 1
    samples, _ = source.take(source.start, sequences=1)
    whole = source._block(0, 0, 0)
    assert opened == shards
    whole.read(range(len(whole))[::-1])
    assert opened == [*shards, *shards]
    opened.clear()
    whole.read(range(len(whole)))
    assert samples[0].ids.tolist() == whole[0].ids.tolist()
    assert not opened, "texts of a block are kept"


def test_lengths_of_sentences_are_those_of_the_text(built):
    order = np.random.default_rng(0).permutation(len(built.train)).tolist()
    lengths = built.train.sentence_lengths([*order, order[0]])
    expected = [list(map(len, built.train.sentences(index))) for index in [*order, order[0]]]
    assert [own.tolist() for own in lengths] == expected
    for index in order:
        assert built.train.tokens([index])[0].tolist() == np.concatenate(built.train.sentences(index)).tolist()
    assert not built.train.sentence_lengths([])
    with pytest.raises(IndexError):
        built.train.sentence_lengths([len(built.train)])


@pytest.mark.parametrize(("limit", "most"), [(1024, 102), (256, 25), (5, 1), (1 << 20, 4096)])
def test_open_files_are_within_the_limit_of_the_system(built, monkeypatch, limit, most):
    resource = pytest.importorskip("resource", reason="Windows")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert open_corpus(built.directory).train._most_open == most


def test_opening_reads_no_shard(built, monkeypatch):
    """Opening takes no longer for a corpus of many shards."""
    with monkeypatch.context() as patch:
        for name in ("open", "pread"):
            patch.setattr(corpus_module.os, name, lambda *call: pytest.fail("a shard was read"))
        patch.setattr(manifest, "sha256", lambda path: pytest.fail("a shard was read"))
        patch.setattr(manifest.np, "load", lambda *call, **settings: pytest.fail("a shard was read"))
        documents = open_corpus(built.directory).train
    assert [ids.tolist() for ids in documents.sentences(7)] == [ids.tolist() for ids in built.train.sentences(7)]


def damaged(corpus, message):
    """Assert that damage is reported both by `verify` and by reading the documents."""
    with pytest.raises(UserError, match=message):
        corpus.verify()
    with pytest.raises(UserError, match=message):
        read_all(corpus)


def read_all(corpus):
    return [
        documents.sentences(index) for documents in (corpus.train, corpus.heldout) for index in range(len(documents))
    ]


def flip(path, place=-3):
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("kind", manifest.ARRAYS)
def test_D1_flipped_byte_is_named(built, kind):
    path = built.directory / f"train-00001.{kind}.npy"
    flip(path)
    corpus = open_corpus(built.directory)
    damaged(corpus, f"{path}: is damaged: its sha256 differs")
    for index in range(corpus.manifest.train.shards[0].documents):  # the first shard is not damaged
        corpus.train.sentences(index)


@pytest.mark.parametrize("kind", manifest.ARRAYS)
def test_D1_no_flipped_byte_is_used(built, kind):
    """With any seventh byte of a shard flipped, documents are refused or read correctly."""
    path = built.directory / f"heldout-00000.{kind}.npy"
    expected = [[ids.tolist() for ids in built.heldout.sentences(index)] for index in range(len(built.heldout))]
    content = path.read_bytes()
    places = range(128, len(content), 7)  # after the header
    refused = 0
    for place in places:
        flip(path, place)
        for index, sentences in enumerate(expected):
            try:
                assert [ids.tolist() for ids in built.heldout.sentences(index)] == sentences
            except UserError as error:
                assert str(path) in str(error)
                refused += 1
        path.write_bytes(content)
    assert refused >= len(places)


def test_D2_truncated_file_is_named(built):
    path = built.directory / "heldout-00000.tokens.npy"
    corpus = open_corpus(built.directory)
    os.truncate(path, path.stat().st_size - 1)
    damaged(corpus, rf"{path}: has \d+ bytes, not \d+")  # while it is open
    with pytest.raises(UserError, match=rf"{path}: has \d+ bytes, not \d+"):
        open_corpus(built.directory)


def test_D3_deleted_file_is_named(built):
    path = built.directory / "train-00000.documents.npy"
    corpus = open_corpus(built.directory)
    path.unlink()
    damaged(corpus, f"{path}: is missing")
    with pytest.raises(UserError, match=f"{path}: is missing"):
        open_corpus(built.directory)


def rewrite(corpus, name, content):
    """Write other content to a file of a shard, and update the manifest accordingly."""
    path = corpus.directory / name
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    manifest = json.loads((corpus.directory / "manifest.json").read_text())
    files = manifest["train"]["shards"][0]["files"]
    files[name] = {"sha256": sha256(path), "bytes": path.stat().st_size}
    (corpus.directory / "manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("kind", ["sentences", "documents"])
@pytest.mark.parametrize(
    "change",
    [
        lambda index: index[:-1],
        lambda index: index + 1,
        lambda index: index[[0, 2, 1, *range(3, len(index))]],
        lambda index: index[[0, 1, 1, *range(3, len(index))]],
        lambda index: np.where(np.arange(len(index)) == 1, -5, index),
        lambda index: index.astype(np.float64),
        lambda index: b"no array at all",
        lambda index: np.array([None] * len(index)),
    ],
)
def test_D4_bad_index_is_named(built, kind, change):
    name = f"train-00000.{kind}.npy"
    path = rewrite(built, name, change(np.load(built.directory / name)))
    damaged(open_corpus(built.directory), f"{path}: is not an (index|array)")


def test_D4_wrong_header_is_named(built):
    name = "train-00000.documents.npy"
    expected = read_all(built)
    path = rewrite(built, name, np.load(built.directory / name)[None])
    corpus = open_corpus(built.directory)
    with pytest.raises(UserError, match=f"{path}: is not an index of "):
        corpus.verify()
    assert str(read_all(corpus)) == str(expected)  # headers are not read with documents


def test_D4_wrong_checksums_are_named(built):
    name = "train-00000.checksums.npy"
    rewrite(built, name, np.load(built.directory / name)[::-1])
    corpus = open_corpus(built.directory)
    corpus.verify()  # each file matches the manifest
    with pytest.raises(UserError, match=r"train-00000: document 0 .* cannot be read \(its checksum differs\)"):
        read_all(corpus)
    path = rewrite(built, name, np.load(built.directory / name).astype(np.int64))
    damaged(open_corpus(built.directory), f"{path}: does not contain ")


def test_D5_token_outside_the_vocabulary_is_refused(built):
    name = "train-00000.tokens.npy"
    tokens = np.load(built.directory / name)
    tokens[5] = built.tokenizer.size
    ends = np.cumsum([0, *map(len, built.train.sentences(0))])
    path = rewrite(built, name, tokens)
    damaged(open_corpus(built.directory), f"{path}: has the token id {built.tokenizer.size}, but the vocabulary")
    checksums = np.load(built.directory / "train-00000.checksums.npy")
    checksums[0] = manifest.checksum(tokens[: ends[-1]], ends)
    rewrite(built, "train-00000.checksums.npy", checksums)  # as if it had been written like this
    damaged(open_corpus(built.directory), f"{path}: has the token id {built.tokenizer.size}, but the vocabulary")
    rewrite(built, name, tokens.astype(np.uint32))
    damaged(open_corpus(built.directory), f"{path}: does not contain ")


def test_D6_other_tokenizer_is_refused(built, tokenizer):
    assert open_corpus(built.directory).tokenizer.sha256 == tokenizer.sha256
    other = train_wordpiece(["other words"], size=50)
    other.save(built.directory / "tokenizer")
    with pytest.raises(UserError, match=r"corpus/tokenizer: the tokenizer .* is not the one"):
        _ = open_corpus(built.directory).tokenizer
    with pytest.raises(UserError, match=r"corpus/tokenizer: the tokenizer .* is not the one"):
        open_corpus(built.directory).verify()


def test_sizes_of_documents(built):
    documents = [built.train.sentences(index) for index in range(len(built.train))]
    assert built.train.lengths().tolist() == [sum(map(len, sentences)) for sentences in documents]
    assert built.train.sentence_counts().tolist() == [len(sentences) for sentences in documents]
