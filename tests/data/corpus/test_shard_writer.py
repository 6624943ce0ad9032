"""Tests of the writer of shards: where they end, what their arrays contain, and how it continues after full shards."""

import numpy as np
import pytest

from unmask.data.corpus.encode import EncodedDocument
from unmask.data.corpus.manifest import checksum, verify_shard
from unmask.data.corpus.shard_writer import ShardWriter


def encoded(*sentences):
    """Return a document of these ids."""
    ids = np.concatenate([np.array(sentence, "<u2") for sentence in sentences])
    sizes = np.array([len(sentence) for sentence in sentences], "<i8")
    return EncodedDocument(ids.tobytes(), sizes.tobytes(), checksum(ids, np.cumsum([0, *sizes])))


DOCUMENTS = [encoded([1, 2], [3]), encoded([3]), encoded([4, 3, 5]), encoded([1])]


@pytest.fixture
def make_writer(tmp_path):
    """Creates a writer of shards of four tokens."""

    def make(whole=(), **settings):
        settings = {"dtype": "<u2", "vocabulary": 10, "shard_tokens": 4, **settings}
        return ShardWriter(tmp_path, "train", whole=list(whole), **settings)

    return make


def test_a_shard_ends_with_the_document_that_fills_it(make_writer, tmp_path):
    writer = make_writer()
    written = [writer.add(document, number, str(number)) for number, document in enumerate(DOCUMENTS, start=1)]
    assert [shard and shard.name for shard in written] == [None, "train-00000", None, "train-00001"]
    assert [(shard.seen, shard.digest) for shard in writer.whole] == [(2, "2"), (4, "4")]
    assert [(shard.documents, shard.sentences, shard.tokens) for shard in written if shard] == [(2, 3, 4), (2, 2, 4)]
    arrays = {
        kind: np.load(tmp_path / f"train-00000.{kind}.npy").tolist() for kind in ("tokens", "sentences", "documents")
    }
    assert arrays == {"tokens": [1, 2, 3, 3], "sentences": [0, 2, 3, 4], "documents": [0, 2, 3]}
    checksums = np.load(tmp_path / "train-00000.checksums.npy").tolist()
    assert checksums == [document.checksum for document in DOCUMENTS[:2]]
    for shard in writer.whole:
        verify_shard(tmp_path, shard.entry, "<u2", 10)


def test_the_last_shard_is_written_at_the_end(make_writer, tmp_path):
    writer = make_writer()
    for number, document in enumerate(DOCUMENTS[:3], start=1):
        writer.add(document, number, "")
    part = writer.finish()
    assert (part.documents, part.sentences, part.tokens) == (3, 4, 7)
    assert [shard.name for shard in part.shards] == ["train-00000", "train-00001"]
    assert len(writer.whole) == 1, "the last shard is not full"
    verify_shard(tmp_path, part.shards[1], "<u2", 10)


def test_no_documents_give_no_shard(make_writer, tmp_path):
    part = make_writer().finish()
    assert (part.documents, part.sentences, part.tokens, part.shards) == (0, 0, 0, [])
    assert not list(tmp_path.iterdir())


def test_the_most_frequent_token_includes_the_shards_that_exist_already(make_writer):
    first = make_writer()
    for document in DOCUMENTS[:2]:
        first.add(document, 0, "")
    assert (first.most_frequent().id, first.most_frequent().share) == (3, 2 / 4)
    second = make_writer(whole=first.whole)
    second.add(DOCUMENTS[2], 0, "")
    part = second.finish()
    assert [shard.name for shard in part.shards] == ["train-00000", "train-00001"]
    assert (second.most_frequent().id, second.most_frequent().share) == (3, 3 / 7)
