"""What adapting a model to text gains on that text, what it forgets of other text, and what a task gains.

forgetting: `modernbert-tiny`, pretrained by default on 6 million tokens of English encyclopedic text and news, is
    adapted with 600,000 tokens to sentences of film reviews (SST-2's training phrases) and to the documentation of
    Python packages, by default, with the trained weights alone, and with the settings of the former default. Losses are
    those of masked tokens, of texts that were not trained on.
another-script: MiniLM, whose vocabulary lacks two thirds of the characters of Chinese reviews (ChnSentiCorp), learns
    their sentiment from 500 of them, as it is and adapted with 900,000 tokens of the training texts, its vocabulary
    extended by their characters. The dev set is reported; nothing was chosen by it.

A record for each run is added to benchmarks/results/adapting.json. Runs that exist are not repeated.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import common
from common import HERE, SHARED, add, minilm

import unmask
from unmask.demo.documentation import documentation

NAME = "adapting"
PRETRAINED = ("wikipedia/train-0", "wikipedia/train-1", "wikinews/train")
TOKENS = {"pretraining": 6_000_000, "forgetting": 600_000, "another-script": 900_000}
WAYS: dict[str, dict[str, Any]] = {
    "by default": {},
    "trained weights alone": {"initial_share": 0.0},
    "former default": {"initial_share": 0.0, "optimizer.learning_rate": 1e-4},
}
GENERAL, HELD = 60, 0.05
"""Number of encyclopedic articles that are scored, and share of the texts of a domain that are not trained on."""
EXAMPLES, NEW_TOKENS = 500, 3000


def write(texts: Iterable[str], path: Path) -> Path:
    """Write texts as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf8")
    return path


def rows(name: str) -> list[tuple[str, str]]:
    """Return the two columns of a compressed table, in random order."""
    with lzma.open(SHARED / "classification" / name, "rt", encoding="utf8") as file:
        pairs = [line.rstrip("\n").split("\t") for line in file][1:]
    random.Random(0).shuffle(pairs)
    return [(first, second) for first, second in pairs]


def phrases() -> list[str]:
    """Return SST-2's training phrases of at least eight words that are no part of a longer one."""
    every = {text.strip() for text, _ in rows("sst2/train.tsv.xz")}
    whole, seen = [], set[tuple[str, ...]]()
    for text in sorted(every, key=lambda text: (-len(text), text)):
        words = text.split()
        parts = {tuple(words[at : at + 6]) for at in range(len(words) - 5)}
        if len(words) >= 8 and not parts <= seen:
            whole.append(text)
            seen |= parts
    return whole


def domains(folder: Path, limit: int | None) -> dict[str, tuple[Path, Path]]:
    """Write the texts of each domain, and return the file to train on and the file to score."""
    files = {}
    for name, texts in {"film reviews": phrases(), "documentation": [*islice(documentation(), limit)]}.items():
        shuffled = texts[:limit]
        random.Random(0).shuffle(shuffled)
        held = max(2, round(HELD * len(shuffled)))
        own = folder / name.replace(" ", "-")
        files[name] = write(shuffled[held:], own / "train.jsonl"), write(shuffled[:held], own / "held.jsonl")
    return files


def loss(model: Path, text: Path) -> float:
    """Return the loss of masked tokens, in nats."""
    return float(unmask.evaluate(model, [text], quiet=True)["metrics"]["masked_lm_loss"])


