"""The family on one body and one budget: what does each idea give, and what does it cost?

BERT, RoBERTa, SpanBERT, ALBERT, ELECTRA and GPT at 4 layers of width 256, one WordPiece vocabulary of 8,000, the same
English Wikipedia articles and news, the same number of tokens: the first at length 32, which takes a small model off
the plateau of frequent words, the others at 128. Beside what makes each of them, the recipes have the same settings
(`SAME`); the learning rate of each is the best of three (`FACTORS`) at an eighth of the budget, by the held-out loss.
ELECTRA is there twice: `electra-warmed` has embeddings as wide as the body, and learns its first tokens, at length 32,
as a masked LM.

Then, three seeds each: a linear probe on the frozen encoder and fine-tuning, on CoNLL-2003, SICK entailment and 2,000
examples of SST-2. Beside them the same bodies, BERT's, ALBERT's and GPT's, with random weights, and static embeddings:
the bottom of the pretrained BERT, averaged for texts. Fine-tuning takes for each start the best of three learning rates
(`TUNED`), by a run each that is scored on examples which are neither learnt nor tested; all else is by default.

`--cost` measures instead what a step of each costs beside BERT's: time and memory in alternating processes, and the
operations that its work needs.
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
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import RESULTS, SHARED, add, logged, read, write
from finetuning_rule import split
from plateau import SHORT, SHORT_FIRST
from pretrain_mini import HELDOUT, TRAIN, prepare

import unmask
from unmask.batches.feed import Feed
from unmask.corpus.corpus import Corpus
from unmask.finetuning.rule import defaults
from unmask.model import load_model
from unmask.objectives.replaced_token import ReplacedToken
from unmask.pretraining.learner import build_learner
from unmask.pretraining.pretrain import HELDOUT_TOKENS
from unmask.settings import parse_overrides

VOCABULARY = 8000
SAME = [
    SHORT_FIRST,
    "encoder.dropout=0",
    "batch.tokens=1024",
    "optimizer.learning_rate=7e-4",
    "optimizer.betas=[0.9,0.98]",
    "optimizer.epsilon=1e-6",
    "schedule.warmup=0.02",
]
HIDES = ["masking.rate=0.4", "masking.final_rate=0.15"]
"""Of those that learn from hidden tokens alone: first many, then as many as in the papers (docs/pretraining.md)."""
SLOWLY = ["optimizer.learning_rate=1.75e-4"]
"""Above, the loss goes on falling with the generator's, while the discriminator's vectors come to lie on one line."""
WARMED = "electra-warmed"
MEMBERS = {
    "bert": HIDES,
    "roberta": [*HIDES, "encoder.offset=1"],  # padding is 0 in this vocabulary
    "spanbert": HIDES,
    "albert": HIDES,
    "electra": SLOWLY,
    WARMED: [*SLOWLY, "encoder.embedding=256", "layout.length=128"],
    "gpt": [],
}
WARMING = [
    "optimizer.learning_rate=7e-4",
    "layout.length=32",
    "layout.kind=document_sentences",
    "masking.rate=0.4",
    "masking.replace={mask=0.8,random=0.1,keep=0.1}",
    "objective.replaced_token=false",
    "objective.masked_lm.weight=1",
    "schedule.kind=constant",
]
RANDOM = {"random": "bert-mini", "random-albert": "albert-mini", "random-gpt": "gpt-mini"}
FACTORS = (0.5, 1.0, 2.0)
"""Times the member's learning rate."""
SHARE = 8
TUNED = (1.0, 2.0, 4.0)
"""Times the rule's learning rate for pretrained weights (unmask.finetuning.rule)."""
CHOOSING = {"conll2003": ["budget.epochs=1"]}
"""Of the runs that choose: else they are as long as the others."""
NER, PAIRS = SHARED / "ner/conll2003", SHARED / "pairs/sick"
TASKS = {
    "conll2003": ("token-classification", "f1"),
    "sick-entailment": ("classification", "accuracy"),
    "sst2-2000": ("classification", "accuracy"),
}
COST_TOKENS, COST_STEPS, COST_ROUNDS = 4096, 25, 3


def recipe_of(member: str) -> str:
    """Return the name of a member's recipe."""
    return f"{member.split('-')[0]}-mini"


def run_of(
    member: str, corpus: Corpus, out: Path, settings: list[str], init: Path | None = None
) -> list[dict[str, Any]]:
    """Pretrain, or go on; return the log of the held-out part."""
    if not (out / "model").exists():
        recipe = unmask.read_recipe(recipe_of(member), parse_overrides([*SAME, *MEMBERS[member], *settings]))
        unmask.pretrain(recipe, corpus, out, init=init, resume=(out / "recipe.toml").exists())
    return logged(out, "heldout")


