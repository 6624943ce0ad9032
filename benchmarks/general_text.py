"""What does adapting teach of a text, and what is lost of other text, where general text is scored and where it is not?

A model, `--start`, is adapted to an excerpt of four texts, which it reads once, four times, or 16 times, as it does by
default: without general text, so that it keeps the usual share of its weights, and with every second one of held-out
articles, by which the share is chosen. Losses of masked tokens are of texts that were neither trained on nor chosen by:
other parts of the same text, and the other articles.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from itertools import islice, product
from pathlib import Path

import common
from common import RUNS, add, logged, parse
from files import MadeFile, open_text, write_lines

import unmask
from unmask.demo.documentation import documentation
from unmask.model.model import load_model
from unmask.workflows.pretraining.start import usual_share

CHARACTERS, MODULES = 80_000, 120
"""Length of an excerpt, and number of modules whose documentation is read."""
BEGINNING = 2000
"""Number of characters of the articles that losses are measured on."""
HELDOUT = "text/wikipedia/heldout.jsonl.xz"


def lines_of(source: str, make: str) -> Callable[[Path], Iterable[str]]:
    """Return what reads the texts of labeled data; it writes them to a file first."""

    def read(file: Path) -> Iterable[str]:
        MadeFile((source,), make=make).write(file)
        return file.read_text(encoding="utf8").splitlines()

    return read


TEXTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "film reviews": lines_of("classification/sst2/train.tsv.xz", "texts"),
    "captions": lines_of("pairs/sick/SICK_train.txt.xz", "texts"),
    "English news": lines_of("ner/conll2003/eng.train.xz", "sentences"),
    "documentation": lambda _: (part for text in islice(documentation(), MODULES) for part in text.split("\n\n")),
}


def excerpts(lines: Iterable[str], folder: Path) -> list[Path]:
    """Write two disjoint excerpts of different lines, in random order, and return their files."""
    different = iter(random.Random(0).sample(unique := list(dict.fromkeys(lines)), len(unique)))
    files = []
    for name in ("trained.txt", "held.txt"):
        chosen, length = list[str](), 0
        while length < CHARACTERS and (line := next(different, None)) is not None:
            chosen.append(line)
            length += len(line)
        files.append(write_lines(folder / name, chosen))
    return files


def main() -> None:
    """Adapt a model to each text, in both ways."""
    options = parse(__doc__, TEXTS, runs=RUNS, start="", passes=[1, 4, 16])
    tokenizer = load_model(options.start).tokenizer
    folder = options.runs / "general_text"
    folder.mkdir(parents=True, exist_ok=True)
    with open_text(common.SHARED / HELDOUT) as file:
        articles = file.read().splitlines()
    general = write_lines(folder / "general.jsonl", articles[::2])
    beginnings = (json.dumps({"text": json.loads(article)["text"][:BEGINNING]}) for article in articles[1::2])
    other = write_lines(folder / "articles.jsonl", beginnings)
    for name in options.names:
        texts = folder / name
        texts.mkdir(exist_ok=True)
        trained, held = excerpts(TEXTS[name](texts / "lines.txt"), texts)

        def losses(model: Path, held: Path = held) -> dict[str, float]:
            files = {"text": (held, "line"), "general": (other, "auto")}
            scored = {
                key: unmask.evaluate(model, [file], documents=documents, quiet=True)  # type: ignore[arg-type]
                for key, (file, documents) in files.items()
            }
            return {key: result["metrics"]["masked_lm_loss"] for key, result in scored.items()}

        before = losses(Path(options.start))
        size = sum(len(tokenizer.encode(line)) for line in trained.read_text(encoding="utf8").splitlines())
        for passes, (way, files) in product(options.passes, {"not scored": [], "scored": [general]}.items()):
            run = texts / f"{way}-{passes}"
            if not (run / "report.md").exists():
                unmask.pretrain(
                    init=options.start,
                    text=[trained],
                    documents="line",
                    general=files,
                    out=run,
                    settings={"budget.tokens": passes * size},
                    resume=(run / "checkpoints").exists(),
                )
            last = logged(run)[-1]
            share = logged(run, "general")[-1]["initial_share"] if files else usual_share(last["epochs"])
            record = {"share": share, "tokens": last["tokens"], "before": before, "after": losses(run)}
            record |= {f"{kind}_change": record["after"][kind] - before[kind] for kind in before}
            key = {"text": name, "passes": passes, "general_text": way, "start": Path(options.start).name}
            add("general_text", key, record)


if __name__ == "__main__":
    main()
