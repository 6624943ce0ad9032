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


def pairs(result: dict[str, Any]) -> list[str]:
    """Official scores of pairs and acceptability by set and start, mean and standard deviation over seeds."""
    official = {
        "sick-relatedness": ("pearson", "spearman"),
        "mrpc": ("accuracy", "f1"),
        "cola": ("matthews_correlation",),
    }
    lines = ["| set | start | seeds | score | mean ± s.d. | minutes a seed |", "|---|---|---|---|---|---|"]
    for name, start in dict.fromkeys((run["set"], run["start"]) for run in result["runs"]):
        runs = [run for run in result["runs"] if (run["set"], run["start"]) == (name, start)]
        minutes = statistics.mean(run["seconds"] for run in runs) / 60
        for metric in official.get(name, ("accuracy",)):
            values = [run["metrics"][metric] for run in runs]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            score = f"{metric.replace('_', ' ')} | {statistics.mean(values):.1f}{spread}"
            lines.append(f"| {name} | {start} | {len(runs)} | {score} | {minutes:.1f} |")
    return lines


def token_classification(result: dict[str, Any]) -> list[str]:
    """F1 over entities on the test set by data and start, mean and standard deviation over seeds."""
    titles = "| data | start | seeds | test F1, mean ± s.d. | each seed | minutes a seed (threads) |"
    lines = [titles, "|---|---|---|---|---|---|"]
    cases = dict.fromkeys((run["data"], run["each"], run["start"]) for run in result["runs"])
    names = {"minilm": "MiniLM checkpoint", "random": "random weights, same body"}
    for data, each, start in cases:
        runs = [run for run in result["runs"] if (run["data"], run["start"]) == (data, start)]
        runs.sort(key=lambda run: run["seed"])
        scores = [run["metrics"]["f1"] for run in runs]
        spread = f"{statistics.mean(scores):.1f}" + (f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else "")
        shown = ", ".join(f"{score:.1f}" for score in scores)
        minutes = ", ".join(f"{run['seconds'] / 60:.0f} ({run['about']['threads']})" for run in runs)
        part = data if each == 1 else f"{data}, 1 sentence in {each}"
        lines.append(f"| {part} | {names.get(start, start)} | {len(runs)} | {spread} | {shown} | {minutes} |")
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


def pretrain_speed(result: dict[str, Any]) -> list[str]:
    """Tokens a second of each engine and ratios, by case."""
    lines = [
        "| case | unmask, tokens/s | Trainer | Trainer, allocator tuned | times as fast | share of peak |",
        "|---|---|---|---|---|---|",
    ]
    for found in result["runs"]:
        size, data, precision, dropout = found["case"].split("-")
        text = {"var": "mixed lengths"}.get(data, f"rows of {data.removeprefix('full')}")
        rates = " | ".join(f"{found['median'][engine]:,.0f}" for engine in ("unmask", "trainer", "trainer-tuned"))
        ratio = f"{found['ratio']['trainer']:.1f}, {found['ratio']['trainer-tuned']:.1f}"
        lines.append(
            f"| bert-{size}, {text}, {precision}, dropout {float(dropout):g} | {rates} | {ratio} "
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


def loss_parity(result: dict[str, Any]) -> list[str]:
    """The held-out loss of both engines along the way."""
    ours, theirs = (result["curves"].get(name, []) for name in ("unmask bf16", "trainer float32"))
    lines = ["| million tokens | unmask, bf16 | Trainer, float32 | difference |", "|---|---|---|---|"]
    for line in theirs:
        mine = min(ours, key=lambda other: abs(other["tokens"] - line["tokens"]))
        apart = mine["masked_lm_loss"] / line["masked_lm_loss"] - 1
        lines.append(
            f"| {line['tokens'] / 1e6:.1f} | {mine['masked_lm_loss']:.3f} | {line['masked_lm_loss']:.3f} "
            f"| {100 * apart:+.1f} % |"
        )
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
        "import_trainer": "only importing transformers' Trainer",
    }
    lines = ["| from the command to | seconds |", "|---|---|"]
    return lines + [f"| {text} | {result['median'][name]:.2f} |" for name, text in names.items()]


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


def pretraining_pays(result: dict[str, Any]) -> list[str]:
    """Scores of both starts and their difference."""
    lines = [
        "| examples | pretrained, mean of seeds | random | difference, 95 % interval | rates (× rule) |",
        "|---|---|---|---|---|",
    ]
    runs = [run for run in result["runs"] if not run["choosing"]]
    for examples in sorted({run["examples"] for run in runs}):
        some = {name: [run for run in runs if run["examples"] == examples and run["start"] == name] for name in STARTS}
        if min(map(len, some.values())) < 2:
            continue
        scores = {name: [run["accuracy"] for run in found] for name, found in some.items()}
        means = {name: statistics.mean(values) for name, values in scores.items()}
        low, high = welch(scores["pretrained"], scores["random"])
        factors = ", ".join(f"{found[0]['factor']:g}" for found in some.values())
        lines.append(
            f"| {'all' if examples > 67_000 else f'{examples:,}'} | {means['pretrained']:.1f} | {means['random']:.1f} "
            f"| {means['pretrained'] - means['random']:+.1f} [{low:+.1f}, {high:+.1f}] | {factors} |"
        )
    return lines


