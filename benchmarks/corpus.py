"""What does it cost to build a corpus, and to start on a large one?

English Wikipedia and news, repeated where more text is asked for, and BERT's uncased vocabulary. Measured, each in a
process of its own: MB/s of text (UTF-8) with one and two workers; the peak memory of building and of reading all
samples, with a text and with one ten times as long; and the time to open the larger corpus, its shards linked as often
as 160 GB of text would have them, and to cut its first samples.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import msgspec
from common import SHARED, add, apart, parse

import unmask
from unmask.data.text.documents import Skipped, TextOptions, read_documents

TOKENIZER = SHARED.parent / "vocabularies/bert-base-uncased"
SHARDS = 2_500  # of 160 GB: 40 G tokens
TIMES = 10
TURNS = 3
# torch is imported where it is needed only, as workers would hold it in memory.


def peak(process: int | str = "self") -> float:
    """Return the most memory that a process has held so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text(encoding="utf8"))
    assert found is not None, "Linux tells it"
    return int(found[1]) / 1024


def build(text: Path, tokenizer: Path, out: Path, workers: int) -> dict[str, float]:
    """Build a corpus; return seconds and the peak memory of the process and of its largest worker."""
    peaks, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for child in multiprocessing.active_children():
                with contextlib.suppress(OSError, AssertionError):  # it has just ended
                    peaks.append(peak(child.pid or 0))

    words = unmask.load_tokenizer(tokenizer)
    threading.Thread(target=watch, daemon=True).start()
    start = time.perf_counter()
    corpus = unmask.build_corpus([text], words, out, workers=workers)
    seconds = time.perf_counter() - start
    ended.set()
    tokens = corpus.train.num_tokens + corpus.heldout.num_tokens
    return {"seconds": seconds, "tokens": tokens, "memory": peak(), "worker_memory": max(peaks)}


def read_samples(directory: Path, everything: bool) -> dict[str, float]:
    """Open a corpus and cut its first samples, or all; return the seconds of both and the peak memory."""
    from unmask.data.batches.frame import Frame
    from unmask.data.batches.sentence_pairs import SentencePairsSettings

    start = time.perf_counter()
    corpus = unmask.open_corpus(directory)
    opened = time.perf_counter()
    words = corpus.tokenizer
    source = SentencePairsSettings(length=128).source(corpus.train, Frame(words.cls, words.sep), seed=0)
    samples, cursor = source.take(source.start, sequences=32)
    list(samples)  # reads their text
    cut = time.perf_counter()
    while everything and cursor[0] == 0:
        samples, cursor = source.take(cursor, sequences=32)
        list(samples)
    return {"open_seconds": opened - start, "first_samples_seconds": cut - opened, "memory": peak()}


def write_text(path: Path, megabytes: float) -> float:
    """Write real documents as JSON Lines, from the start again where they do not suffice; return the MB of text."""
    files, size = sorted((SHARED / "text").glob("wiki[pn]*/train*.jsonl.xz")), 0
    with path.open("wb") as stream:
        while True:
            for document in read_documents(files, TextOptions(), Skipped()):
                size += stream.write(msgspec.json.encode({"text": document}) + b"\n") - len(b'{"text":""}\n')
                if size >= 1e6 * megabytes:
                    return size / 1e6


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


def compare(folder: Path, megabytes: float, tokenizer: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Measure everything, speed in alternating runs, and yield a key and a record for each figure."""
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    sizes = [write_text(small, megabytes), write_text(large, TIMES * megabytes)]
    for turn in range(TURNS):
        for workers in (1, 2):
            seconds = apart(build, small, tokenizer, folder / f"speed-{turn}-{workers}", workers)["seconds"]
            key: dict[str, Any] = {"measured": "speed", "workers": workers, "sentences": "yes", "round": turn}
            yield key, {"seconds": seconds, "megabytes_per_second": sizes[0] / seconds}
    for text, size in zip((small, large), sizes, strict=True):
        out = folder / f"corpus-{text.stem}"
        built = apart(build, text, tokenizer, out, 2)
        yield {"measured": "memory", "megabytes": size}, {"building": built, "reading": apart(read_samples, out, True)}
    link_shards(folder / "corpus-large", folder / "linked", SHARDS)
    yield {"measured": "start", "shards": SHARDS}, apart(read_samples, folder / "linked", False)


def main() -> None:
    """Measure, and write the result anew."""
    options = parse(__doc__, megabytes=100.0)
    (common.RESULTS / "corpus.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for key, record in compare(Path(folder), options.megabytes, TOKENIZER):
            add("corpus", key, record)


if __name__ == "__main__":
    main()
