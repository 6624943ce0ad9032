"""Tests of the checks of a corpus's files: what differs from the manifest is named, with the remedy."""

import msgspec
import numpy as np
import pytest

from unmask.data.corpus.manifest import check_files, check_tokenizer, map_array, verify_shard
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256


@pytest.fixture
def shard(built):
    """The first shard of the train part."""
    return built.manifest.train.shards[0]


def changed(shard, directory, name):
    """Return the entry of a shard with the size and the checksum of a file that was changed."""
    entry = msgspec.structs.replace(
        shard.files[name], sha256=sha256(directory / name), bytes=(directory / name).stat().st_size
    )
    return msgspec.structs.replace(shard, files={**shard.files, name: entry})


def test_an_undamaged_shard_passes(built, shard):
    check_files(built.directory, shard)
    verify_shard(built.directory, shard, "<u2", built.tokenizer.size)


def test_files_must_be_those_of_the_shard(built, shard):
    names = dict(shard.files)
    names.pop("train-00000.tokens.npy")
    for other in (
        msgspec.structs.replace(shard, files=names),
        msgspec.structs.replace(shard, files={**shard.files, "more.npy": shard.files["train-00000.tokens.npy"]}),
        msgspec.structs.replace(shard, name="../train-00000"),
    ):
        with pytest.raises(UserError, match=r"manifest\.json: the files of shard '.*' are not those of a shard \(t"):
            check_files(built.directory, other)


def test_a_file_of_another_size_is_named(built, shard):
    path = built.directory / "train-00000.sentences.npy"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(UserError) as caught:
        check_files(built.directory, shard)
    assert str(caught.value) == f"{path}: has {size + 1} bytes, not {size}; copy it again or build the corpus again"


def test_values_that_do_not_fit_are_named_although_the_checksums_are_right(built, shard):
    for kind, change, message in (
        ("tokens", lambda array: array[:-1], rf"does not contain {shard.tokens} values of type <u2"),
        ("tokens", lambda array: array.astype("<u4"), rf"does not contain {shard.tokens} values of type <u2"),
        ("tokens", lambda array: array + 200, r"has the token id \d+, but the vocabulary has \d+ tokens"),
        ("checksums", lambda array: array[:-1], rf"does not contain {shard.documents} values of type <u4"),
        (
            "sentences",
            lambda array: array[::-1].copy(),
            rf"is not an index of {shard.sentences} segments of {shard.tokens} elements",
        ),
        (
            "documents",
            lambda array: array[:-1],
            rf"is not an index of {shard.documents} segments of {shard.sentences} elements",
        ),
    ):
        path = built.directory / f"train-00000.{kind}.npy"
        good = path.read_bytes()
        np.save(path, change(np.load(path)))
        with pytest.raises(UserError, match=rf"{path}: {message}; build the corpus again"):
            verify_shard(built.directory, changed(shard, built.directory, path.name), "<u2", built.tokenizer.size)
        path.write_bytes(good)


def test_arrays_are_mapped_and_anything_else_is_named(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(5))
    assert map_array(path).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        map_array(path)[0] = 1
    for content in (b"", b"no array", path.read_bytes()[:20]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{path}: is not an array \("):
            map_array(path)


def test_another_tokenizer_is_named_with_the_given_remedy(built, tokenizer):
    check_tokenizer(tokenizer, built.manifest, built.directory, "")
    entry = msgspec.structs.replace(built.manifest.tokenizer, sha256="0" * 64, size=7)
    other = msgspec.structs.replace(built.manifest, tokenizer=entry)
    with pytest.raises(UserError) as caught:
        check_tokenizer(tokenizer, other, built.directory, "use the other one")
    assert str(caught.value) == (
        f"{built.directory}: the tokenizer ({tokenizer.size} tokens, sha256 {tokenizer.sha256[:12]}) is not the one "
        f"that the corpus was built with (7 tokens, sha256 {'0' * 12}); use the other one"
    )
