"""What adapting a model to text gains on that text, what it forgets of other text, and what a task gains.

forgetting: `modernbert-tiny`, pretrained by default on 6 million tokens of English encyclopedic text and news, is
    adapted with 600,000 tokens to sentences of film reviews (SST-2's training phrases) and to the documentation of
    Python packages, by default, with the trained weights alone, and with the settings of the former default. Losses are
    those of masked tokens, of texts that were not trained on.
another-script: MiniLM, whose vocabulary lacks two thirds of the characters of Chinese reviews (ChnSentiCorp), learns
    their sentiment from 500 of them, as it is and adapted with 900,000 tokens of the training texts, its vocabulary
    extended by their characters. The dev set is reported; nothing was chosen by it.
tasks: `modernbert-tiny`, pretrained on 20 million tokens of English, learns tasks from 500 examples: as it is, adapted
    by default to the texts of the task, without labels, and with 2 million tokens of articles like those that it has
    read; of the documentation as many are read. Test data are reported; nothing was chosen by them.
published: MiniLM learns two of these tasks, as it is and adapted with 2 million tokens.

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
from typing import Any, NamedTuple

from common import RUNS, SEEDS, SHARED, add, minilm, parse
from files import english_corpus, write_rows
from labelled import SST2, SST2_DEV, parted, read_texts

import unmask
from unmask.demo.documentation import documentation

PRETRAINED = ("wikipedia/train-0", "wikipedia/train-1", "wikinews/train")
TOKENS = {"pretraining": 6_000_000, "forgetting": 600_000, "another-script": 900_000}
TOKENS |= {"pretraining for tasks": 20_000_000, "tasks": 2_000_000}
LONG = ("articles", "documentation: topic")
"""Texts of which so many tokens are read; the others are read as often as by default."""
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


class Pair(NamedTuple):
    """A text and a task: texts to adapt to, the task, files to learn it from and to score it on."""

    texts: list[str]
    task: str
    train: Path
    test: Path


def pairs(folder: Path, few: int | None) -> dict[str, Pair]:
    """Return pairs of a text and a task; the texts of test examples are in none."""
    phrases_of_films, (paragraphs, asked) = read_texts(SST2), parted("topics")
    entities, entailment = SHARED / "ner/conll2003", SHARED / "pairs/sick"
    sentences = _unpacked(entities / "eng.train.xz").split("\n\n")
    head, *lines = _unpacked(entailment / "SICK_train.txt.xz").splitlines()
    for examples in (phrases_of_films, paragraphs, sentences, lines):
        random.Random(0).shuffle(examples)
    tested = {example.text for example in asked}
    documents = ["\n".join(line for line in text.split("\n") if line not in tested) for text in documentation()]
    news = [" ".join(row.split()[0] for row in sentence.splitlines()) for sentence in sentences if sentence.strip()]
    news = [text for text in news if text != "-DOCSTART-"]
    written = sorted({text for line in lines for text in line.split("\t")[1:3]})
    few_lines, few_sentences = folder / "sick.txt", folder / "news.conll"
    few_lines.write_text("\n".join([head, *lines[: few or EXAMPLES], ""]), encoding="utf8")
    few_sentences.write_text("\n\n".join([*sentences[: few or EXAMPLES], ""]), encoding="utf8")
    films = write_rows(folder / "films.tsv", phrases_of_films[: few or EXAMPLES])
    topics = write_rows(folder / "topics.tsv", paragraphs[: few or EXAMPLES])
    kinds = "classification", "token-classification"
    every = {
        "film reviews: sentiment": Pair(phrases(), kinds[0], films, SHARED / SST2_DEV),
        "documentation: topic": Pair(documents, kinds[0], topics, write_rows(folder / "topics-test.tsv", asked)),
        "English news: entities": Pair(news, kinds[1], few_sentences, entities / "eng.testb.xz"),
        "captions: entailment": Pair(written, kinds[0], few_lines, entailment / "SICK_test_annotated.txt.xz"),
    }
    return {name: pair._replace(test=pair.train) for name, pair in every.items()} if few else every


def _unpacked(path: Path) -> str:
    with lzma.open(path, "rt", encoding="utf8") as file:
        return file.read()


def tasks(runs: Path, options: argparse.Namespace) -> None:
    """Measure what tasks gain by adapting to their texts, and by reading more of the same kind of text."""
    few, base = TOY_TEXTS if options.toy else None, runs / "base"
    runs.mkdir(parents=True, exist_ok=True)
    general = write(articles("wikipedia/heldout")[: few or GENERAL], runs / "general.jsonl")
    if not (base / "model").exists():
        corpus = english_corpus(runs / "english", 8000, documents=few)
        settings = {"budget.tokens": budget("pretraining for tasks", options)}
        unmask.pretrain("modernbert-tiny", corpus, out=base, settings=settings, quiet=True)
    every = pairs(runs, few)
    texts = {"articles": articles("wikipedia/train-7")} | {name: pair.texts for name, pair in every.items()}
    for name, text in texts.items():
        own = runs / name.replace(": ", "-").replace(" ", "-")
        if not (own / "model").exists():
            short = {"budget.tokens": budget("tasks", options)} if few or name in LONG else {}
            train = write(text[: few and 10 * few], runs / f"{own.name}.jsonl")
            unmask.pretrain(init=base, text=train, general=general, out=own, settings=short, quiet=True)
        logged = [json.loads(line) for line in (own / "metrics.jsonl").read_text().splitlines()]
        before, after = (line for line in logged if line["kind"] == "general")
        changes = {"harder": before["text_loss"] - before["loss"], "lost": after["loss"] - before["loss"]}
        add("adapting", {"case": "texts", "text": name}, changes)
        for start, model in {"as it is": base, "adapted": own, "articles": runs / "articles"}.items():
            for seed in options.seeds if name in every else ():
                out = runs / f"{own.name}-{start}-{seed}".replace(" ", "-")
                learn(every[name], {"case": "tasks", "text": name, "start": start, "seed": seed}, model, out)


def published(runs: Path, options: argparse.Namespace) -> None:
    """Measure what tasks gain by adapting MiniLM, which has no masked-LM head, to their texts."""
    few = TOY_TEXTS if options.toy else None
    runs.mkdir(parents=True, exist_ok=True)
    for name, pair in [*pairs(runs, few).items()][:2]:
        own = runs / name.replace(": ", "-").replace(" ", "-")
        if not (own / "model").exists():
            settings = {"budget.tokens": budget("tasks", options), "batch.tokens": 2048}
            train = write(pair.texts[: few and 10 * few], runs / f"{own.name}.jsonl")
            unmask.pretrain(init=minilm(), text=train, out=own, settings=settings, quiet=True)
        for start, model in {"as it is": Path(minilm()), "adapted": own}.items():
            for seed in options.seeds:
                out = runs / f"{own.name}-{start}-{seed}".replace(" ", "-")
                learn(pair, {"case": "published", "text": name, "start": start, "seed": seed}, model, out)


def learn(pair: Pair, key: dict[str, Any], model: Path, out: Path) -> None:
    """Fine-tune a model for the task of a pair with the seed of a key, unless it is done, and add its score."""
    if (out / "model").exists():
        return
    settings = {"seed": key["seed"]}
    unmask.finetune(pair.task, model, [pair.train], out=out, settings=settings, frozen=False, quiet=True)
    result = unmask.evaluate(out, [pair.test], quiet=True)
    metric = "f1" if pair.task == "token-classification" else "accuracy"
    figures = {"score": result["metrics"][metric], "interval": result["intervals"][metric]}
    add("adapting", key, figures)


def budget(case: str, options: argparse.Namespace) -> float:
    """Return the tokens of a run."""
    return TOKENS[case] * (TOY_SHARE if options.toy else 1)


CASES = {"forgetting": forgetting, "another-script": another_script, "tasks": tasks, "published": published}


def main() -> None:
    """Measure the cases."""
    options = parse(__doc__, CASES, runs=RUNS, seeds=SEEDS, toy=False)
    for name in options.names:
        CASES[name](options.runs / "adapting" / name, options)


if __name__ == "__main__":
    main()
