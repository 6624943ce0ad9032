"""Rows of the tables on time and memory: each function makes those of one result."""

from __future__ import annotations

import statistics
from typing import Any

from common import RESULTS, read


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


def cost(result: dict[str, Any]) -> list[str]:
    """What the papers' amounts of text cost here, reckoned from measured rates."""
    cases = {run["case"]: run for run in read(RESULTS / "pretrain_speed.json").get("runs", [])}
    if not {"mini-full128-bf16-0.1", "base-full128-bf16-0.1"} <= cases.keys():
        return ["(not measured yet)"]
    speeds = [cases[f"{size}-full128-bf16-0.1"]["median"]["unmask"] for size in ("mini", "base")]
    rate = max(rate["megabytes_per_second"] for rate in result["rates"] if rate["sentences"])
    large = result["memory"][-1]
    per_megabyte = large["building"]["tokens"] / large["megabytes"]
    lines = [
        "| text | tokens | building, hours | one pass of bert-mini, days | of bert-base, days | the paper's training |",
        "|---|---|---|---|---|---|",
    ]
    for name, gigabytes, trained in (("BERT's", 16, 42.6e9), ("RoBERTa's", 160, 2.1e12)):
        tokens = 1000 * gigabytes * per_megabyte
        days = [tokens / speed / 86400 for speed in speeds]
        years = trained / speeds[1] / 86400 / 365
        lines.append(
            f"| {name} {gigabytes} GB | {tokens / 1e9:.1f} G | {1000 * gigabytes / rate / 3600:.1f} | {days[0]:,.0f} "
            f"| {days[1]:,.0f} | {trained / 1e9:,.0f} G tokens: {years:,.0f} years of bert-base |"
        )
    return lines


def pretrain_speed(result: dict[str, Any]) -> list[str]:
    """Tokens a second of each engine and ratios, by case."""
    lines = [
        "| case | unmask, tokens/s | Trainer | Trainer, allocator tuned | times as fast | as its float32 "
        "| share of peak |",
        "|---|---|---|---|---|---|---|",
    ]
    defaults = {found["case"]: found["median"]["trainer"] for found in result["runs"]}
    for found in result["runs"]:
        size, data, precision, dropout = found["case"].split("-")
        default = defaults.get(found["case"].replace("bf16", "float32"))
        above = f"{found['median']['unmask'] / default:.1f}" if default and precision == "bf16" else ""
        text = {"var": "mixed lengths"}.get(data, f"rows of {data.removeprefix('full')}")
        rates = " | ".join(f"{found['median'][engine]:,.0f}" for engine in ("unmask", "trainer", "trainer-tuned"))
        ratio = f"{found['ratio']['trainer']:.1f}, {found['ratio']['trainer-tuned']:.1f}"
        lines.append(
            f"| bert-{size}, {text}, {precision}, dropout {float(dropout):g} | {rates} | {ratio} | {above} "
            f"| {100 * found['share_of_peak']:.0f} % |"
        )
    return lines


def step_profile(result: dict[str, Any]) -> list[str]:
    """Share of each kind of work in a step."""
    cases = result["seconds"]
    lines = ["| | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for kind in next(iter(cases.values())):
        if kind == "step":
            parts = [f"{1000 * found[kind]:.0f} ms" for found in cases.values()]
        else:
            parts = [f"{100 * found[kind] / found['step']:.0f} %" for found in cases.values()]
        lines.append(f"| {kind} | {' | '.join(parts)} |")
    return lines


def finetune_speed(result: dict[str, Any]) -> list[str]:
    """Seconds a step and accuracy of each engine."""
    lines = ["| engine | ms a step | times as long | accuracy, each seed |", "|---|---|---|---|"]
    for engine, runs in result["runs_of"].items():
        steps = statistics.median(run["seconds_per_step"] for run in runs)
        scores = ", ".join(f"{run['accuracy']:.1f}" for run in runs)
        lines.append(f"| {engine} | {1000 * steps:.0f} | {result['ratio'][engine]:.1f} | {scores} |")
    return lines


def start(result: dict[str, Any]) -> list[str]:
    """Seconds until an answer."""
    names = {
        "help": "`unmask --help`",
        "first_step": "first step of `unmask pretrain bert-mini`, budget in steps",
        "first_step_timed_run": "the same, budget in minutes",
        "import_torch": "only importing torch",
        "import_trainer": "only importing transformers' Trainer",
    }
    lines = ["| from the command to | seconds |", "|---|---|"]
    found = result["median"]
    return lines + [f"| {text} | {found[name]:.2f} |" for name, text in names.items() if name in found]


def gpu(result: dict[str, Any]) -> list[str]:
    """Throughput on a GPU."""
    lines = [f"On one {result['device']}:", ""]
    lines += ["| case | tokens/s | share of peak | Trainer | times as fast |", "|---|---|---|---|---|"]
    for case in result["cases"]:
        lines.append(
            f"| {case['case']} | {case['tokens_per_second']:,.0f} | {100 * case['share_of_peak']:.0f} % "
            f"| {case['trainer']:,.0f} | {case['ratio']:.1f} |"
        )
    return lines


def family_cost(result: dict[str, Any]) -> list[str]:
    """Time, operations and memory of a step of each member, as multiples of BERT's in the same round."""
    lines = ["| | time a token | operations a token | memory |", "|---|---|---|---|"]
    base = result["members"]["bert"]
    for member, runs in result["members"].items():
        ratios = (
            statistics.median(run[key] / other[key] for run, other in zip(runs, base, strict=True))
            for key in ("seconds_a_token", "flops_a_token", "peak_mib")
        )
        lines.append(f"| {member} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    tokens = statistics.median(1 / run["seconds_a_token"] for run in base)
    memory = statistics.median(run["peak_mib"] for run in base) / 1024
    steps = f"{result['steps']} steps of {result['tokens']:,} tokens, {len(base)} rounds, {result['threads']} thread"
    steps += "s" * (result["threads"] > 1)
    return [*lines, "", f"BERT itself: {tokens:,.0f} tokens/s, {memory:.1f} GiB ({steps})."]
