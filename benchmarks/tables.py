"""Write the README's tables from benchmarks/results, and the learning curves into docs.

A table stands between `<!-- table NAME -->` and `<!-- end -->` in README.md or a page of docs. `--check` only compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import tables_of_quality as quality
import tables_of_speed as speed
from common import HERE, RESULTS, read

PAGES = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").glob("*.md"))]
CURVE = HERE.parent / "docs" / "bert-mini-30-minutes.png"
FAMILY = HERE.parent / "docs" / "family.png"


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "adapt_minilm": quality.adapt_minilm,
    "cmrc": quality.cmrc,
    "corpus": speed.corpus,
    "cost": speed.cost,
    "family": quality.family,
    "family_cost": speed.family_cost,
    "family_gain": quality.family_gain,
    "family_learnt": quality.family_learnt,
    "features": quality.features,
    "finetune_speed": speed.finetune_speed,
    "finetuning_rule": quality.finetuning_rule,
    "gpu": speed.gpu,
    "loss_parity": quality.loss_parity,
    "pairs": quality.pairs,
    "plateau": quality.plateau,
    "pretrain_mini": quality.pretrain_mini,
    "pretrain_speed": speed.pretrain_speed,
    "pretraining_pays": quality.pretraining_pays,
    "pretraining_pays_adapted": quality.pretraining_pays_encoder,
    "chinese": quality.pretraining_pays_encoder,
    "pretraining_pays_encoder": quality.pretraining_pays_encoder,
    "pretraining_pays_longer": quality.pretraining_pays_encoder,
    "pretraining_pays_longer-adapted": quality.pretraining_pays_encoder,
    "question_answering": quality.question_answering,
    "sentences": speed.sentences,
    "sst2": quality.sst2,
    "start": speed.start,
    "step_profile": speed.step_profile,
    "token_classification": quality.token_classification,
}


LISTS = ("sets", "members", "tasks", "cases", "seeds")
"""Options whose values are runs of their own."""

SOURCES = {"cost": "corpus", "family_gain": "family", "family_learnt": "family"}
"""Tables that are reckoned from the result of another benchmark."""


def fill(text: str) -> str:
    """Return a page with every table written anew."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        source = SOURCES.get(name, name)
        result = read(RESULTS / f"{source}.json")
        lines = TABLES[name](result) if result else ["(not measured yet)"]
        calls = [run["about"]["command"] for run in result["runs"]] if "runs" in result else [result.get("command")]
        commands = joined([call or f"python benchmarks/{source}.py" for call in calls])
        return "\n".join([f"<!-- table {name} -->", *lines, "", f"From {commands}.", "<!-- end -->"])

    return re.sub(r"<!-- table ([\w-]+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


def joined(calls: list[str]) -> str:
    """Return the commands, each once; those that differ in the values of one of `LISTS` are one command with all."""
    for name in LISTS:
        option = re.compile(rf" --{name}((?: \w[\w-]*)+)(?= --|$)")
        found: dict[tuple[str, ...], tuple[str, list[str]]] = {}
        for call in calls:
            given, rest = option.search(call), option.sub(f" --{name}", call)
            _, values = found.setdefault(tuple(sorted(rest.split(" --"))), (rest, []))
            values.extend(given[1].split() if given else ())
        calls = []
        for call, values in found.values():
            calls.append(re.sub(rf" --{name}(?= --|$)", " ".join([f" --{name}", *sorted(set(values))]), call))
    return ", ".join(f"`{call}`" for call in calls)


def draw() -> None:
    """Draw the learning curve of the 30-minute bert-mini."""
    from unmask.runs.plots import BLUE, ORANGE, figure, save

    result = read(RESULTS / "pretrain_mini.json")
    if not result:
        return
    drawing, (panel,) = figure(1, width=6)
    tokens = [line["tokens"] / 1e6 for line in result["heldout"]]
    accuracy = [100 * line["masked_lm_accuracy"] for line in result["heldout"]]
    panel.plot(tokens, accuracy, color=BLUE, marker="o", markersize=3, label="bert-mini")
    guess = 100 * result["guess"]["masked_lm_accuracy"]
    panel.axhline(guess, color=ORANGE, linestyle="--", label=f"always the most frequent token: {guess:.1f} %")
    panel.set(xlabel="million tokens", ylabel="held-out masked words guessed right, %", ylim=(0, None))
    panel.legend(frameon=False)
    save(drawing, CURVE)


def draw_family() -> None:
    """Draw the held-out learning curves of the family, side by side where they tell the same."""
    from unmask.runs.plots import figure, save

    runs: dict[str, dict[str, Any]] = {}
    for run in read(RESULTS / "family.json").get("runs", []):
        if "member" in run:
            known = runs.setdefault(run["member"], run)
            if run["budget"] > known["budget"]:  # else the first, where it was pretrained again
                runs[run["member"]] = run
    if not runs:
        return
    titles = (
        "hidden words guessed right, %",
        "replaced tokens told from others, %",
        "next words guessed right, %",
    )
    drawing, panels = figure(len(titles))
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xlabel="million tokens", title=title)
    hidden, replaced, following = panels
    told = {
        "masked_lm_accuracy": (hidden, ""),
        "generator_accuracy": (hidden, "'s generator"),
        "replaced_token_accuracy": (replaced, ""),
        "causal_lm_accuracy": (following, ""),
    }
    for run, (name, (panel, whose)) in product(runs.values(), told.items()):
        if name in run["heldout"][-1]:
            tokens = [line["tokens"] / 1e6 for line in run["heldout"]]
            (curve,) = panel.plot(tokens, [100 * line[name] for line in run["heldout"]], label=run["member"] + whose)
            if (same := name.replace("accuracy", "guess")) in run["heldout"][-1]:
                guess = [100 * line[same] for line in run["heldout"]]
                panel.plot(tokens, guess, "--", color=curve.get_color(), label="never replaced, beside it")
            panel.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    for panel in (hidden, following):
        panel.set_ylim(0, 1.25 * panel.get_ylim()[1])
    replaced.set_ylim(84, 96)  # the first point, by chance, is at one half
    save(drawing, FAMILY)


def main() -> None:
    """Write or compare."""
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf8")
        if (fresh := fill(text)) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(fresh, encoding="utf8")
    if "--check" in sys.argv:
        sys.exit(f"not what benchmarks/results say: {', '.join(stale)}; run make tables" if stale else 0)
    draw()
    draw_family()


if __name__ == "__main__":
    main()
