"""Tests that memory does not grow with the text: in building, in the workers, and in reading."""

import subprocess
import sys

import pytest

GROWTH = 2_500  # kB; the data hoarded below takes more than twice as much

PEAK = """
import multiprocessing, re, sys
from pathlib import Path


def peak(process="self"):
    status = Path(f"/proc/{process}/status").read_text()  # getrusage includes the parent's peak
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])


"""
BUILD = """
from unmask.data.corpus import build, encode
from unmask.data.tokenizers.load import load_tokenizer

workers, hoard = int(sys.argv[3]), []
encode._CHUNK = 10_000
if len(sys.argv) > 4:
    add = build.PartialCorpus.add
    build.PartialCorpus.add = lambda self, document, ids: hoard.append(ids) or add(self, document, ids)
peaks = [0]


def report(line):
    peaks.extend(peak(child.pid) for child in multiprocessing.active_children())


if __name__ == "__main__":
    folder, out = map(Path, sys.argv[1:3])
    tokenizer = load_tokenizer(folder / "tokenizer")
    for name in ("short", "long"):
        text = [folder / f"{name}.txt"]
        build.write_corpus(text, tokenizer, out / name, shard_tokens=20_000, workers=workers, report=report)
        print(peak(), max(peaks))
"""
READ = """
from unmask.data.batches import sources
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.frame import Frame
from unmask.data.corpus.corpus import open_corpus

sources.BLOCK_TOKENS, hoard = 10_000, []
for name in ("short", "long"):
    documents = open_corpus(Path(sys.argv[1], name)).train
    source = DocumentSentencesSettings(length=64).source(documents, Frame(2, 3), seed=0)
    cursor = source.start
    while cursor[0] == 0:
        samples, cursor = source.take(cursor, sequences=32)
        keys = [sample.key for sample in samples]
        if len(sys.argv) > 2:
            hoard += keys
    print(peak())
"""


def run(program, *arguments):
    """Run a program that reads a short text, then a long one; return the growth of its peaks of memory between them."""
    command = [sys.executable, "-c", PEAK + program, *map(str, arguments)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    short, long = ([int(word) for word in line.split()] for line in lines)
    return max(after - before for before, after in zip(short, long, strict=True))


@pytest.fixture(scope="module")
def texts(tokenizer, make_documents, tmp_path_factory):
    """The folder of two texts: one of a quarter of a megabyte, and one that is ten times as long."""
    folder = tmp_path_factory.mktemp("texts")
    tokenizer.save(folder / "tokenizer")
    documents = make_documents(1000)
    for name, times in (("short", 4), ("long", 40)):
        with (folder / f"{name}.txt").open("w") as stream:
            for turn in range(times):
                stream.writelines(f"{turn} {text}\n\n" for text in documents)
    return folder


@pytest.fixture(scope="module")
def built(texts, tmp_path_factory):
    """The folder of the corpora built from them, and the growth of memory in building."""
    out = tmp_path_factory.mktemp("built")
    return out, run(BUILD, texts, out, 1)


@pytest.mark.slow
def test_D7_memory_does_not_grow_in_building(built):
    assert built[1] <= GROWTH


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "fault"), [(2, False), pytest.param(1, True, marks=pytest.mark.exhaustive)])
def test_D7_memory_does_not_grow_in_workers_unless_text_is_kept(texts, tmp_path, workers, fault):
    growth = run(BUILD, texts, tmp_path, workers, *["hoard"] * fault)
    assert (growth > GROWTH) == fault, growth


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_D7_memory_does_not_grow_in_reading(built, fault):
    growth = run(READ, built[0], *["hoard"] * fault)
    assert (growth > GROWTH) == fault, growth
