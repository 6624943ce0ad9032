"""Pretrain the cases of pretraining.toml, which says what each of them asks and measures.

Each case leaves a run under runs/pretrain/GROUP/CASE and adds a record to benchmarks/results: the learning curve on
held-out text, steps, tokens, seconds, and what always guessing the most frequent token scores. An interrupted run is
resumed; a case with a record is not run again (remove the record to measure it again).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import common
import msgspec
import torch
import trainer
from common import HERE, compared, logged
from quality import Table, Workspace, pick, workspace

import unmask
from unmask.data.batches.curriculum import Feed
from unmask.data.corpus.corpus import Corpus
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.question_files import read_squad
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.tokenizers.train import CASED, Trained, train_vocabulary
from unmask.model.model import load_model
from unmask.objectives.replaced_token import ReplacedToken
from unmask.recipes.recipe import Recipe
from unmask.workflows.pretraining.pretrain import HELDOUT_TOKENS
from unmask.workflows.pretraining.search import with_rates
from unmask.workflows.pretraining.start import build_learner

STAND_IN = "plateau/all"
"""The case that stands in for MiniLM at toy size."""
COST_TOKENS = 4096


class Text(Table, frozen=True):
    """A [texts.NAME] table; see pretraining.toml."""

    train: tuple[str, ...]
    heldout: tuple[str, ...] = ()
    kind: Trained = "wordpiece"
    vocabulary: int = 0
    tokenizer: str = ""
    documents: int | None = None  # only the first ones


class Case(Table, frozen=True):
    """A case, with what its group says."""

    name: str  # GROUP/CASE
    result: str  # the name of the file in benchmarks/results
    text: str  # one of [texts]
    budget: str  # a setting of the recipe's [budget]
    record: tuple[str, ...]  # fields of its record,
    key: tuple[str, ...] = ("case",)  # and those that tell it from the others
    recipe: str = "bert-mini"
    settings: tuple[str, ...] = ()
    start: str = ""  # the weights it starts from: another case or "minilm"; empty: random weights
    body: str = ""  # whose body it has in place of the recipe's
    teacher: str = ""  # the case that it learns from, and begins with layers of
    factors: tuple[float, ...] = ()  # of the learning rate, of which the best one is searched,
    share: int = 1  # each with 1 / share of the budget
    first: tuple[str, ...] = ()  # settings of a first part,
    first_share: float = 0.0  # and its share of the budget
    rates: float = 1.0  # times the learning rates of the recipe
    seeds: tuple[int, ...] = (0,)
    trainer: dict[str, Any] | None = None  # by the Trainer instead, with these arguments (see trainer.py)


@cache
def read_cases() -> tuple[dict[str, Text], dict[str, Case]]:
    """Return the texts and the cases of pretraining.toml."""
    table = tomllib.loads((HERE / "pretraining.toml").read_text(encoding="utf8"))
    texts = msgspec.convert(table.pop("texts"), dict[str, Text])
    cases = {}
    for group, shared in table.items():
        for name, own in shared.pop("cases").items():
            settings = [*shared.get("settings", []), *own.get("settings", [])]
            values = {"result": group, **shared, **own, "settings": settings, "name": f"{group}/{name}"}
            values["result"] = values["result"].format(case=name)
            cases[f"{group}/{name}"] = msgspec.convert(values, Case)
    return texts, cases


def checkpoint(name: str, work: Workspace) -> Path:
    """Return the directory of a model: that of a case, which is pretrained where that is not done, or "minilm"."""
    if name == "minilm" and not work.toy:
        return Path(common.minilm())
    return Pretraining(read_cases()[1][STAND_IN if name == "minilm" else name], work).run() / "model"


def tokenizer_of(name: str, work: Workspace) -> Path:
    """Return the directory of a tokenizer: that of a text, trained where that is not done, or of "minilm"."""
    texts, _ = read_cases()
    if name not in texts:
        return checkpoint(name, work)
    text, folder = texts[name], work.runs / "corpora" / name / "tokenizer"
    if text.tokenizer:
        return tokenizer_of(text.tokenizer, work)
    if not folder.exists():
        files = plain(text, work, folder.parent)
        documents = read_documents(files, TextOptions(), Skipped())
        size = 600 if work.toy else text.vocabulary
        lowercase, kind = text.kind not in CASED, text.kind
        tokenizer = train_vocabulary(
            kind, documents, size=size, lowercase=lowercase, coverage=1
        )  # as before it was set
        tokenizer.save(folder)
    return folder


def corpus_of(name: str, work: Workspace) -> Corpus:
    """Build the corpus of a text where that is not done."""
    text, folder = read_cases()[0][name], work.runs / "corpora" / name
    if not (folder / "corpus").exists():
        tokenizer = unmask.load_tokenizer(tokenizer_of(name, work))
        held, files = work.files(text.heldout), plain(text, work, folder)
        unmask.build_corpus(files, tokenizer, folder / "corpus", heldout=held)
    return unmask.open_corpus(folder / "corpus")


def plain(text: Text, work: Workspace, folder: Path) -> list[Path]:
    """Return files of plain text; the texts of labelled files and excerpts are written, a document a line."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, path in enumerate(work.files(text.train)):
        if ".jsonl" in path.suffixes:
            files.append(path)
            continue
        if ".json" in path.suffixes:
            texts = list(dict.fromkeys(question.passage for question in read_squad([path])))
        else:
            texts = [row.values["text"].strip() for row in read_rows([path], columns={})]
        files.append(folder / f"{number}.jsonl")
        write_texts(files[-1], texts)
    if text.documents is None:
        return files
    excerpt = folder / "excerpt.jsonl"
    write_texts(excerpt, islice(read_documents(files, TextOptions(), Skipped()), text.documents))
    return [excerpt]


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Write texts as JSON Lines."""
    path.write_bytes(b"".join(msgspec.json.encode({"text": text}) + b"\n" for text in texts))


class Pretraining:
    """A case that is pretrained.

    Args:
        case: what is pretrained.
        work: where.
        settings: over those of the case.
        seed: of the run.
    """

    def __init__(self, case: Case, work: Workspace, settings: tuple[str, ...] = (), seed: int = 0) -> None:
        self.case, self.work, self.settings, self.seed = case, work, settings, seed
        group, _, short = case.name.partition("/")
        self.folder = work.runs / "pretrain" / group
        own = [] if case.budget == read_cases()[1][case.name].budget else [case.budget]
        seeds = [f"seed-{seed}"] if seed else []
        self.out = self.folder / "-".join([short, *own, *settings, *seeds]).replace("/", "_")
        unit, _, amount = case.budget.partition("=")
        self.known: dict[str, Any] = {
            "name": case.name,
            "case": short,
            "seed": seed,
            "budget": int(float(amount)),
            unit: float(amount),
        }
        changed = [*(f"budget.{budget}" for budget in own if "budget" not in case.key), *settings]
        self.key = pick(self.known, case.key) | ({"set": changed} if changed else {})

    @property
    def record(self) -> dict[str, Any] | None:
        """The record of the run, if there is one."""
        return self.work.find(self.case.result, self.key)

    def run(self) -> Path:
        """Pretrain, or resume, where that is not done; return the run directory.

        A model that is gone is trained again with as many steps as its record has, however long they take.
        """
        if self.record is None or not (self.out / "model").exists():
            if self.record and "step" in self.record and not self.case.first:
                self.case = msgspec.structs.replace(self.case, budget=f"steps={self.record['step']}")
            self._pretrain()
            if self.record is None:
                common.add(self.case.result, self._record())
            for tried in self.folder.glob(f"{self.out.name}-x*"):
                shutil.rmtree(tried)
        return self.out

    def recipe(self, *settings: str) -> Recipe:
        """Return the recipe with settings over those of the case."""
        case = self.case
        budget = f"budget.{case.budget}"
        rates = rate_settings(unmask.read_recipe(case.recipe), case.rates)
        given = [*rates, *case.settings, budget, f"seed={self.seed}", *settings, *self.settings]
        recipe = self.work.recipe(case.recipe, given)
        if not case.body:
            return recipe
        body = load_model(checkpoint(case.body, self.work)).encoder.settings
        return msgspec.structs.replace(recipe, encoder=body)

    def _pretrain(self) -> None:
        """Train a first part and search the learning rate where the case says so, then train."""
        case, settings = self.case, list[str]()
        unit, _, total = case.budget.partition("=")
        init = checkpoint(case.start, self.work) if case.start else None
        self.before = dict.fromkeys(("step", "tokens", "seconds", "epochs"), 0)
        self.searched: dict[str, float | None] = {}  # None: not finite
        if case.first:
            init = self.out.with_name(f"{self.out.name}-first")
            self._train(init, [*case.first, f"budget.tokens={case.first_share * float(total):.0f}"], None)
            self.before = {name: logged(init)[-1][name] for name in self.before}
            settings = [f"budget.tokens={float(total) - self.before['tokens']}"]
        if case.factors:
            recipe = self.recipe()
            rate = recipe.optimizer.learning_rate
            others = {name: self.key[name] for name in self.key if name not in ("budget", "seed")}
            self.searched = (self.work.find(case.result, others) or {}).get("searched", {})
            for factor in () if self.searched else case.factors:
                tried = [*rate_settings(recipe, factor), f"budget.{unit}={float(total) / case.share:g}"]
                curve = self._train(self.out.with_name(f"{self.out.name}-x{factor:g}"), tried, init)
                self.searched[f"{factor * rate:.3g}"] = curve[-1]["loss"]
            finite = {rate: loss for rate, loss in self.searched.items() if loss is not None}
            best = float(min(finite, key=lambda rate: finite[rate]))
            settings = [*rate_settings(recipe, best / rate), *settings]
        self._train(self.out, settings, init)

    def _train(self, out: Path, settings: list[str], init: Path | None) -> list[dict[str, Any]]:
        """Train, or resume, where that is not done; return the log of the held-out part."""
        if not (out / "model").exists():
            corpus, resume = corpus_of(self.case.text, self.work), (out / "provenance.json").exists()
            if self.case.trainer is not None:
                trainer.pretrain(self.recipe(*settings), corpus, out, self.case.trainer)
                return logged(out, "heldout")
            recipe = self.recipe(*settings)
            how: dict[str, Any] = {"resume": resume, "quiet": self.work.toy}
            if self.case.teacher:
                unmask.distill(recipe, checkpoint(self.case.teacher, self.work), out, corpus=corpus, **how)
            else:
                unmask.pretrain(recipe, corpus, out=out, init=init, **how)
        return logged(out, "heldout")

    def _record(self) -> dict[str, Any]:
        lines, corpus = logged(self.out), corpus_of(self.case.text, self.work)
        seconds = {line["step"]: line["seconds"] for line in lines}
        recipe = unmask.read_recipe(self.out / "recipe.toml")
        optimizer = recipe.optimizer
        values: dict[str, Any] = {
            **self.known,
            "settings": [*self.case.settings, *self.settings],
            "recipe": self.case.recipe,
            "learning_rate": optimizer.learning_rate,
            "matrix_learning_rate": optimizer.matrix_learning_rate,
            "searched": self.searched,
            "corpus_tokens": corpus.train.num_tokens,
            "most_frequent_token": corpus.tokenizer.decode([corpus.manifest.most_frequent_token.id]),
            "guess": (logged(self.out, "baseline") or [{}])[0],
            **compared(self.out),
            **{name: before + lines[-1][name] for name, before in self.before.items()},
            "heldout": [
                line | {"tokens": self.before["tokens"] + line["tokens"], "seconds": seconds.get(line["step"], 0)}
                for line in logged(self.out, "heldout")
            ],
        }
        if "end" in self.case.record and "masked_lm" in recipe.objectives:  # of the last stage
            values["end"] = single_masks(self.out, corpus)
        if "out_of_context" in self.case.record and "replaced_token_loss" in values["heldout"][-1]:
            values["out_of_context"] = out_of_context(self.out, corpus)
        return self.key | pick(values, self.case.record)


def rate_settings(recipe: Recipe, factor: float) -> list[str]:
    """Return the settings of a recipe's learning rates, times a factor."""
    optimizer = with_rates(recipe, factor).optimizer
    rates = {"learning_rate": optimizer.learning_rate, "matrix_learning_rate": optimizer.matrix_learning_rate}
    return [f"optimizer.{name}={float(f'{rate:.6g}')}" for name, rate in rates.items() if rate is not None]


