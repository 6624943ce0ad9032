"""What does a corpus from a web crawl cost: a second of one core, and 160 GB of text on 1, 16 and 1,000 cores?

English Wikipedia and news as JSON Lines, and crawl samples (of the Archives Unleashed Toolkit and of Common Crawl, in
the shared data) in a WARC file; BERT's uncased vocabulary. Measured in CPU seconds (user and system) of one process,
the least of several rounds: dividing, cleaning by `--clean web`, finding duplicates among all, encoding, and merging
(of many corpora; what it takes for one is subtracted). Tasks divide, clean and encode, on all cores; duplicates among
all and merging have one.

The cost of more text is a calculation from these rates, for text that is divided into tasks of equal size on cores like
this one, and without waiting for disks or networks.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corpus import write_text

import unmask
from unmask.data.cleaning.clean import clean_file, file_cleanings, join_files, read_cleaned
from unmask.data.cleaning.rules import read_rules
from unmask.data.corpus.build import write_portion
from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.manifest import SkippedEntry
from unmask.data.corpus.merge import merge_corpora
from unmask.data.text.dividing import form_of, scan
from unmask.data.text.documents import TextOptions

TEXT = 160e9
"""Bytes of text, the amount of RoBERTa (Liu et al. 2019, section 3.2)."""
CORES = (1, 16, 1000)
COPIES = 40
OPTIONS = TextOptions(documents="line")


def seconds(function: Callable[[], Any], rounds: int) -> float:
    """Return the CPU seconds that a function takes, the least of several rounds."""
    taken = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_SELF)
        function()
        after = resource.getrusage(resource.RUSAGE_SELF)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def write_crawl(path: Path, shared: Path) -> None:
    """Write the records of crawl samples."""
    samples = [shared / "crawl/aut_example.warc.gz", shared / "crawl/whirlwind/whirlwind.warc.gz"]
    path.write_bytes(b"".join(sample.read_bytes() for sample in samples))


def measure(source: Path, kind: str, tokenizer: Path, rounds: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield a key and a record of each stage: bytes that it handles of the file and of its text, and CPU seconds."""
    words, size = unmask.load_tokenizer(tokenizer), source.stat().st_size
    form = form_of(source, OPTIONS, "line")
    stages: dict[str, float] = {"divide": seconds(lambda: scan(source, form, 0, size), rounds)}
    rules = read_rules(["web"], [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (task,) = file_cleanings([source], OPTIONS, rules, folder / "cleaned")

        def clean() -> None:
            (folder / "cleaned/00000.json").unlink(missing_ok=True)
            clean_file(task)

        stages["clean"] = seconds(clean, rounds)
        done = clean_file(task)
        text = done.tally.bytes
        report: Callable[[str], None] = lambda line: None  # noqa: E731
        stages["join"] = seconds(lambda: join_files([clean_file(task)], rules, folder / "cleaned", report), rounds)
        join_files([clean_file(task)], rules, folder / "cleaned", report).save()
        for stage, copy in (("encode", None), ("encode what was cleaned", read_cleaned(folder / "cleaned", range(1)))):

            def encode(stage: str = stage, copy: Any = copy) -> None:
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    write_portion([source], words, Path(out) / "corpus", options=OPTIONS, copy=copy)

            stages[stage] = seconds(encode, rounds)
        write_portion([source], words, folder / "corpus", options=OPTIONS)

        def merge(count: int) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                corpora, skipped = [open_corpus(folder / "corpus")] * count, SkippedEntry(0, [])
                merge_corpora(corpora, Path(out) / "merged", skipped=skipped, cleaning=b"", check=lambda _: None)

        many, one = seconds(lambda: merge(1 + COPIES), rounds), seconds(lambda: merge(1), rounds)
        stages["merge"] = max(0.0, many - one) / COPIES
    for stage, value in stages.items():
        key = {"measured": "stage", "source": kind, "stage": stage}
        yield (
            key,
            {
                "text": text,
                "seconds": value,
                "stored_rate": size / max(value, 1e-9) / 1e6,
                "rate": text / max(value, 1e-9) / 1e6,
            },
        )


def costs(stages: dict[tuple[str, str], dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield a key and a record of the cost of `TEXT` bytes of text, from the seconds of all stages."""
    for kind in sorted({kind for kind, _ in stages}):
        for clean in ("no", "web"):
            shared = ("divide", "encode") if clean == "no" else ("divide", "clean", "encode what was cleaned")
            alone = ("merge",) if clean == "no" else ("join", "merge")
            divided, serial = (
                sum(stages[kind, stage]["seconds"] / stages[kind, stage]["text"] for stage in some) * TEXT / 3600
                for some in (shared, alone)
            )
            for cores in CORES:
                hours = divided / cores + serial
                key = {"measured": "cost", "source": kind, "clean": clean, "cores": cores}
                yield key, {"hours": hours, "serial_hours": serial, "core_hours": divided + serial}


def main() -> None:
    """Measure, and write the result anew."""
    from common import RESULTS, SHARED, add, parse

    options = parse(__doc__, megabytes=20.0, rounds=3)
    (RESULTS / "crawl.json").unlink(missing_ok=True)
    tokenizer = SHARED.parent / "vocabularies/bert-base-uncased"
    stages = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = {"text": Path(folder) / "text.jsonl", "crawl": Path(folder) / "crawl.warc.gz"}
        write_text(sources["text"], options.megabytes)
        write_crawl(sources["crawl"], SHARED)
        for kind, source in sources.items():
            for key, record in measure(source, kind, tokenizer, options.rounds):
                stages[key["source"], key["stage"]] = record
                add("crawl", key, record)
    for key, record in costs(stages):
        add("crawl", key, record)


if __name__ == "__main__":
    main()
