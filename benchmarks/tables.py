"""Write the README's tables from benchmarks/results, and the learning curve into docs.

A table stands between `<!-- table NAME -->` and `<!-- end -->` in README.md or a page of docs. `--check` only compares.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

from common import HERE, RESULTS, read

PAGES = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").glob("*.md"))]
CURVE = HERE.parent / "docs" / "bert-mini-30-minutes.png"


def sst2(result: dict[str, Any]) -> list[str]:
    """Accuracy on the dev set by start, mean and standard deviation over seeds, minutes a seed."""
    titles = "| start | seeds | dev accuracy, mean ± s.d. | each seed | minutes a seed (threads) |"
    lines = [titles, "|---|---|---|---|---|"]
    names = {"minilm": "MiniLM checkpoint", "random": "random weights, same body"}
    for start, name in names.items():
        runs = sorted((run for run in result["runs"] if run["start"] == start), key=lambda run: run["seed"])
        if not runs:
            continue
        scores = [run["accuracy"] for run in runs]
        spread = f"{statistics.mean(scores):.1f}" + (f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else "")
        each = ", ".join(f"{score:.1f}" for score in scores)
        minutes = ", ".join(f"{run['seconds'] / 60:.0f} ({run['about']['threads']})" for run in runs)
        lines.append(f"| {name} | {len(runs)} | {spread} | {each} | {minutes} |")
    return lines


def pretrain_mini(result: dict[str, Any]) -> list[str]:
    """Held-out scores before and after, beside the guess."""
    first, last = result["heldout"][0], result["heldout"][-1]
    guess = 100 * result["guess"]["masked_lm_accuracy"]
    lines = ["| held out | before | after |", "|---|---|---|"]
    for name in ("masked_lm_accuracy", "next_sentence_accuracy"):
        text = name.replace("_", " ").replace("lm", "LM")
        lines.append(f"| {text} | {100 * first[name]:.1f} % | {100 * last[name]:.1f} % |")
    lines.append(f"| masked LM loss (nats) | {first['masked_lm_loss']:.2f} | {last['masked_lm_loss']:.2f} |")
    lines.append(f"| always guessing “{result['most_frequent_token']}” | {guess:.1f} % | {guess:.1f} % |")
    lines.append("")
    lines.append(
        f"{result['steps']:,} steps, {result['tokens'] / 1e6:.1f} million tokens in {result['seconds'] / 60:.0f} "
        f"minutes ({result['tokens'] / result['seconds']:,.0f} tokens/s, {result['threads']} threads)."
    )
    if result["seconds"] > 63 * result["minutes"]:
        reached = [line for line in result["heldout"] if line["seconds"] <= 60 * result["minutes"]][-1]
        lines.append(
            f"They were planned for {result['minutes']:g} minutes, but other programs slowed the machine down; after "
            f"{reached['seconds'] / 60:.0f} minutes the accuracy was {100 * reached['masked_lm_accuracy']:.1f} %."
        )
    return lines


def adapt_minilm(result: dict[str, Any]) -> list[str]:
    """Held-out masked-LM accuracy of both starts."""
    names = {"minilm": "MiniLM checkpoint, new masked-LM head", "random": "random weights, same body"}
    lines = ["| start | before | after | steps | minutes |", "|---|---|---|---|---|"]
    for start, name in names.items():
        run = result["starts"][start]
        before, after = (100 * run["heldout"][at]["masked_lm_accuracy"] for at in (0, -1))
        lines.append(f"| {name} | {before:.1f} % | {after:.1f} % | {run['steps']} | {run['seconds'] / 60:.0f} |")
    lines.append(f"| always the most frequent token | {100 * result['guess']['masked_lm_accuracy']:.1f} % | | | |")
    return lines


def sentences(result: dict[str, Any]) -> list[str]:
    """Quality and speed of sentence segmenters."""
    lines = ["| library | language | F1 | sentences found exactly | MB/s |", "|---|---|---|---|---|"]
    for row in result["values"]:
        lines.append(
            f"| {row['library']} {result['libraries'].get(row['library'], '')} | {row['language'].title()} "
            f"| {row['f1']:.3f} | {row['exact']} of {row['sentences']} | {row['megabytes_per_second']:.3g} |"
        )
    return lines


def corpus(result: dict[str, Any]) -> list[str]:
    """Speed of building, memory of building and reading, and the start on a large corpus."""
    lines = ["| workers | sentences found | MB/s of text |", "|---|---|---|"]
    for rate in result["rates"]:
        found = "yes" if rate["sentences"] else "no"
        lines.append(f"| {rate['workers']} | {found} | {rate['megabytes_per_second']:.1f} |")
    lines += ["", "| text, MB | peak memory of building, MB | of each worker | of reading |", "|---|---|---|---|"]
    for row in result["memory"]:
        building, reading = row["building"], row["reading"]
        lines.append(
            f"| {row['megabytes']:.0f} | {building['memory']:.0f} | {building['worker_memory']:.0f} "
            f"| {reading['memory']:.0f} |"
        )
    start = result["start"]
    lines.append("")
    lines.append(
        f"A corpus of {result['shards']:,} shards opens in {start['open_seconds']:.1f} s; its first samples are there "
        f"{start['first_samples_seconds']:.1f} s later."
    )
    return lines


def finetuning_rule(result: dict[str, Any]) -> list[str]:
    """Every run on splits of training data."""
    lines = [
        "| data | start | examples | learning rate | × rule | passes | seed | score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in sorted(
        result["runs"], key=lambda run: (run["model"], run["data"], run["passes"], run["factor"], run["seed"])
    ):
        lines.append(
            f"| {run['data']} | {run['model']} | {run['examples']:,} | {run['learning_rate']:.2g} | {run['factor']:g} "
            f"| {run['passes']:g} | {run['seed']} | {run['score']:.1f} |"
        )
    return lines


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "adapt_minilm": adapt_minilm,
    "corpus": corpus,
    "finetuning_rule": finetuning_rule,
    "pretrain_mini": pretrain_mini,
    "sentences": sentences,
    "sst2": sst2,
}


def fill(text: str) -> str:
    """Return a page with every table written anew."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        result = read(RESULTS / f"{name}.json")
        lines = TABLES[name](result) if result else ["(not measured yet)"]
        calls = [run["about"]["command"] for run in result["runs"]] if "runs" in result else [result.get("command")]
        commands = ", ".join(f"`{call or f'python benchmarks/{name}.py'}`" for call in dict.fromkeys(calls))
        return "\n".join([f"<!-- table {name} -->", *lines, "", f"From {commands}.", "<!-- end -->"])

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


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


if __name__ == "__main__":
    main()
