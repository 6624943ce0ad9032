"""What does a corpus from a web crawl cost: a second of one core, and 160 GB of text on 1, 16 and 1,000 cores?

English Wikipedia and news as JSON Lines, and crawl samples (of the Archives Unleashed Toolkit and of Common Crawl, in
the shared data) in a WARC file; BERT's uncased vocabulary. Measured in CPU seconds (user and system) of one process,
the least of several rounds: dividing, cleaning by `--clean web`, finding duplicates among all, encoding, and merging
(of many corpora; what it takes for one is subtracted). Tasks divide, clean and encode, on all cores; duplicates among
all and merging have one.

The cost of more text is a calculation from these rates, for text that is divided into tasks of equal size on cores like
this one, and without waiting for disks and networks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common import SHARED, add, parse
from corpus import TOKENIZER, write_text

import unmask
from unmask.data.cleaning.clean import clean_file, file_cleanings, join_files, read_cleaned
from unmask.data.cleaning.rules import read_rules
from unmask.data.corpus.build import write_portion
from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.manifest import SkippedEntry
from unmask.data.corpus.mix import merge_corpora
from unmask.data.text.dividing import form_of, scan
from unmask.data.text.documents import TextOptions

TEXT = 160e9
"""Bytes of text, the amount of RoBERTa (Liu et al. 2019, section 3.2)."""
CORES = (1, 16, 1000)
COPIES = 40
OPTIONS = TextOptions(documents="line")
SAMPLES = ("crawl/aut_example.warc.gz", "crawl/whirlwind/whirlwind.warc.gz")
STAGES = {
    "no": (("divide", "encode"), ("merge",)),
    "web": (("divide", "clean", "encode what was cleaned"), ("join", "merge")),
}
"""Without cleaning and with it, the stages that tasks divide, and those that one core has."""


def seconds(function: Callable[[], Any], rounds: int) -> float:
    """Return the CPU seconds that a function takes, the least of several rounds."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        function()
        taken.append(time.process_time() - before)
    return min(taken)


def measure(source: Path, tokenizer: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Return for each stage the bytes of text, the CPU seconds, and MB/s of the file and of its text."""
    words, size = unmask.load_tokenizer(tokenizer), source.stat().st_size
    form, rules = form_of(source, OPTIONS, "line"), read_rules(["web"], [])
    stages = {"divide": seconds(lambda: scan(source, form, 0, size), rounds)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cleaned = folder / "cleaned"
        (task,) = file_cleanings([source], OPTIONS, rules, cleaned)

        def clean() -> None:
            (cleaned / "00000.json").unlink(missing_ok=True)
            clean_file(task)

        def join() -> Any:
            return join_files([clean_file(task)], rules, cleaned, lambda line: None)

        def encode(copy: Any = None) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                write_portion([source], words, Path(out) / "corpus", options=OPTIONS, copy=copy)

        def merge(count: int) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                corpora, skipped = [open_corpus(folder / "corpus")] * count, SkippedEntry(0, [])
                merge_corpora(corpora, Path(out) / "merged", skipped=skipped, cleaning=b"", check=lambda _: None)

        stages["clean"] = seconds(clean, rounds)
        text = clean_file(task).tally.bytes
        stages["join"] = seconds(join, rounds)
        join().save()
        stages["encode"] = seconds(encode, rounds)
        stages["encode what was cleaned"] = seconds(lambda: encode(read_cleaned(cleaned, range(1))), rounds)
        write_portion([source], words, folder / "corpus", options=OPTIONS)
        many, one = (seconds(lambda count=count: merge(count), rounds) for count in (1 + COPIES, 1))  # type: ignore[misc]
        stages["merge"] = max(0.0, many - one) / COPIES
    rates = {
        stage: {"stored_rate": size / 1e6 / max(taken, 1e-9), "rate": text / 1e6 / max(taken, 1e-9)}
        for stage, taken in stages.items()
    }
    return {stage: {"text": text, "seconds": taken, **rates[stage]} for stage, taken in stages.items()}


def costs(stages: Mapping[str, dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield a key and a record of the cost of `TEXT` bytes of text, from the seconds of all stages."""
    for clean, parts in STAGES.items():
        divided, serial = (
            sum(stages[stage]["seconds"] / stages[stage]["text"] for stage in some) * TEXT / 3600 for some in parts
        )
        for cores in CORES:
            hours = {"hours": divided / cores + serial, "serial_hours": serial, "core_hours": divided + serial}
            yield {"clean": clean, "cores": cores}, hours


def main() -> None:
    """Measure, and calculate."""
    options = parse(__doc__, megabytes=20.0, rounds=3)
    with tempfile.TemporaryDirectory() as folder:
        sources = {"text": Path(folder) / "text.jsonl", "crawl": Path(folder) / "crawl.warc.gz"}
        write_text(sources["text"], options.megabytes)
        sources["crawl"].write_bytes(b"".join((SHARED / sample).read_bytes() for sample in SAMPLES))
        for kind, source in sources.items():
            stages = measure(source, TOKENIZER, options.rounds)
            for stage, record in stages.items():
                add("crawl", {"measured": "stage", "source": kind, "stage": stage}, record)
            for key, record in costs(stages):
                add("crawl", {"measured": "cost", "source": kind, **key}, record)


if __name__ == "__main__":
    main()
