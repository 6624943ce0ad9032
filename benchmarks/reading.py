"""What does it cost to read labeled examples, to hold out a tenth, and to compare both parts? MB/s of CPU time.

Input: sentences of Wikinews as rows of a tab-separated file, each with one of three labels. The steps are those of
every fine-tuning run: reading, folding, a stratified tenth without equal texts on both sides, the search for damaged
texts, and the search for equal and nearly equal examples. For a million rows the sentences are repeated with a number
in front, so that no two rows are equal. The fastest of several rounds counts.
"""

from __future__ import annotations

import json
import lzma
import tempfile
import time
from collections.abc import Iterator
from itertools import compress, count, islice, pairwise
from pathlib import Path
from typing import Any

from common import SHARED, add, parse

from unmask.data.labelled.duplicates import MOST_SEARCHED, overlap
from unmask.data.text.sentences import split_sentences
from unmask.tasks.classification import Classification
from unmask.tasks.holding_out import parted
from unmask.tasks.unlabelled import describe_damaged

ROWS = 1_000_000
LABELS = ("one", "two", "three")
STEPS = ("read", "fold", "hold out", "look for damage", "compare")


def sentences() -> Iterator[str]:
    """Yield the sentences of Wikinews, again and again."""
    with lzma.open(SHARED / "text" / "wikinews" / "train.jsonl.xz", "rt", encoding="utf8") as file:
        texts = [json.loads(line)["text"] for line in islice(file, 4_000)]
    every = [" ".join(sentence.split()) for text in texts for sentence in split_sentences(text)]
    for turn in count():
        yield from (f"{turn} {sentence}" if turn else sentence for sentence in every if sentence)


def measure(path: Path) -> dict[str, float]:
    """Return the seconds of CPU time of each step."""
    task, marks = Classification(), [time.process_time()]

    def passed(value: Any) -> Any:
        marks.append(time.process_time())
        return value

    rows = passed(task.read([path], columns={}, notes=[]))
    identities = passed(task.identities(rows))
    held = task.choose_held(rows, identities, 0)
    passed(parted(rows, held))
    passed(describe_damaged(compress(rows, (~identities.is_ascii).tolist()), task.texts))
    passed(overlap(identities.select(~held), identities.select(held), MOST_SEARCHED))
    return dict(zip(STEPS, (b - a for a, b in pairwise(marks)), strict=True))


def main() -> None:
    """Run the benchmark."""
    parse(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.tsv"
        lines = (f"{text}\t{LABELS[number % 3]}\n" for number, text in enumerate(islice(sentences(), ROWS)))
        path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
        megabytes = path.stat().st_size / 1e6
        rounds = [measure(path) for _ in range(3)]
    for step in STEPS:
        seconds = min(times[step] for times in rounds)
        record = {"seconds": round(seconds, 3), "mb_per_second": round(megabytes / seconds, 1)}
        add("reading", {"rows": ROWS, "step": step}, record)


if __name__ == "__main__":
    main()