def single_masks(run: Path, corpus: Corpus) -> dict[str, float]:
    """Return loss and accuracy on tokens masked one by one, however they were masked in training."""
    return trainer.score(load_model(run), corpus)


def out_of_context(run: Path, corpus: Corpus) -> float:
    """Return the loss of detecting replaced tokens where all tokens are permuted, each with its label.

    What is not above the loss on the text itself has not been learned from context.
    """
    model, recipe = load_model(run, dropout=0.0), unmask.read_recipe(run / "recipe.toml")
    learner, _ = build_learner(recipe, corpus.tokenizer.size, model)
    learner.eval()
    head, rng = learner.objectives["replaced_token"], torch.Generator().manual_seed(0)
    assert isinstance(head, ReplacedToken)
    feed = Feed(recipe.layout, recipe.masking, 0, corpus.tokenizer, learner.prepare)
    loss, tokens = 0.0, 0
    with torch.no_grad():
        for batch in feed.heldout(corpus.heldout, HELDOUT_TOKENS):
            filled, _ = head.before(model.encoder, batch)
            ids, replaced = filled.tokens.ids, filled.labels["replaced"]
            ordinary = (~torch.isin(ids, torch.tensor(sorted(corpus.tokenizer.special_ids)))).nonzero()[:, 0]
            order = torch.arange(len(ids))
            order[ordinary] = ordinary[torch.randperm(len(ordinary), generator=rng)]
            mixed = replace(filled.tokens, ids=ids[order])
            asked = replace(filled, tokens=mixed, labels={**filled.labels, "replaced": replaced[order]})
            loss += float(head.score(model.encoder, model.encoder(mixed), asked).sum)
            tokens += len(ids)
    return loss / tokens