def out_of_context(run: Path, corpus: Corpus) -> float:
    """Return the loss of telling replaced tokens apart where all of them stand elsewhere, each with its label.

    What is not above the loss on the text itself has not been learnt from context.
    """
    model, recipe = load_model(run, dropout=0.0), unmask.read_recipe(run / "recipe.toml")
    learner, _ = build_learner(recipe, corpus.tokenizer.size, model)
    learner.eval()
    head, chance = learner.objectives["replaced_token"], torch.Generator().manual_seed(0)
    assert isinstance(head, ReplacedToken)
    feed = Feed(recipe.layout, recipe.masking, 0, corpus.tokenizer, learner.prepare)
    loss, tokens = 0.0, 0
    with torch.no_grad():
        for batch in feed.heldout(corpus.heldout, HELDOUT_TOKENS):
            filled, _ = head.before(model.encoder, batch)
            ids, replaced = filled.tokens.ids, filled.labels["replaced"]
            ordinary = (~torch.isin(ids, torch.tensor(sorted(corpus.tokenizer.special_ids)))).nonzero()[:, 0]
            order = torch.arange(len(ids))
            order[ordinary] = ordinary[torch.randperm(len(ordinary), generator=chance)]
            mixed = replace(filled.tokens, ids=ids[order])
            asked = replace(filled, tokens=mixed, labels={**filled.labels, "replaced": replaced[order]})
            loss += float(head.score(model.encoder, model.encoder(mixed), asked).sum)
            tokens += len(ids)
    return loss / tokens


def pretrain(member: str, corpus: Corpus, folder: Path, tokens: int) -> Path:
    """Search the learning rate where no budget has, train with the best one, and write the curves."""
    known = [run for run in read(RESULTS / "family.json").get("runs", []) if run.get("member") == member]
    out = folder / f"{member}-{tokens / 1e6:g}M"
    if (out / "model").exists() and any(run["budget"] == tokens for run in known):
        return out
    first, before = None, dict.fromkeys(("step", "tokens", "seconds", "passes"), 0)
    if member == WARMED:
        first = folder / f"{out.name}-first"
        run_of(member, corpus, first, [*WARMING, f"budget.tokens={SHORT * tokens:.0f}"])
        before = {name: logged(first)[-1][name] for name in before}
    rate = unmask.read_recipe(recipe_of(member), parse_overrides([*SAME, *MEMBERS[member]])).optimizer.learning_rate
    searched: dict[str, float] = known[0]["searched"] if known else {}
    for factor in FACTORS if not known else ():
        settings = [f"optimizer.learning_rate={factor * rate}", f"budget.tokens={tokens // SHARE}"]
        tried = run_of(member, corpus, folder / f"{member}-x{factor:g}", settings, first)
        searched[f"{factor * rate:.3g}"] = tried[-1]["loss"]
    best = float(min(searched, key=lambda rate: searched[rate]))
    settings = [f"optimizer.learning_rate={best}", f"budget.tokens={tokens - before['tokens']}"]
    curve = run_of(member, corpus, out, settings, first)
    last = logged(out)[-1]
    about = {name: before[name] + last[name] for name in before}
    curve = [{**line, "tokens": before["tokens"] + line["tokens"]} for line in curve]
    if "replaced_token_loss" in curve[-1]:
        about["out_of_context"] = out_of_context(out, corpus)
    add("family", {"member": member, "budget": tokens, "learning_rate": best, "searched": searched, **about,
                   "guess": logged(out, "guess")[0], "heldout": curve})  # fmt: skip
    for run in folder.glob(f"{member}-x*"):
        shutil.rmtree(run)
    return out


def files(task: str, folder: Path) -> tuple[Path, Path, Path]:
    """Return what a task is learnt from, what its learning rate is chosen on, and what it is tested on."""
    if task == "conll2003":
        return NER / "eng.train.xz", NER / "eng.testa.xz", NER / "eng.testb.xz"
    if task == "sick-entailment":
        return PAIRS / "SICK_train.txt.xz", PAIRS / "SICK_trial.txt", PAIRS / "SICK_test_annotated.txt.xz"
    return *split("sst2", 2000, folder), SHARED / "classification/sst2/dev.tsv"


