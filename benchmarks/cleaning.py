"""Does cleaning pay? The same recipe for as many tokens, on text as a crawl has it, without duplicates, and cleaned.

English news articles as pages of 50 sites, which are made as untidy as the crawl samples of the shared data are
(docs/crawl-report.html): three of ten pages are copies of other ones, half of them on another site, and three of five
have the menu of their site, some lines of the menus of the samples. The texts:

    raw         all pages
    distinct    --clean duplicates near_duplicates
    cleaned     --clean web boilerplate
    tidy        the articles without copies and menus: what the best cleaning would leave

A record of each text and seed: bits per character of held-out articles (pseudo-log-likelihood), and F1 on CoNLL-2003's
test set after fine-tuning by default on 4,000 sentences. Runs are kept in `--runs`, and continue there.
"""

from __future__ import annotations

import random
from pathlib import Path

import common
import msgspec
from common import RUNS, SEEDS, add, parse
from files import excerpt

import unmask
from unmask.data.text.documents import Skipped, TextOptions, read_documents

RULES: dict[str, list[str]] = {
    "raw": [],
    "distinct": ["duplicates", "near_duplicates"],
    "cleaned": ["web", "boilerplate"],
    "tidy": [],
}
ARTICLES, SITES, COPIED, WITH_MENU, MENU = 9000, 50, 0.31, 0.6, 400
"""Number of articles and of sites, shares of pages that are copies and that have menus, characters of a menu."""
TOKENS, VOCABULARY, SENTENCES, LIMIT = 6e6, 8000, 4000, 20
"""What is read, the vocabulary, sentences to fine-tune on, and articles that bits are measured on."""
TRAIN, TEST = "ner/conll2003/eng.train.xz", "ner/conll2003/eng.testb.xz"
EPOCHS: dict[str, int] = {}
"""Settings of fine-tuning: those of the default."""
MENU_PAGES = 5
"""A line of the crawl samples that this many pages have is of a menu."""


def menu_lines() -> list[str]:
    """Return the lines of the menus of the crawl samples."""
    folder, pages = common.SHARED / "crawl", dict[str, int]()
    files = [folder / "aut_example.warc.gz", folder / "whirlwind/whirlwind.warc.gz"]
    for document in read_documents(files, TextOptions(), Skipped()):
        for line in {line.strip() for line in document.splitlines()} - {""}:
            pages[line] = pages.get(line, 0) + 1
    return sorted(line for line, count in pages.items() if count >= MENU_PAGES and len(line) <= MENU)


def write_pages(folder: Path, articles: int) -> None:
    """Write the pages of the crawl, and the articles alone, as JSON Lines."""
    source = excerpt(common.SHARED / "text/wikinews/train.jsonl.xz", folder / "articles.jsonl", articles)
    texts = [*read_documents([source], TextOptions(), Skipped())]
    generator, lines = random.Random(0), menu_lines()
    menus = []
    for _ in range(SITES):
        chosen = [generator.choice(lines)]
        while sum(map(len, chosen)) < MENU:
            chosen.append(generator.choice(lines))
        menus.append("\n".join(chosen))
    placed = [(text, generator.randrange(SITES)) for text in texts]
    for _ in range(int(len(placed) * COPIED / (1 - COPIED))):
        text, site = generator.choice(placed[: len(texts)])
        placed.append((text, site if generator.random() < 0.5 else generator.randrange(SITES)))
    generator.shuffle(placed)
    with (folder / "pages.jsonl").open("wb") as pages, (folder / "tidy.jsonl").open("wb") as tidy:
        for number, (text, site) in enumerate(placed):
            menu = f"{menus[site]}\n" if generator.random() < WITH_MENU else ""
            page = {"url": f"https://site{site}.example/{number}", "text": menu + text}
            pages.write(msgspec.json.encode(page) + b"\n")
        for text in texts:
            tidy.write(msgspec.json.encode({"text": text}) + b"\n")


def measure(text: str, seed: int, folder: Path) -> None:
    """Pretrain on a text, score the encoder, and add a record."""
    run, tuned = folder / f"{text}-{seed}", folder / f"{text}-{seed}-entities"
    settings = {"tokenizer.vocabulary": VOCABULARY, "batch.tokens": 2048, "budget.tokens": TOKENS}
    unmask.pretrain(
        "modernbert-tiny",
        out=run,
        text=[folder / ("tidy.jsonl" if text == "tidy" else "pages.jsonl")],
        clean=RULES[text],
        settings={"seed": seed, **settings, "budget.minutes": False},
        resume=run.exists(),
    )
    held = common.SHARED / "text/wikinews/heldout.jsonl.xz"
    bits = unmask.evaluate(run, [held], suite="bits", limit=LIMIT, quiet=True)
    unmask.finetune(
        "token-classification",
        model=run,
        train=[common.SHARED / TRAIN],
        out=tuned,
        resume=tuned.exists(),
        examples=SENTENCES,
        settings={"seed": seed, **EPOCHS},
    )
    scores = unmask.evaluate(tuned, [common.SHARED / TEST], quiet=True)
    last = common.logged(run)[-1]
    record = {"bits_per_character": bits["metrics"]["bits_per_character"], "f1": scores["metrics"]["f1"]}
    add("cleaning", {"text": text, "seed": seed}, {**record, "tokens": last["tokens"], "epochs": last["epochs"]})


def main() -> None:
    """Measure all texts, one seed after the other."""
    options = parse(__doc__, RULES, runs=RUNS, seeds=SEEDS)
    folder = options.runs / "cleaning"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tidy.jsonl").exists():
        write_pages(folder, ARTICLES)
    for seed in options.seeds:
        for text in options.names:
            measure(text, seed, folder)


if __name__ == "__main__":
    main()