STARTS = ("pretrained", "random")


def pretraining_pays_encoder(result: dict[str, Any]) -> list[str]:
    """The held-out curve of the encoder that pretraining_pays.py fine-tunes, every fifth part of it."""
    lines = ["| million tokens | held-out loss (nats) | hidden words guessed right |", "|---|---|---|"]
    heldout = result["heldout"]
    for place in range(6):
        line = heldout[place * (len(heldout) - 1) // 5]
        accuracy = 100 * line["masked_lm_accuracy"]
        lines.append(f"| {line['tokens'] / 1e6:.1f} | {line['masked_lm_loss']:.2f} | {accuracy:.1f} % |")
    guess = 100 * result["guess"]["masked_lm_accuracy"]
    lines += [
        f"| always the most frequent piece | | {guess:.1f} % |",
        "",
        f"{result['step']:,} steps, {result['tokens'] / 1e6:.1f} million tokens ({result['passes']:.2f} passes) in "
        f"{result['seconds'] / 60:.0f} minutes ({result['threads']} threads).",
    ]
    return lines


def question_answering(result: dict[str, Any]) -> list[str]:
    """Scores on SQuAD's dev set by variant, each seed a row."""
    lines = [
        "| questions | seed | exact match | F1 [95 %] | F1 with answer, without | passes | minutes (threads) |",
        "|---|---|---|---|---|---|---|",
    ]
    names = {"always": "all with an answer", "none": "a third without"}
    for run in sorted(result["runs"], key=lambda run: (run["variant"], run["seed"])):
        if run["set"] or not run["dev"]:
            continue
        dev = run["dev"]
        low, high = dev["intervals"]["f1"]
        apart = ", ".join(f"{scores['f1']:.1f}" for scores in dev.get("by_kind", {}).values())
        lines.append(
            f"| {names[run['variant']]} | {run['seed']} | {dev['metrics']['exact_match']:.1f} "
            f"| {dev['metrics']['f1']:.1f} [{low:.1f}, {high:.1f}] | {apart} | {run['passes']:.0f} "
            f"| {run['seconds'] / 60:.0f} ({run['about']['threads']}) |"
        )
    return lines


def features(result: dict[str, Any]) -> list[str]:
    """Scores of fine-tuning and of small models on frozen features, mean and standard deviation over seeds."""
    runs = result["runs"]
    columns = sorted({(run["data"], run["start"]) for run in runs}, reverse=True)
    names = ", ".join(f"{data} ({start})" for data, start in columns)
    lines = [f"| | {names.replace(', ', ' | ')} |", "|---|" + "---|" * len(columns)]
    for method in dict.fromkeys(run["method"] for run in runs):
        cells = []
        for column in columns:
            found = [run for run in runs if (run["data"], run["start"]) == column and run["method"] == method]
            scores = [run["score"] for run in found]
            mean = f"{statistics.mean(scores):.1f}" if scores else ""
            cells.append(mean + (f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    lines += ["", f"Means ± standard deviations over {len({run['seed'] for run in runs})} seeds."]
    return lines


def welch(one: list[float], other: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two means (Welch 1947)."""
    from scipy import stats

    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "adapt_minilm": adapt_minilm,
    "corpus": corpus,
    "cost": cost,
    "features": features,
    "finetune_speed": finetune_speed,
    "finetuning_rule": finetuning_rule,
    "gpu": gpu,
    "loss_parity": loss_parity,
    "pairs": pairs,
    "pretrain_mini": pretrain_mini,
    "pretrain_speed": pretrain_speed,
    "pretraining_pays": pretraining_pays,
    "pretraining_pays_encoder": pretraining_pays_encoder,
    "question_answering": question_answering,
    "sentences": sentences,
    "sst2": sst2,
    "start": start,
    "step_profile": step_profile,
    "token_classification": token_classification,
}


SOURCES = {"cost": "corpus"}
"""Tables that are reckoned from the result of another benchmark."""


def fill(text: str) -> str:
    """Return a page with every table written anew."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        source = SOURCES.get(name, name)
        result = read(RESULTS / f"{source}.json")
        lines = TABLES[name](result) if result else ["(not measured yet)"]
        calls = [run["about"]["command"] for run in result["runs"]] if "runs" in result else [result.get("command")]
        commands = ", ".join(f"`{call or f'python benchmarks/{source}.py'}`" for call in dict.fromkeys(calls))
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
