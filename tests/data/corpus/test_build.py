"""Tests of building a corpus: its text, its parts, skipped documents, and errors before the build starts."""

import json
import re
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow
import pytest

from unmask.data.corpus import build
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.manifest import CorpusManifest
from unmask.data.text.documents import TextOptions
from unmask.data.text.sentences import split_sentences
from unmask.data.tokenizers.load import load_tokenizer
from unmask.support.errors import UserError
from unmask.support.messages import in_command, rendered


def test_documents_come_back_in_order(built, tokenizer, make_documents, texts_of):
    expected = [
        [tokenizer.decode(tokenizer.encode(sentence)) for sentence in split_sentences(text)]
        for text in make_documents(300)
    ]
    train, heldout = texts_of(built.train, tokenizer), texts_of(built.heldout, tokenizer)
    assert len(built.manifest.train.shards) > 1
    assert 1 <= len(heldout) < 15
    assert sorted(train + heldout) == sorted(expected)
    places = [expected.index(document) for document in train]
    assert sum(place > after for place, after in pairwise(places)) < 15  # a few were kept until the end
    for documents in (built.train, built.heldout):
        sentences = [ids for index in range(len(documents)) for ids in documents.sentences(index)]
        assert documents.num_sentences == len(sentences)
        assert documents.num_tokens == sum(map(len, sentences))
        assert {ids.dtype for ids in sentences} == {np.dtype(np.int32)}
        for index in (-1, len(documents)):
            with pytest.raises(IndexError):
                documents.sentences(index)


def test_manifest_describes_the_corpus(built, source, tokenizer):
    manifest = built.manifest
    assert manifest == msgspec.json.decode((built.directory / "manifest.json").read_bytes(), type=CorpusManifest)
    assert (manifest.version, manifest.dtype, manifest.sources) == (2, "<u2", [str(source)])
    assert (manifest.tokenizer.sha256, manifest.tokenizer.size) == (tokenizer.sha256, tokenizer.size)
    assert built.tokenizer.sha256 == tokenizer.sha256
    ids = np.concatenate([ids for index in range(len(built.train)) for ids in built.train.sentences(index)])
    counts = np.bincount(ids)
    frequent = manifest.most_frequent_token
    assert (frequent.id, frequent.share) == (counts.argmax(), counts.max() / len(ids))
    assert len(ids) == built.train.num_tokens


def test_large_vocabularies_take_four_bytes(source, tokenizer, tmp_path, texts_of):
    path = tmp_path / "vocab.txt"
    pieces = [*tokenizer.tokens(range(tokenizer.size)), *(f"zz{number}" for number in range(70_000))]
    path.write_text("\n".join(pieces), encoding="utf-8")
    large = load_tokenizer(tmp_path)
    source.write_text("zz69999 zz1\n\nzz2\n")
    text = source.rename(tmp_path / "a.txt")
    built = write_corpus([text], large, tmp_path / "corpus", heldout=[], options=TextOptions(documents="line"))
    assert built.manifest.dtype == "<u4"
    assert sorted(texts_of(built.train, large) + texts_of(built.heldout, large)) == [["zz2"], ["zz69999 zz1"]]


@pytest.mark.parametrize(("count", "held"), [(2, 1), (3, 1), (4, 2), (20, 2), (100, 2)])
def test_something_is_always_held_out(tmp_path, tokenizer, count, held, make_documents):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(count)))
    built = write_corpus([path], tokenizer, tmp_path / "corpus")
    assert len(built.heldout) >= held
    assert len(built.train) >= held
    assert len(built.train) + len(built.heldout) == count


def test_nothing_is_held_out_on_request(tmp_path, tokenizer, make_documents):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(20)))
    built = write_corpus([path], tokenizer, tmp_path / "corpus", heldout=None)
    assert (len(built.train), len(built.heldout)) == (20, 0)


def test_equal_documents_are_in_the_same_part(tmp_path, tokenizer, make_documents, texts_of):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(make_documents(30) * 3))
    built = write_corpus([path], tokenizer, tmp_path / "corpus")
    train, heldout = texts_of(built.train, tokenizer), texts_of(built.heldout, tokenizer)
    assert len(train) + len(heldout) == 90
    assert heldout
    assert not [document for document in heldout if document in train]


def test_the_only_document_is_trained_on(tmp_path, tokenizer, make_documents):
    path = tmp_path / "a.txt"
    for number, text in enumerate([*make_documents(300), "the cat\n\nthe cat"]):
        if int.from_bytes(build.hashlib.blake2b(text.encode(), digest_size=8).digest()) < 2**64 // 100 or number == 300:
            path.write_text(text)
            built = write_corpus([path], tokenizer, tmp_path / f"corpus-{number}")
            assert (len(built.train), len(built.heldout)) == (2 if number == 300 else 1, 0)


def test_held_out_files_are_held_out(source, tmp_path, tokenizer, texts_of):
    heldout = tmp_path / "b.txt"
    heldout.write_text("The cat.\n\nThe dog sat.\n")
    built = write_corpus([source], tokenizer, tmp_path / "corpus", heldout=[heldout])
    assert texts_of(built.heldout, tokenizer) == [["the cat."], ["the dog sat."]]
    assert len(built.train) == 300
    assert built.manifest.sources == [str(source), str(heldout)]


