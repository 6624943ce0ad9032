"""What does it cost to build a corpus, and to start on a large one?

English Wikipedia and news, repeated where more text is asked for, and BERT's uncased vocabulary. Measured, each in a
process of its own: MB/s of text (UTF-8) with one and two workers, with sentences and with each document as one sentence
(no command does that: it shows what the segmenter costs); the peak memory of building and of reading all samples, with
a text and with one ten times as long; and the time to open the larger corpus, its shards linked as often as 160 GB of
text would have them, and to cut its first samples.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import unmask
from unmask.data.corpus import encode
from unmask.data.text.documents import Skipped, TextOptions, read_documents

SHARDS = 2_500  # of 160 GB: 40 G tokens
TIMES = 10

# torch is imported where it is needed only: workers import this file too, with its arguments.
if "--unsegmented" in sys.argv:
    encode.cut_sentences = lambda text: [(text.replace("\n\n", " "), False)]  # type: ignore[attr-defined]


def peak(process: int | str = "self") -> float:
    """Return the most memory that a process has held so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text(encoding="utf8"))
    assert found is not None, "Linux tells it"
    return int(found[1]) / 1024


def build(text: Path, tokenizer: Path, out: Path, workers: int) -> dict[str, float]:
    """Build a corpus; return seconds and the peak memory of the process and of its largest worker."""
    peaks = [0.0]

    def watch() -> None:
        while True:
            for child in multiprocessing.active_children():
                with contextlib.suppress(OSError, AssertionError):  # it has just ended
                    peaks.append(peak(child.pid or 0))
            time.sleep(0.2)

    words = unmask.load_tokenizer(tokenizer)
    threading.Thread(target=watch, daemon=True).start()
    start = time.perf_counter()
    corpus = unmask.build_corpus([text], words, out, workers=workers)
    seconds = time.perf_counter() - start
    tokens = corpus.train.num_tokens + corpus.heldout.num_tokens
    return {"seconds": seconds, "tokens": tokens, "memory": peak(), "worker_memory": max(peaks)}


def read_samples(directory: Path, everything: bool) -> dict[str, float]:
    """Open a corpus and cut its first samples, or all; return the seconds of both and the peak memory."""
    from unmask.data.batches.frame import Frame
    from unmask.data.batches.sentence_pairs import SentencePairsSettings
    from unmask.data.batches.sources import CorpusSource

    start = time.perf_counter()
    corpus = unmask.open_corpus(directory)
    opened = time.perf_counter()
    words = corpus.tokenizer
    source = CorpusSource(corpus.train, SentencePairsSettings(length=128), Frame(words.cls, words.sep), seed=0)
    _, cursor = source.take(source.start, sequences=32)
    cut = time.perf_counter()
    while everything and cursor[0] == 0:
        _, cursor = source.take(cursor, sequences=32)
    return {"open_seconds": opened - start, "first_samples_seconds": cut - opened, "memory": peak()}


def write_text(path: Path, megabytes: float) -> float:
    """Write real documents as JSON Lines, from the start again where they do not suffice; return the MB of text."""
    from common import SHARED

    files = sorted((SHARED / "text").glob("wiki[pn]*/train*.jsonl.xz"))

    def documents() -> Iterator[str]:
        while True:
            yield from read_documents(files, TextOptions(), Skipped())

    size = 0
    with path.open("wb") as stream:
        for document in documents():
            size += stream.write(msgspec.json.encode({"text": document}) + b"\n") - len(b'{"text":""}\n')
            if size >= 1e6 * megabytes:
                return size / 1e6
    raise AssertionError


def link_shards(corpus: Path, out: Path, count: int) -> None:
    """Make a corpus that has the first shard of another one `count` times, all of them the same files."""
    manifest = json.loads((corpus / "manifest.json").read_bytes())
    first = manifest["train"]["shards"][0]
    out.mkdir()
    shards = []
    for number in range(count):
        name = f"train-{number:05d}"
        files = {file.replace(first["name"], name): entry for file, entry in first["files"].items()}
        for old, new in zip(first["files"], files, strict=True):
            (out / new).hardlink_to(corpus / old)
        shards.append({**first, "name": name, "files": files})
    counts = {key: count * first[key] for key in ("documents", "sentences", "tokens")}
    empty = {"documents": 0, "sentences": 0, "tokens": 0, "shards": []}
    manifest |= {"train": {**counts, "shards": shards}, "heldout": empty}
    (out / "manifest.json").write_text(json.dumps(manifest), encoding="utf8")
    (out / "tokenizer").symlink_to(corpus / "tokenizer")


def call(*arguments: object) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "measure", *map(str, arguments)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


def compare(folder: Path, megabytes: float, tokenizer: Path, turns: int) -> Iterator[dict[str, Any]]:
    """Measure everything, speed in alternating runs, and yield a record for each figure."""
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    sizes = [write_text(small, megabytes), write_text(large, TIMES * megabytes)]
    cases = [(workers, switch) for workers in (1, 2) for switch in ("", "--unsegmented")]
    seconds: dict[tuple[int, str], list[float]] = {case: [] for case in cases}
    for turn in range(turns):
        for case in cases:
            out = folder / f"speed-{turn}-{cases.index(case)}"
            seconds[case].append(call("build", small, tokenizer, out, *filter(None, case))["seconds"])
    for workers, switch in cases:
        for turn, spent in enumerate(seconds[workers, switch]):
            yield {
                "measured": "speed",
                "workers": workers,
                "sentences": "no" if switch else "yes",
                "round": turn,
                "seconds": spent,
                "megabytes_per_second": sizes[0] / spent,
            }
    for text, size in zip((small, large), sizes, strict=True):
        out = folder / f"corpus-{text.stem}"
        building = call("build", text, tokenizer, out, 2)
        yield {"measured": "memory", "megabytes": size, "building": building, "reading": call("read", out, "all")}
    link_shards(folder / "corpus-large", folder / "linked", SHARDS)
    yield {"measured": "start", "shards": SHARDS, **call("read", folder / "linked", "first")}


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    if sys.argv[1:2] == ["measure"]:
        what, *rest = (word for word in sys.argv[2:] if not word.startswith("--"))
        if what == "build":  # the last argument is the number of workers
            print(json.dumps(build(Path(rest[0]), Path(rest[1]), Path(rest[2]), int(rest[3]))))
        else:
            print(json.dumps(read_samples(Path(rest[0]), everything=rest[1] == "all")))
        return
    from common import RESULTS, SHARED, add

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0, help="text; the larger one is ten times as long")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokenizer", type=Path, default=SHARED.parent / "vocabularies/bert-base-uncased")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (RESULTS / "corpus.json").unlink(missing_ok=True)
        for record in compare(Path(folder), options.megabytes, options.tokenizer, options.turns):
            add("corpus", record)


if __name__ == "__main__":
    main()
