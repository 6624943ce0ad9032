"""A corpus holds what the documents say, is the same in every build, and damage is found and named."""

import json
import pickle
import signal
import subprocess
import sys
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from unmask.corpus import build
from unmask.corpus import corpus as corpus_module
from unmask.corpus.build import build_corpus
from unmask.corpus.corpus import Manifest, open_corpus
from unmask.durable import sha256
from unmask.errors import UserError
from unmask.text.documents import TextOptions
from unmask.text.sentences import split_sentences
from unmask.tokenizers.wordpiece import train_wordpiece

WORDS = ["你", "好", "the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "away", "dog", "house"]


def make_documents(count, seed=0):
    draw = np.random.default_rng(seed)
    return [
        " ".join(
            " ".join(draw.choice(WORDS, draw.integers(2, 9))).capitalize() + "." for _ in range(draw.integers(1, 7))
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([" ".join(WORDS) + " . #"] * 3, size=120)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(300)))
    return path


@pytest.fixture
def built(source, tokenizer, tmp_path):
    return build_corpus([source], tokenizer, tmp_path / "corpus", shard_tokens=2000)


def texts_of(documents, tokenizer):
    return [[tokenizer.decode(ids) for ids in documents.sentences(index)] for index in range(len(documents))]


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_documents_come_back_in_order(built, tokenizer):
    expected = [
        [tokenizer.decode(tokenizer.encode(sentence)) for sentence in split_sentences(text)]
        for text in make_documents(300)
    ]
    train, heldout = texts_of(built.train, tokenizer), texts_of(built.heldout, tokenizer)
    assert len(built.manifest.train.shards) > 1
    assert 1 <= len(heldout) < 15
    assert sorted(train + heldout) == sorted(expected)
    places = [expected.index(document) for document in train]
    assert sum(place > after for place, after in pairwise(places)) < 15  # a few waited for the end
    for documents in (built.train, built.heldout):
        sentences = [ids for index in range(len(documents)) for ids in documents.sentences(index)]
        assert documents.num_sentences == len(sentences)
        assert documents.num_tokens == sum(map(len, sentences))
        assert {ids.dtype for ids in sentences} == {np.dtype(np.int32)}
        for index in (-1, len(documents)):
            with pytest.raises(IndexError):
                documents.sentences(index)


def test_manifest_tells_what_was_built(built, source, tokenizer):
    manifest = built.manifest
    assert manifest == msgspec.json.decode((built.directory / "manifest.json").read_bytes(), type=Manifest)
    assert (manifest.version, manifest.dtype, manifest.sources) == (1, "<u2", [str(source)])
    assert (manifest.tokenizer.sha256, manifest.tokenizer.size) == (tokenizer.sha256, tokenizer.size)
    assert built.tokenizer.sha256 == tokenizer.sha256
    ids = np.concatenate([ids for index in range(len(built.train)) for ids in built.train.sentences(index)])
    counts = np.bincount(ids)
    frequent = manifest.most_frequent_token
    assert (frequent.id, frequent.share) == (counts.argmax(), counts.max() / len(ids))
    assert len(ids) == built.train.num_tokens


def test_documents_are_pickled_without_their_arrays(built):
    built.train.sentences(0)
    content = pickle.dumps(built.train)
    assert len(content) < 5_000
    copy = pickle.loads(content)
    assert [ids.tolist() for ids in copy.sentences(7)] == [ids.tolist() for ids in built.train.sentences(7)]


def test_only_so_many_shards_are_open_at_once(built, monkeypatch):
    monkeypatch.setattr(corpus_module, "_OPEN_SHARDS", 2)
    documents = open_corpus(built.directory).train
    for index in range(len(documents)):
        assert documents.sentences(index)[0].tolist() == built.train.sentences(index)[0].tolist()
        assert len(documents._open) <= 2


def test_large_vocabularies_take_four_bytes(source, tokenizer, tmp_path):
    path = tmp_path / "vocab.txt"
    pieces = [*tokenizer.pieces(range(tokenizer.size)), *(f"zz{number}" for number in range(70_000))]
    path.write_text("\n".join(pieces), encoding="utf-8")
    large = corpus_module.load_tokenizer(tmp_path)
    source.write_text("zz69999 zz1\n\nzz2\n")
    text = source.rename(tmp_path / "a.txt")
    built = build_corpus([text], large, tmp_path / "corpus", heldout=[], options=TextOptions(documents="line"))
    assert built.manifest.dtype == "<u4"
    assert sorted(texts_of(built.train, large) + texts_of(built.heldout, large)) == [["zz2"], ["zz69999 zz1"]]


@pytest.mark.parametrize(("count", "held"), [(2, 1), (3, 1), (4, 2), (20, 2), (100, 2)])
def test_something_is_always_held_out(tmp_path, tokenizer, count, held):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(count)))
    built = build_corpus([path], tokenizer, tmp_path / "corpus")
    assert len(built.heldout) >= held
    assert len(built.train) >= held
    assert len(built.train) + len(built.heldout) == count