def test_held_out_documents_that_are_trained_on_are_counted(source, tmp_path, tokenizer, make_documents):
    """By what a model reads: case does not matter to this vocabulary."""
    heldout, lines = tmp_path / "b.txt", []
    leaked = [json.loads(line)["text"].upper() for line in source.read_text().splitlines()[:3]]
    heldout.write_text("\n\n".join([*leaked, *make_documents(4, seed=99)]))
    write_corpus([source], tokenizer, tmp_path / "corpus", heldout=[heldout], report=lines.append)
    (line,) = (line for line in lines if "too low" in line)
    assert line.startswith("3 of 7 held-out documents equal a document that is trained on")
    heldout.write_text("\n\n".join(make_documents(4, seed=99)))
    write_corpus([source], tokenizer, tmp_path / "other", heldout=[heldout], report=lines.append)
    assert sum("too low" in line for line in lines) == 1


def test_directories_of_datasets_are_read(tmp_path, tokenizer, make_documents, texts_of):
    texts = make_documents(10)
    folder = tmp_path / "saved"
    folder.mkdir()
    table = pyarrow.table({"text": texts})
    with pyarrow.OSFile(str(folder / "data.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    saved, lines = (
        write_corpus([path], tokenizer, tmp_path / f"corpus-{path.name}") for path in (folder, tmp_path / "a.jsonl")
    )
    assert texts_of(saved.train, tokenizer) == texts_of(lines.train, tokenizer)
    assert saved.manifest.train.tokens == lines.manifest.train.tokens


def test_sentences_without_tokens_are_dropped(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("The cat.\n\n\u200b\u200b\n\nThe dog.\n\n\ufffd\n", encoding="utf-8")
    built = write_corpus([path], tokenizer, tmp_path / "corpus")
    assert built.train.num_sentences + built.heldout.num_sentences == 2


def test_D7_D8_skipped_documents_are_recorded_in_the_manifest(source, tmp_path, tokenizer):
    with source.open("ab") as stream:
        stream.write(b'{"text": "na\xefve"}\n{"text"\n')
    lines = []
    built = write_corpus([source], tokenizer, tmp_path / "corpus", report=lines.append)
    assert built.manifest.skipped.count == 2
    assert built.manifest.skipped.places[0].startswith(f"{source}:301: ")
    assert any(line.startswith("skipped: 2 documents") for line in lines)
    assert any(line.startswith("to read the first skipped document: ") and "cp1252" in line for line in lines)
    with pytest.raises(UserError, match=rf"{source}:301: "):
        write_corpus([source], tokenizer, tmp_path / "strict", options=TextOptions(strict=True))
    assert not list(tmp_path.glob("strict*"))


def test_D9_empty_corpus_is_an_error(source, tmp_path, tokenizer):
    empty = tmp_path / "empty.jsonl"
    for content, message in (
        ("", "no text to train on; check the files and documents"),
        ("{\n", rf"1 document was skipped, the first at {empty}:1: broken JSON"),
        ("3\n4\n", rf"2 documents were skipped, the first at {empty}:1: not a JSON object$"),
        (
            '{"title": "a", "body": "b"}\n',
            rf"1 document was skipped, the first at {empty}:1: no field 'text'; pass "
            r"field=NAME \(the line has: title, body\)",
        ),
    ):
        empty.write_text(content)
        with pytest.raises(UserError, match=message):
            write_corpus([empty], tokenizer, tmp_path / "corpus")
    archive = tmp_path / "requests.warc"
    archive.write_text("WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 3\r\n\r\nGET\r\n\r\n")
    with pytest.raises(UserError, match=r"no text to train on; records that are no text .*record of type request: 1"):
        write_corpus([archive], tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match="the held-out files contain no text; 1 document was skipped"):
        write_corpus([source], tokenizer, tmp_path / "corpus", heldout=[empty])
    assert not list(tmp_path.glob("corpus*"))


def test_paths_are_checked_before_anything_is_read(source, tmp_path, tokenizer, monkeypatch):
    for paths, heldout, message in (
        ([source, tmp_path / "x" / ".." / source.name], [], "is given twice"),
        ([source], [source], "is given twice"),
        (["-", "-"], [], "standard input: is given twice"),
        ([source, tmp_path / "missing"], [], "missing: does not exist"),
        ([tmp_path], [], "is a directory"),
    ):
        with pytest.raises(UserError, match=message):
            write_corpus(paths, tokenizer, tmp_path / "corpus", heldout=heldout)
    monkeypatch.chdir(tmp_path)
    for out in (source, tmp_path, "."):
        with pytest.raises(UserError, match=f"^{re.escape(str(out))}: exists and is not empty"):
            write_corpus([source], tokenizer, out)
    (tmp_path / "corpus").mkdir()
    assert len(write_corpus([source], tokenizer, tmp_path / "corpus").train) > 200


@pytest.mark.parametrize(
    ("between", "documents", "copies", "hinted"),
    [
        ("\n", "auto", 300, True),
        ("\n", "auto", 10, False),
        ("\n\n", "auto", 300, False),
        ("\n", "line", 300, False),
        ("\n", "file", 300, False),
    ],
)
def test_a_file_without_blank_lines_is_noticed(between, documents, copies, hinted, tmp_path, tokenizer):
    lines, reported = between.join(f"the cat sat on a mat {number}" for number in range(copies)), []
    (tmp_path / "a.txt").write_text(lines)
    options = TextOptions(documents=documents)
    write_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus", options=options, report=reported.append)
    hints = [rendered(line, in_command) for line in reported if "has no blank line, so it is one document of" in line]
    assert len(hints) == hinted
    assert all(hint.endswith("if each of its lines is a document, pass --documents line") for hint in hints)