def measure(case: Case, work: Workspace, steps: int) -> dict[str, float]:
    """Train a little in this process; return time and operations per token, and the peak memory."""
    layout = Pretraining(case, work).recipe().layout
    settings = ["layout.length=128", "stages=[]", f"batch.tokens={COST_TOKENS}"]
    if layout.num_streams:
        streams = 2 * (COST_TOKENS // (2 * layout.length))
        settings = [f"layout.streams={streams}", f"batch.sequences={streams}"]
    recipe = Pretraining(case, work, (*settings, f"budget.steps={steps}")).recipe()
    corpus = corpus_of(case.text, work)
    if work.toy:
        recipe = msgspec.structs.replace(recipe, budget=msgspec.structs.replace(recipe.budget, steps=steps))
    with tempfile.TemporaryDirectory() as name:
        unmask.pretrain(recipe, corpus, out=Path(name) / "run", quiet=True)
        lines = logged(Path(name) / "run")[2:]
    seconds = statistics.median(1 / line["tokens_per_second"] for line in lines)
    flops = statistics.median(line["flops_per_second"] / line["tokens_per_second"] for line in lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds_a_token": seconds, "flops_a_token": flops, "peak_mib": peak / 1024}


def cost(cases: list[Case], work: Workspace, steps: int, rounds: int) -> None:
    """Measure cases alternately, each time in a process of its own."""
    for case in cases:
        corpus_of(case.text, work)
    for number in range(rounds):
        for case in cases:
            command = [sys.executable, __file__, case.name, "--measure", "--runs", str(work.runs), f"--steps={steps}"]
            command += ["--toy"] if work.toy else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            record = {"member": case.name.rpartition("/")[2], "round": number, "tokens": COST_TOKENS, "steps": steps}
            common.add(f"{case.result}_cost", record | found, instead=("member", "round"))


def main(arguments: list[str] | None = None) -> None:
    """Run what has no record yet."""
    _, cases = read_cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = list(dict.fromkeys(name.partition("/")[0] for name in cases))
    parser.add_argument("cases", nargs="+", metavar="CASE", choices=[*groups, *cases], help="GROUP or GROUP/CASE")
    parser.add_argument("--budget", metavar="UNIT=NUMBER", help="instead of the case's: steps, tokens or minutes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    parser.add_argument("--runs", type=Path, help="where runs are kept (default: runs)")
    parser.add_argument("--toy", action="store_true", help="a tiny body, two steps, an excerpt; nothing is kept")
    parser.add_argument("--cost", action="store_true", help="measure time and memory instead")
    parser.add_argument("--steps", type=int, default=25, help="to measure the cost by")
    parser.add_argument("--rounds", type=int, default=3, help="to measure the cost in")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = [case for name, case in cases.items() if {name, name.partition("/")[0]} & set(options.cases)]
    if options.budget:
        chosen = [msgspec.structs.replace(case, budget=options.budget) for case in chosen]
    with workspace(options.runs, toy=options.toy) as work:
        if options.measure:
            print(json.dumps(measure(chosen[0], work, options.steps)))
        elif options.cost:
            cost([case for case in chosen if not case.first], work, options.steps, options.rounds)
        else:
            for case in chosen:
                for seed in case.seeds[: 1 if work.toy else None]:
                    pretraining = Pretraining(case, work, tuple(options.set), seed)
                    if pretraining.record:
                        print(f"{case.name}: in benchmarks/results/{case.result}.json already", flush=True)
                    else:
                        pretraining.run()


if __name__ == "__main__":
    main()