def test_nothing_is_held_out_on_request(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(20)))
    built = build_corpus([path], tokenizer, tmp_path / "corpus", heldout=None)
    assert (len(built.train), len(built.heldout)) == (20, 0)


def test_equal_documents_are_in_the_same_part(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(30) * 3))
    built = build_corpus([path], tokenizer, tmp_path / "corpus")
    train, heldout = texts_of(built.train, tokenizer), texts_of(built.heldout, tokenizer)
    assert len(train) + len(heldout) == 90
    assert heldout
    assert not [document for document in heldout if document in train]


def test_the_only_document_is_trained_on(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    for number, text in enumerate([*make_documents(300), "the cat\n\nthe cat"]):
        if int.from_bytes(build.hashlib.blake2b(text.encode(), digest_size=8).digest()) < 2**64 // 100 or number == 300:
            path.write_text(text)
            built = build_corpus([path], tokenizer, tmp_path / f"corpus-{number}")
            assert (len(built.train), len(built.heldout)) == (2 if number == 300 else 1, 0)


def test_held_out_files_are_held_out(source, tmp_path, tokenizer):
    heldout = tmp_path / "b.txt"
    heldout.write_text("The cat.\n\nThe dog sat.\n")
    built = build_corpus([source], tokenizer, tmp_path / "corpus", heldout=[heldout])
    assert texts_of(built.heldout, tokenizer) == [["the cat."], ["the dog sat."]]
    assert len(built.train) == 300
    assert built.manifest.sources == [str(source), str(heldout)]


def test_what_gives_no_tokens_is_dropped(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("The cat.\n\n\u200b\u200b\n\nThe dog.\n\n\ufffd\n", encoding="utf-8")
    built = build_corpus([path], tokenizer, tmp_path / "corpus")
    assert built.train.num_sentences + built.heldout.num_sentences == 2


def test_D7_D8_what_is_skipped_stands_in_the_manifest(source, tmp_path, tokenizer):
    with source.open("ab") as stream:
        stream.write(b'{"text": "\xff"}\n{"text"\n')
    lines = []
    built = build_corpus([source], tokenizer, tmp_path / "corpus", report=lines.append)
    assert built.manifest.skipped.count == 2
    assert built.manifest.skipped.places[0].startswith(f"{source}:301: ")
    assert any(line.startswith("skipped: 2 documents") for line in lines)
    with pytest.raises(UserError, match=rf"{source}:301: "):
        build_corpus([source], tokenizer, tmp_path / "strict", options=TextOptions(strict=True))
    assert not list(tmp_path.glob("strict*"))


def test_D9_empty_corpus_is_an_error(source, tmp_path, tokenizer):
    empty = tmp_path / "empty.jsonl"
    for content, message in (
        ("", "no text to train on; is it the right file, and --documents"),
        ("{\n", rf"1 documents were skipped, the first at {empty}:1"),
    ):
        empty.write_text(content)
        with pytest.raises(UserError, match=message):
            build_corpus([empty], tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match="the held-out files hold no text"):
        build_corpus([source], tokenizer, tmp_path / "corpus", heldout=[empty])
    assert not list(tmp_path.glob("corpus*"))


def test_paths_are_checked_before_anything_is_read(source, tmp_path, tokenizer):
    for paths, heldout, message in (
        ([source, tmp_path / "x" / ".." / source.name], [], "is named twice"),
        ([source], [source], "is named twice"),
        (["-", "-"], [], "standard input: is named twice"),
        ([source, tmp_path / "missing"], [], "missing: does not exist"),
        ([tmp_path], [], "is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            build_corpus(paths, tokenizer, tmp_path / "corpus", heldout=heldout)
    for out in (source, tmp_path):
        with pytest.raises(UserError, match="exists and is not empty"):
            build_corpus([source], tokenizer, out)
    (tmp_path / "corpus").mkdir()
    assert len(build_corpus([source], tokenizer, tmp_path / "corpus").train) > 200


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("kind", corpus_module.ARRAYS)
def test_D1_flipped_byte_is_named(built, kind):
    path = built.directory / f"train-00001.{kind}.npy"
    flip(path)
    with pytest.raises(UserError, match=f"{path}: is damaged: its sha256 differs"):
        open_corpus(built.directory)
    assert open_corpus(built.directory, verify=False)


@pytest.mark.parametrize("verify", [True, False])
def test_D2_truncated_file_is_named(built, verify):
    path = built.directory / "heldout-00000.tokens.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"{path}: has \d+ bytes, not \d+"):
        open_corpus(built.directory, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_D3_deleted_file_is_named(built, verify):
    path = built.directory / "train-00000.documents.npy"
    path.unlink()
    with pytest.raises(UserError, match=f"{path}: is missing"):
        open_corpus(built.directory, verify=verify)


def rewrite(corpus, name, content):
    """Write other content into a file of a shard, with a manifest that fits it."""
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
        lambda index: index[None],
        lambda index: b"no array at all",
        lambda index: np.array([None] * len(index)),
    ],
)
def test_D4_bad_index_is_named(built, kind, change):
    name = f"train-00000.{kind}.npy"
    path = rewrite(built, name, change(np.load(built.directory / name)))
    with pytest.raises(UserError, match=f"{path}: is no (index|array)"):
        open_corpus(built.directory)


def test_D5_token_outside_the_vocabulary_is_refused(built):
    name = "train-00000.tokens.npy"
    tokens = np.load(built.directory / name)
    tokens[5] = built.tokenizer.size
    path = rewrite(built, name, tokens)
    with pytest.raises(UserError, match=f"{path}: has the token id {built.tokenizer.size}, but the vocabulary"):
        open_corpus(built.directory)
    rewrite(built, name, tokens.astype(np.uint32))
    with pytest.raises(UserError, match=f"{path}: does not hold"):
        open_corpus(built.directory)


def test_D6_other_tokenizer_is_refused(built, tokenizer):
    assert open_corpus(built.directory, tokenizer=tokenizer).tokenizer.sha256 == tokenizer.sha256
    other = train_wordpiece(["other words"], size=50)
    with pytest.raises(UserError, match="is not the one that the corpus was built with"):
        open_corpus(built.directory, tokenizer=other)
    other.save(built.directory / "tokenizer")
    with pytest.raises(UserError, match=r"corpus/tokenizer: the tokenizer .* is not the one"):
        _ = open_corpus(built.directory).tokenizer


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
    path.write_text(json.dumps(good | {"version": 2}))
    with pytest.raises(UserError, match="has version 2, not 1"):
        open_corpus(built.directory)
    path.unlink()
    with pytest.raises(UserError, match="is this the folder of a corpus"):
        open_corpus(built.directory)


BUILD = """
import sys, time
from unmask.corpus import build
from unmask.tokenizers.tokenizer import load_tokenizer
def report(line):
    print(line, flush=True)
    if line.startswith("train-00001") and "--stall" in sys.argv:
        time.sleep(60)
build.build_corpus([sys.argv[1]], load_tokenizer(sys.argv[2]), sys.argv[3], shard_tokens=2000, report=report)
"""


def test_D13_rerun_after_a_crash_gives_the_same_bytes(built, source, tmp_path):
    out = tmp_path / "again"
    command = [sys.executable, "-c", BUILD, str(source), str(built.directory / "tokenizer"), str(out)]
    with subprocess.Popen([*command, "--stall"], stdout=subprocess.PIPE) as process:
        while not process.stdout.readline().startswith(b"train-00001"):
            pass
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    assert (tmp_path / "again.partial" / "train-00001.tokens.npy").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert files_of(out) == files_of(built.directory)
    assert not (tmp_path / "again.partial").exists()


MEASURE = """
import pathlib, re, sys
from unmask.corpus.build import build_corpus
from unmask.tokenizers.tokenizer import load_tokenizer
build_corpus([sys.argv[1]], load_tokenizer(sys.argv[2]), sys.argv[3], shard_tokens=100_000)
status = pathlib.Path("/proc/self/status").read_text()  # getrusage knows the parent's peak too
print(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
"""


@pytest.mark.slow
def test_D7_memory_does_not_grow_with_the_corpus(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    text = "\n\n".join(make_documents(2000)) + "\n\n"
    peaks = []
    for times in (4, 40):
        path = tmp_path / f"{times}.txt"
        with path.open("w") as stream:
            for number in range(times):
                stream.write(text + "the cat " * number + "\n\n")
        command = [sys.executable, "-c", MEASURE, str(path), str(tmp_path / "tokenizer"), str(tmp_path / f"c{times}")]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
    assert peaks[1] < peaks[0] * 1.15
