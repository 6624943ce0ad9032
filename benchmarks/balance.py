"""How long do processes wait for the slowest of them, if each has its share of a step?

Simulated from the lengths of real samples: the documentation, cut by the layout of a recipe. A step is divided as
training does it (training/balance.py) and, for comparison, by giving each process every n-th sample by length. The
ratio is the cost of the slowest process to the mean, in the mean over steps: 1 is no waiting.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import HERE, add, parse

from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.checkpoints.check import on_meta
from unmask.objectives.flops import cost_of_lengths
from unmask.recipes.recipe import read_recipe
from unmask.training.balance import divide
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.start import build_learner

RECIPES = ["bert-mini", "bert-base", "modernbert-mini"]
"""Recipes that cut text into pairs of up to 128 and of up to 512 tokens, and into sentences of up to 128."""
Costs = list[list[float]]
"""The cost of each sample, in order, of each step."""


def costs_of(name: str, texts: Sequence[Path], sequences: int, steps: int) -> Costs:
    """Return the costs of the samples of a recipe."""
    recipe = read_recipe(name)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_wordpiece([path.read_text(encoding="utf8") for path in texts], size=8000)
        corpus = write_corpus(texts, tokenizer, Path(folder) / "corpus")
        with on_meta():
            learner, _ = build_learner(recipe, tokenizer.size, None)
        source, cost = (
            build_curriculum(recipe, tokenizer, learner).source(corpus.train),
            cost_of_lengths(learner.encoder),
        )
        cursor, taken = source.start, Costs()
        for _ in range(steps):
            samples, cursor = source.take(cursor, sequences=sequences)
            taken.append([cost(length) for length in sorted(map(len, samples))])
    return taken


def slowest(costs: Sequence[float], parts: Sequence[Sequence[int]]) -> float:
    """Return the cost of the slowest process, as a multiple of the mean."""
    loads = [sum(costs[index] for index in part) for part in parts]
    return max(loads) / statistics.fmean(loads)


def main() -> None:
    """Simulate all cases."""
    options = parse(__doc__, RECIPES, processes=[8, 64], each=[4, 16], steps=10, toy=False, runs=HERE.parent / "runs")
    texts = sorted((HERE.parent / "docs").glob("*.md"))
    for name in options.names:
        for processes in options.processes:
            for each in options.each:
                steps = costs_of(name, texts, processes * each, options.steps)
                every = [range(rank, processes * each, processes) for rank in range(processes)]
                record = {
                    "by_length": statistics.fmean(slowest(costs, every) for costs in steps),
                    "by_cost": statistics.fmean(slowest(costs, divide(costs, processes)) for costs in steps),
                }
                add("balance", {"recipe": name, "processes": processes, "each": each}, record)


if __name__ == "__main__":
    main()
