"""A corpus of large files that tasks divide has the documents of the files, in their order, whatever ends the tasks."""

import gzip
import json
import random
import shutil

import pytest

from unmask.data.corpus.corpus import open_corpus
from unmask.support.errors import UnmaskError
from unmask.workflows.corpora import building, tasks
from unmask.workflows.corpora.build import build_corpus

from ...killing import count_changes, kill

RULES = ["duplicates", "gopher_repetition"]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(building, "TASK_BYTES", 3000)
    monkeypatch.setattr(building, "SHARD_TOKENS", 400)
    monkeypatch.setattr(tasks, "PAUSE", 0.02)


def warc(texts):
    """Return a WARC file of texts, in which the third record is an archive, and the length of the last one is wrong."""
    inner = gzip.compress(record(random.Random(1).randbytes(2500).hex().encode()), mtime=0)
    members = [gzip.compress(record(text.encode(), number), mtime=0) for number, text in enumerate(texts)]
    members.append(gzip.compress(record(b"Story").replace(b"Length: 5", b"Length: 50"), mtime=0))
    members.insert(2, gzip.compress(record(inner * 2, kind="resource"), 0, mtime=0))
    return b"".join(members)


def record(block, number=0, kind="conversion"):
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://a.org/{number}\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"


def lines(texts):
    return (
        "".join(json.dumps({"text": text, "url": "http://a.org/"}) + "\n" for text in [*texts, *texts[:5]]).encode()
        + b"broken\n"
    )


@pytest.fixture(params=["a.jsonl", "a.warc.gz"])
def file(request, documents, tmp_path):
    path = tmp_path / request.param
    path.write_bytes((lines if request.param == "a.jsonl" else warc)(documents[:120]))
    return path


def build(files, tokenizer, out, **options):
    """Build a corpus; return the content of its files."""
    directory = build_corpus(files, tokenizer, out, **{"workers": 1, "quiet": True, **options}).directory
    assert not list(out.parent.glob(f"{out.name}.*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def sequence(directory, part="train"):
    """Return the tokens of the documents of a part, in their order."""
    documents = getattr(open_corpus(directory), part)
    return [[ids.tolist() for ids in documents.sentences(index)] for index in range(len(documents))]


@pytest.mark.parametrize("clean", [(), RULES])
def test_a_divided_file_gives_its_documents_in_their_order(file, tokenizer, tmp_path, monkeypatch, clean, capsys):
    heldout = tmp_path / "held.txt"
    heldout.write_text("One story.\n\nAnother story.")
    build(file, tokenizer, tmp_path / "tasks", clean=clean, heldout=heldout)
    said = capsys.readouterr().out
    monkeypatch.setattr(building, "TASK_BYTES", 1e9)
    build(file, tokenizer, tmp_path / "one", clean=clean, heldout=heldout)
    assert sequence(tmp_path / "tasks") == sequence(tmp_path / "one")
    divided, one = open_corpus(tmp_path / "tasks"), open_corpus(tmp_path / "one")
    divided.verify()
    assert len(divided.manifest.train.shards) > 1
    assert (divided.manifest.skipped, divided.manifest.sources) == (one.manifest.skipped, one.manifest.sources)
    if clean:
        cleaning = [(tmp_path / name / "cleaning.json").read_bytes() for name in ("tasks", "one")]
        assert cleaning[0] == cleaning[1]
    assert said == "" and capsys.readouterr().out == ""


@pytest.mark.parametrize("file", ["a.jsonl", pytest.param("a.warc.gz", marks=pytest.mark.exhaustive)], indirect=True)
def test_any_number_of_processes_gives_the_same_bytes(file, tokenizer_directory, tmp_path):
    alone = build(file, tokenizer_directory, tmp_path / "alone", clean=RULES)
    assert build(file, tokenizer_directory, tmp_path / "three", clean=RULES, workers=3) == alone
    assert build(file, tokenizer_directory, tmp_path / "host", clean=RULES, engine="hosts") == alone


def test_what_is_told_is_what_one_process_tells(file, tokenizer, tmp_path, monkeypatch, capsys):
    def tell(out):
        build(file, tokenizer, out, quiet=False)
        told = capsys.readouterr().err.splitlines()
        first = next(number for number, line in enumerate(told) if line.startswith("train: "))
        return sorted(told[first:-1])  # the last one names the directory

    many = tell(tmp_path / "tasks")
    monkeypatch.setattr(building, "TASK_BYTES", 1e9)
    assert many == tell(tmp_path / "one")
    assert any(f"{file}:{122 if file.suffix == '.gz' else 126}: " in line for line in many)


@pytest.mark.parametrize("file", [pytest.param("a.jsonl", marks=pytest.mark.exhaustive), "a.warc.gz"], indirect=True)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that a killed call had open
def test_D19_a_division_that_is_killed_at_any_moment_is_continued(file, tokenizer, tmp_path, request):
    out = tmp_path / "out"
    whole = build(file, tokenizer, tmp_path / "whole")

    def call():
        build(file, tokenizer, out)

    moments = range(count_changes(tmp_path, call))
    for moment in moments if request.config.getoption("--exhaustive") else random.Random(1).sample(moments, 3):
        shutil.rmtree(out, ignore_errors=True)
        kill(tmp_path, call, moment)
        if not out.exists():
            assert build(file, tokenizer, out) == whole
        assert {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()} == whole
        for rest in (*tmp_path.glob("out.*"), *tmp_path.glob(".out.*")):
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()


def test_a_file_that_changes_before_a_build_is_continued_is_divided_anew(tokenizer, documents, tmp_path, monkeypatch):
    file, real = tmp_path / "a.jsonl", building.merge_corpora

    def end(*_, **__):
        raise KeyboardInterrupt

    for change in ("river and mouse", "mouse", "a" * 5000):
        file.write_bytes(lines(documents[:100]))
        monkeypatch.setattr(building, "merge_corpora", end)
        with pytest.raises(KeyboardInterrupt):
            build(file, tokenizer, tmp_path / "out")
        monkeypatch.setattr(building, "merge_corpora", real)
        file.write_bytes(file.read_bytes().replace(b"river", change.encode(), 1))
        continued = build(file, tokenizer, tmp_path / "out")
        assert continued == build(file, tokenizer, tmp_path / "new")
        shutil.rmtree(tmp_path / "new")
        shutil.rmtree(tmp_path / "out")


def test_a_line_that_is_refused_is_named_as_in_the_whole_file(tokenizer, documents, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines(documents[:100]) + lines(documents[100:105]))
    with pytest.raises(UnmaskError, match=r"encode \d+: .*a.jsonl:106: broken JSON"):
        build(file, tokenizer, tmp_path / "out", strict=True)


@pytest.mark.parametrize("file", [pytest.param("a.jsonl", marks=pytest.mark.exhaustive), "a.warc.gz"], indirect=True)
def test_files_at_urls_are_divided(store, file, tokenizer, tmp_path):
    store.put(file.parent)
    there = build(f"{store.url}/{file.name}?sig=SECRET", tokenizer, tmp_path / "there", workers=2)
    here = build(file, tokenizer, tmp_path / "here")
    assert len(open_corpus(tmp_path / "there").manifest.train.shards) > 1
    for name in here.keys() - {"manifest.json"}:
        assert there[name] == here[name]
