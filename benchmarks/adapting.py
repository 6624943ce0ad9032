"""What adapting a model to text gains on that text, what it forgets of other text, and what a task gains.

forgetting: `modernbert-tiny`, pretrained by default on 6 million tokens of English encyclopedic text and news, is
    adapted with 600,000 tokens to sentences of film reviews (SST-2's training phrases) and to the documentation of
    Python packages, by default, with the trained weights alone, and with the settings of the former default. Losses are
    those of masked tokens, of texts that were not trained on.
another-script: MiniLM, whose vocabulary lacks two thirds of the characters of Chinese reviews (ChnSentiCorp), learns
    their sentiment from 500 of them, as it is and adapted with 900,000 tokens of the training texts, its vocabulary
    extended by their characters. The dev set is reported; nothing was chosen by it.

A record for each run is added to benchmarks/results/adapting.json. Runs that exist are not repeated. `--toy` has few
texts and steps.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from common import RUNS, SEEDS, SHARED, add, minilm, parse
from files import write_rows
from labelled import SST2, read_texts

import unmask
from unmask.demo.documentation import documentation

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
TOY_TEXTS, TOY_SHARE = 40, 0.002
REVIEWS = "classification/chnsenticorp"


def write(texts: Iterable[str], path: Path) -> Path:
    """Write texts as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf8")
    return path


def phrases() -> list[str]:
    """Return SST-2's training phrases of at least eight words that are no part of a longer one."""
    every = {example.text for example in read_texts(SST2)}
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


def articles(name: str) -> list[str]:
    """Return the texts of a compressed file of articles."""
    with lzma.open(SHARED / "text" / f"{name}.jsonl.xz", "rt", encoding="utf8") as file:
        return [json.loads(line)["text"] for line in file]


def forgetting(runs: Path, options: argparse.Namespace) -> None:
    """Measure what adaptation gains and forgets."""
    few, base = TOY_TEXTS if options.toy else None, runs / "base"
    text = [SHARED / "text" / f"{name}.jsonl.xz" for name in PRETRAINED]
    if not (base / "model").exists():
        if few:
            text = [write(articles("wikipedia/heldout")[-few:], runs / "pretrained.jsonl")]
        settings = {"budget.tokens": budget("pretraining", options)}
        unmask.pretrain(text=text, out=base, settings=settings, resume=(base / "recipe.toml").exists(), quiet=True)
    general = write(articles("wikipedia/heldout")[: few or GENERAL], runs / "general.jsonl")
    for domain, (train, held) in domains(runs, few).items():
        before = {"general": loss(base, general), "text": loss(base, held)}
        corpus = runs / f"corpus of {domain}".replace(" ", "-")
        if not corpus.exists():
            unmask.build_corpus([train], base, corpus, workers=1, quiet=True)
        for way, changes in WAYS.items():
            for seed in options.seeds:
                out = runs / f"{domain}-{way}-{seed}".replace(" ", "-")
                if (out / "model").exists():
                    continue
                settings = {"budget.tokens": budget("forgetting", options), "batch.tokens": 2048, "seed": seed}
                unmask.pretrain(None, corpus, init=base, out=out, settings={**settings, **changes}, quiet=True)
                key = {"case": "forgetting", "domain": domain, "way": way, "seed": seed}
                add(
                    "adapting",
                    key,
                    {"before": before, "after": {"general": loss(out, general), "text": loss(out, held)}},
                )


def another_script(runs: Path, options: argparse.Namespace) -> None:
    """Measure what a task in a script that the vocabulary lacks gains by adaptation with its characters."""
    few = TOY_TEXTS if options.toy else None
    reviews = read_texts(f"{REVIEWS}/train.tsv.xz", text="text_a")
    random.Random(0).shuffle(reviews)
    adapted, text = runs / "adapted", write((one.text for one in reviews[: few and 4 * few]), runs / "reviews.jsonl")
    table = write_rows(runs / "reviews.tsv", reviews[: few or EXAMPLES])
    dev = write_rows(runs / "dev.tsv", read_texts(f"{REVIEWS}/dev.tsv", text="text_a")[:few])
    if not (adapted / "model").exists():
        settings = {"budget.tokens": budget("another-script", options), "batch.tokens": 2048}
        unmask.pretrain(init=minilm(), text=[text], extend=NEW_TOKENS, out=adapted, settings=settings, quiet=True)
    for start, model in (("as it is", minilm()), ("adapted", str(adapted))):
        for seed in options.seeds:
            out = runs / f"classifier-{start}-{seed}".replace(" ", "-")
            if (out / "model").exists():
                continue
            settings = {"seed": seed} | ({"budget.epochs": 1} if few else {})
            unmask.finetune("classification", model, [table], out=out, settings=settings, frozen=False, quiet=True)
            scores = unmask.evaluate(out, [dev], quiet=True)
            figures = {"accuracy": scores["metrics"]["accuracy"], "interval": scores["intervals"]["accuracy"]}
            add("adapting", {"case": "another-script", "start": start, "seed": seed}, figures)


def budget(case: str, options: argparse.Namespace) -> float:
    """Return the tokens of a run."""
    return TOKENS[case] * (TOY_SHARE if options.toy else 1)


CASES = {"forgetting": forgetting, "another-script": another_script}


def main() -> None:
    """Measure the cases."""
    options = parse(__doc__, CASES, runs=RUNS, seeds=SEEDS, toy=False)
    for name in options.names:
        CASES[name](options.runs / "adapting" / name, options)


if __name__ == "__main__":
    main()