class Bench:
    """Probes and fine-tunes what was not yet."""

    def __init__(self) -> None:
        self.done = [run for run in read(RESULTS / "family.json").get("runs", []) if "task" in run]

    def try_all(self, start: dict[str, Any], model: str, tokenizer: Path | None, task: str, seeds: list[int]) -> None:
        """Probe, choose a learning rate, and fine-tune with it."""
        kind, _ = TASKS[task]
        small = "linear" if kind == "token-classification" else "average"
        static = start["start"] == "static"
        layers = ["downstream.layers=[0]"] if static else ["downstream.layers=[-1]"] * (small == "average")
        about = {**start, "task": task}
        for seed in seeds:
            self.score({**about, "method": "probe", "seed": seed}, model, tokenizer, layers, small)
        if static:
            return
        settings = load_model(model, tokenizer=tokenizer).encoder.settings
        rule = defaults(kind, settings, examples=1, pretrained=True)["optimizer"]["learning_rate"]  # type: ignore[index]
        rates = {factor: ["dropout=0.1", f"optimizer.learning_rate={factor * rule:.2g}"] for factor in TUNED}
        tried = {}
        for factor, rate in rates.items():
            key = {**about, "method": "choosing", "seed": seeds[0], "factor": factor}
            tried[factor] = self.score(key, model, tokenizer, [*rate, *CHOOSING.get(task, [])])
        best = max(tried, key=lambda factor: tried[factor])
        for seed in seeds:
            self.score({**about, "method": "fine-tuned", "seed": seed, "factor": best}, model, tokenizer, rates[best])

    def score(
        self, key: dict[str, Any], model: str, tokenizer: Path | None, settings: list[str], frozen: str | None = None
    ) -> float:
        """Fine-tune, or train a small model on the frozen encoder; return the score on what the method looks at."""
        for run in self.done:
            if key.items() <= run.items():
                return float(run["score"])
        kind, metric = TASKS[key["task"]]
        begun = time.time()
        with tempfile.TemporaryDirectory() as name:
            train, held, test = files(key["task"], Path(name))
            data, out = [held if key["method"] == "choosing" else test], Path(name) / "run"
            unmask.finetune(
                kind,
                model,
                [train],
                out,
                dev=data,
                tokenizer=tokenizer,
                settings=parse_overrides([f"seed={key['seed']}", *settings]),
                frozen=frozen is not None,
                downstream=frozen,
                quiet=True,
            )
            score = float(read(out / "dev.json")["metrics"][metric])
        run = {**key, "metric": metric, "score": score, "seconds": round(time.time() - begun, 1)}
        add("family", run)
        self.done.append(run)
        return score


def measure(member: str, corpus: Corpus, steps: int) -> dict[str, float]:
    """Train a little and return time and operations a token, and the most memory that was held."""
    settings = ["layout.length=128", f"batch.tokens={COST_TOKENS}", f"budget.steps={steps}"]
    recipe = unmask.read_recipe(f"{member}-mini", parse_overrides([*SAME, *MEMBERS[member], *settings]))
    with tempfile.TemporaryDirectory() as name:
        unmask.pretrain(recipe, corpus, Path(name) / "run", quiet=True)
        lines = logged(Path(name) / "run")[2:]
    seconds = statistics.median(1 / line["tokens_per_second"] for line in lines)
    flops = statistics.median(line["flops_per_second"] / line["tokens_per_second"] for line in lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds_a_token": seconds, "flops_a_token": flops, "peak_mib": peak / 1024}


def cost(folder: Path, steps: int, rounds: int) -> None:
    """Measure all members, each in a process of its own, one after the other, several times."""
    found: dict[str, list[dict[str, float]]] = {member: [] for member in MEMBERS if member != WARMED}
    for _ in range(rounds):
        for member in found:
            command = [sys.executable, __file__, "--measure", member, "--runs", str(folder), "--steps", str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[member].append(json.loads(done.stdout.splitlines()[-1]))
            print(member, found[member][-1], flush=True)
    write("family_cost", {"tokens": COST_TOKENS, "steps": steps, "members": found})


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/family"), help="where everything is kept")
    parser.add_argument("--members", nargs="+", choices=[*MEMBERS, *RANDOM], default=[*MEMBERS, *RANDOM])
    parser.add_argument("--tokens", type=float, default=20e6, help="to pretrain on, for each")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS), help="none: pretrain alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cost", action="store_true", help="measure time and memory instead")
    parser.add_argument("--steps", type=int, default=COST_STEPS)
    parser.add_argument("--rounds", type=int, default=COST_ROUNDS)
    parser.add_argument("--measure", choices=MEMBERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    corpus = prepare(options.runs, HELDOUT, TRAIN, vocabulary=VOCABULARY)
    if options.measure:
        print(json.dumps(measure(options.measure, corpus, options.steps)))
        return
    if options.cost:
        cost(options.runs, options.steps, options.rounds)
        return
    budget = int(options.tokens)
    starts: list[tuple[dict[str, Any], str, Path | None]] = []
    for member in options.members:
        if member in RANDOM:
            starts.append(({"start": member}, f"random:{RANDOM[member]}", options.runs / "tokenizer"))
            continue
        model = str(pretrain(member, corpus, options.runs, budget))
        starts.append(({"start": member, "budget": budget}, model, None))
        if member == "bert":
            starts.append(({"start": "static", "budget": budget}, model, None))
    bench = Bench()
    for start, model, tokenizer in starts:
        for task in options.tasks:
            bench.try_all(start, model, tokenizer, task, options.seeds)


if __name__ == "__main__":
    main()
