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
from unmask.corpus import build, encode
from unmask.tokenizers.load import load_tokenizer

workers, hoard = int(sys.argv[4]), []
encode._CHUNK = 10_000
if len(sys.argv) > 5:
    add = build.PartialCorpus.add
    build.PartialCorpus.add = lambda self, document, ids: hoard.append(ids) or add(self, document, ids)
peaks = [0]


def report(line):
    peaks.extend(peak(child.pid) for child in multiprocessing.active_children())


if __name__ == "__main__":
    tokenizer = load_tokenizer(sys.argv[2])
    build.build_corpus(
        [sys.argv[1]], tokenizer, sys.argv[3], shard_tokens=20_000, workers=workers, report=report
    )
    print(peak(), max(peaks))
"""
READ = """
from unmask.batches import sources
from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.frame import Frame
from unmask.corpus.corpus import open_corpus

sources.BLOCK_TOKENS, hoard = 10_000, []
documents = open_corpus(sys.argv[1]).train
source = sources.CorpusSource(documents, DocumentSentencesSettings(length=64), Frame(2, 3), seed=0)
cursor = source.start
while cursor[0] == 0:
    samples, cursor = source.take(cursor, sequences=32)
    if len(sys.argv) > 2:
        hoard += [sample.key for sample in samples]
print(peak())
"""


def run(program, *arguments):
    command = [sys.executable, "-c", PEAK + program, *map(str, arguments)]
    return [int(word) for word in subprocess.run(command, check=True, capture_output=True).stdout.split()]


@pytest.fixture(scope="module")
def texts(tokenizer, make_documents, tmp_path_factory):
    """Two texts: one of a quarter of a megabyte, and one that is ten times as long."""
    folder = tmp_path_factory.mktemp("texts")
    tokenizer.save(folder / "tokenizer")
    documents = make_documents(1000)
    paths = [folder / f"{times}.txt" for times in (4, 40)]
    for path, times in zip(paths, (4, 40), strict=True):
        with path.open("w") as stream:
            for turn in range(times):
                stream.writelines(f"{turn} {text}\n\n" for text in documents)
    return paths


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "fault"), [(1, False), (2, False), (1, True)])
def test_D7_memory_does_not_grow_in_building(texts, tmp_path, workers, fault):
    peaks = [
        run(BUILD, path, path.parent / "tokenizer", tmp_path / path.stem, workers, *["hoard"] * fault) for path in texts
    ]
    growth = max(after - before for before, after in zip(*peaks, strict=True))
    assert (growth > GROWTH) == fault, peaks


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_D7_memory_does_not_grow_in_reading(texts, tmp_path, fault):
    for path in texts:
        run(BUILD, path, path.parent / "tokenizer", tmp_path / path.stem, 1)
    (before,), (after,) = (run(READ, tmp_path / path.stem, *["hoard"] * fault) for path in texts)
    assert (after - before > GROWTH) == fault, (before, after)