def forgetting(runs: Path, seeds: Sequence[int], scale: float, limit: int | None) -> None:
    """Measure what adaptation gains and forgets."""
    base, settings = runs / "base", {"budget.tokens": scale * TOKENS["pretraining"]}
    text = [SHARED / "text" / f"{name}.jsonl.xz" for name in PRETRAINED]
    if not (base / "model").exists():
        if limit:
            text = [write(articles("wikipedia/heldout")[-limit:], runs / "pretrained.jsonl")]
        unmask.pretrain(text=text, out=base, settings=settings, resume=(base / "recipe.toml").exists(), quiet=True)
    general = write(articles("wikipedia/heldout")[: limit or GENERAL], runs / "general.jsonl")
    for domain, (train, held) in domains(runs, limit).items():
        before = {"general": loss(base, general), "text": loss(base, held)}
        corpus = runs / f"corpus of {domain}".replace(" ", "-")
        if not corpus.exists():
            unmask.build_corpus([train], base, corpus, workers=1, quiet=True)
        for way, options in WAYS.items():
            for seed in seeds:
                out = runs / f"{domain}-{way}-{seed}".replace(" ", "-")
                if (out / "model").exists():
                    continue
                budget = {"budget.tokens": scale * TOKENS["forgetting"], "batch.tokens": 2048, "seed": seed}
                unmask.pretrain(None, corpus, init=base, out=out, settings={**budget, **options}, quiet=True)
                after = {"general": loss(out, general), "text": loss(out, held)}
                case = {"case": "forgetting", "domain": domain, "way": way, "seed": seed}
                add(NAME, case | {"before": before, "after": after})


def articles(name: str) -> list[str]:
    """Return the texts of a compressed file of articles."""
    with lzma.open(SHARED / "text" / f"{name}.jsonl.xz", "rt", encoding="utf8") as file:
        return [json.loads(line)["text"] for line in file]


def another_script(runs: Path, seeds: Sequence[int], scale: float, limit: int | None) -> None:
    """Measure what a task in a script that the vocabulary lacks gains by adaptation with its characters."""
    labelled = [(text, label) for label, text in rows("chnsenticorp/train.tsv.xz")][: limit and 4 * limit]
    table = runs / "reviews.tsv"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(
        "".join(f"{label}\t{text}\n" for text, label in [("text", "label"), *labelled[: limit or EXAMPLES]])
    )
    adapted, text = runs / "adapted", write((text for text, _ in labelled), runs / "reviews.jsonl")
    if not (adapted / "model").exists():
        budget = {"budget.tokens": scale * TOKENS["another-script"], "batch.tokens": 2048}
        unmask.pretrain(init=minilm(), text=[text], extend=NEW_TOKENS, out=adapted, settings=budget, quiet=True)
    lines = (SHARED / "classification" / "chnsenticorp" / "dev.tsv").read_text(encoding="utf8").splitlines()
    dev = runs / "dev.tsv"
    dev.write_text("\n".join(lines[: limit and limit + 1]) + "\n", encoding="utf8")
    models: dict[str, str | Path] = {"as it is": minilm(), "adapted": adapted}
    for start, model in models.items():
        for seed in seeds:
            out = runs / f"classifier-{start}-{seed}".replace(" ", "-")
            if (out / "model").exists():
                continue
            options = {"seed": seed} | ({"budget.epochs": 1} if limit else {})
            unmask.finetune("classification", model, [table], out=out, settings=options, frozen=False, quiet=True)
            columns = {"text": "text_a"}
            scores = unmask.evaluate(out, [dev], columns=columns, quiet=True)
            figures = {"accuracy": scores["metrics"]["accuracy"], "interval": scores["intervals"]["accuracy"]}
            add(NAME, {"case": "another-script", "start": start, "seed": seed, **figures})


def main() -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = {"forgetting": forgetting, "another-script": another_script}
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(cases)} (default: all)")
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs", help="where runs are kept (default: runs)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help="few texts, few steps, one seed; writes no result")
    arguments = parser.parse_args()
    if arguments.toy:
        common.RESULTS = arguments.runs / "results"
    seeds = range(1 if arguments.toy else arguments.seeds)
    if unknown := set(arguments.cases) - set(cases):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    for name in arguments.cases or cases:
        toy = (0.002, 40) if arguments.toy else (1.0, None)
        cases[name](arguments.runs / NAME / name, seeds, *toy)


if __name__ == "__main__":
    main()
