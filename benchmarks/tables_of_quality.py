"""Rows of the tables on what was learnt: each function makes those of one result."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from itertools import product, zip_longest
from typing import Any


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
        spread = _spread(scores)
        each = ", ".join(f"{score:.1f}" for score in scores)
        minutes = ", ".join(f"{run['seconds'] / 60:.0f} ({run['about']['threads']})" for run in runs)
        lines.append(f"| {name} | {len(runs)} | {spread} | {each} | {minutes} |")
    return lines


def pairs(result: dict[str, Any]) -> list[str]:
    """Official scores of pairs and acceptability by set and start: the spread over seeds, or of one the interval."""
    official = {
        "sick-relatedness": ("pearson", "spearman"),
        "mrpc": ("accuracy", "f1"),
        "cola": ("matthews_correlation",),
    }
    titles = "| set | start | seeds | score | mean ± s.d., or [95 %] of one seed | minutes a seed (threads) |"
    lines = [titles, "|---|---|---|---|---|---|"]
    sets, starts = (list(dict.fromkeys(run[key] for run in result["runs"])) for key in ("set", "start"))
    cases = {(run["set"], run["start"]) for run in result["runs"]}
    for name, start in sorted(cases, key=lambda case: (sets.index(case[0]), starts.index(case[1]))):
        runs = [run for run in result["runs"] if (run["set"], run["start"]) == (name, start)]
        seconds = (max(run["seconds"], run["step_seconds"]) for run in runs)  # of a resumed run the steps alone
        minutes = ", ".join(
            "suspended on the way" if run.get("suspended") else f"{spent / 60:.0f} ({run['about']['threads']})"
            for spent, run in zip(seconds, runs, strict=True)
        )
        for metric in official.get(name, ("accuracy",)):
            values = [run["metrics"][metric] for run in runs]
            low, high = runs[0]["intervals"][metric]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else f" [{low:.1f}, {high:.1f}]"
            score = f"{metric.replace('_', ' ')} | {statistics.mean(values):.1f}{spread}"
            lines.append(f"| {name} | {start} | {len(runs)} | {score} | {minutes} |")
    return lines


def token_classification(result: dict[str, Any]) -> list[str]:
    """F1 over entities on the test set by data and start: the spread over seeds, or of one the interval."""
    spreads = "test F1, mean ± s.d., or [95 %] of one seed"
    titles = f"| data | start | {spreads} | minus random [95 %] | each seed | minutes a seed (threads) |"
    lines = [titles, "|---|---|---|---|---|---|"]
    cases = dict.fromkeys((run["data"], run["each"], run["start"], run["body"]) for run in result["runs"])
    names = {"minilm": "MiniLM checkpoint"}
    for data, each, start, body in sorted(cases, key=lambda case: (case[0], case[2] == "random")):
        case = (data, start, body)
        runs = [run for run in result["runs"] if (run["data"], run["start"], run["body"]) == case]
        from_random = f"random weights, body of {'MiniLM' if body == 'model' else body}"
        title = from_random if start == "random" else names.get(start, start)
        runs.sort(key=lambda run: run["seed"])
        scores = [run["metrics"]["f1"] for run in runs]
        low, high = runs[0]["intervals"]["f1"]
        spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else f" [{low:.1f}, {high:.1f}]"
        bodies = (body, start)  # a run's own, or the one that was named
        random = [run for run in result["runs"] if run["data"] == data and run["start"] == "random"]
        others = [run for run in random if run["body"] in bodies]
        above = "" if start == "random" else difference(scores, [run["metrics"]["f1"] for run in others])
        shown = ", ".join(f"{score:.1f}" for score in scores)
        minutes = ", ".join(f"{run['seconds'] / 60:.0f} ({run['about']['threads']})" for run in runs)
        part = data if each == 1 else f"{data}, 1 sentence in {each}"
        lines.append(f"| {part} | {title} | {statistics.mean(scores):.1f}{spread} | {above} | {shown} | {minutes} |")
    return lines


def question_answering(result: dict[str, Any]) -> list[str]:
    """Scores on SQuAD's dev set by variant and start, each seed a row."""
    lines = [
        "| questions | start | seed | exact match | F1 [95 %] | F1 with answer, without | passes | minutes (threads) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = {"always": "all with an answer", "none": "a third without"}
    for run in sorted(result["runs"], key=lambda run: (run["variant"], run["start"], run["seed"])):
        if run["set"] or not run["dev"]:
            continue
        dev = run["dev"]
        low, high = dev["intervals"]["f1"]
        apart = ", ".join(f"{scores['f1']:.1f}" for scores in dev.get("by_kind", {}).values())
        lines.append(
            f"| {names[run['variant']]} | {run['start']} | {run['seed']} | {dev['metrics']['exact_match']:.1f} "
            f"| {dev['metrics']['f1']:.1f} [{low:.1f}, {high:.1f}] | {apart} | {run['passes']:.0f} "
            f"| {run['seconds'] / 60:.0f} ({run['about']['threads']}) |"
        )
    return lines


def cmrc(result: dict[str, Any]) -> list[str]:
    """Scores on CMRC 2018's dev set, each seed a row."""
    lines = ["| seed | exact match | F1 [95 %] | passes | minutes (threads) |", "|---|---|---|---|---|"]
    for run in result["runs"]:
        scores, (low, high) = run["dev"]["metrics"], run["dev"]["intervals"]["f1"]
        lines.append(
            f"| {run['seed']} | {scores['exact_match']:.1f} | {scores['f1']:.1f} [{low:.1f}, {high:.1f}] "
            f"| {run['passes']:.0f} | {run['seconds'] / 60:.0f} ({run['about']['threads']}) |"
        )
    return lines


def features(result: dict[str, Any]) -> list[str]:
    """Scores of fine-tuning and of small models on frozen features, mean and deviation over seeds, minutes of one."""
    runs = result["runs"]
    columns = sorted({(run["data"], run["start"]) for run in runs}, reverse=True)
    names = ", ".join(f"{data} ({start})" for data, start in columns)
    lines = [f"| | {names.replace(', ', ' | ')} |", "|---|" + "---|" * len(columns)]
    for method in dict.fromkeys(run["method"] for run in runs):
        cells = []
        for column in columns:
            found = [run for run in runs if (run["data"], run["start"]) == column and run["method"] == method]
            scores = [run["score"] for run in found]
            minutes = statistics.mean(run["seconds"] for run in found) / 60 if found else 0
            cells.append(f"{_spread(scores)} ({minutes:.0f} min)" if found else "")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    seeds = len({run["seed"] for run in runs})
    lines += ["", "One seed." if seeds == 1 else f"Means ± standard deviations over {seeds} seeds."]
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


def loss_parity(result: dict[str, Any]) -> list[str]:
    """The held-out loss of both engines along the way."""
    ours, theirs = (result["curves"].get(name, []) for name in ("unmask bf16", "trainer float32"))
    lines = ["| million tokens | unmask, bf16 | Trainer, float32 | difference |", "|---|---|---|---|"]
    for line, following in zip_longest(theirs, theirs[1:]):
        if following and following["tokens"] < 1.01 * line["tokens"]:  # the last evaluation comes right after
            continue
        mine = min(ours, key=lambda other: abs(other["tokens"] - line["tokens"]))
        apart = mine["masked_lm_loss"] / line["masked_lm_loss"] - 1
        lines.append(
            f"| {line['tokens'] / 1e6:.1f} | {mine['masked_lm_loss']:.3f} | {line['masked_lm_loss']:.3f} "
            f"| {100 * apart:+.1f} % |"
        )
    return lines


def pretraining_pays(result: dict[str, Any]) -> list[str]:
    """Scores of every start, and how far they are above those of random weights."""
    lines = [
        "| examples | start | dev accuracy, mean ± s.d. | minus random, 95 % interval | seeds | rate (× rule) |",
        "|---|---|---|---|---|---|",
    ]
    runs = [run for run in result["runs"] if not run["choosing"]]
    for examples in sorted({run["examples"] for run in runs}):
        some = [run for run in runs if run["examples"] == examples]
        for start in ("longer-adapted", "longer", "adapted", "pretrained", "random"):
            for factor in sorted({run["factor"] for run in some if run["start"] == start}):
                scores = _scores(some, start, factor)
                if len(scores) < 2:
                    continue
                others = (_scores(some, "random", run["factor"]) for run in some if run["start"] == "random")
                random = max(others, key=statistics.mean)  # at its best rate
                above = "" if start == "random" else difference(scores, random)
                lines.append(
                    f"| {'all' if examples > 67_000 else f'{examples:,}'} | {start} | {statistics.mean(scores):.1f} ± "
                    f"{statistics.stdev(scores):.1f} | {above} | {len(scores)} | {factor:g} |"
                )
    return lines


def _scores(runs: list[dict[str, Any]], start: str, factor: float) -> list[float]:
    return [run["accuracy"] for run in runs if (run["start"], run["factor"]) == (start, factor)]


def pretraining_pays_encoder(result: dict[str, Any]) -> list[str]:
    """The held-out curve of an encoder that pretraining_pays.py fine-tunes, every fifth part of it."""
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


def plateau(result: dict[str, Any]) -> list[str]:
    """The held-out loss with all that shortens the plateau, without one of it, and with an idea of the family."""
    names = {
        "all": "all three",
        "long": "128 tokens from the start",
        "few-hidden": "15 % hidden from the start",
        "large-steps": "steps of 4,096 tokens",
        "pairs": "all three, and sentence pairs",
        "ngrams": "all three, and n-grams hidden",
        "spans": "all three, and spans hidden",
        "narrow": "all three, and ALBERT's embeddings of width 128",
        "narrow-electra": "all three, and ELECTRA's, projected by larger weights (Glorot's rule)",
        "shared": "all three, and one layer in all places",
    }
    lines = ["| | tokens | loss | guessed right | minutes (threads) |", "|---|---|---|---|---|"]
    runs = {run["case"]: run for run in result["runs"]}
    for name, title in names.items():
        if run := runs.get(name):
            loss, right = (run["end"][f"masked_lm_{what}"] for what in ("loss", "accuracy"))
            minutes = f"{run['seconds'] / 60:.0f} ({run['about']['threads']})"
            lines.append(f"| {title} | {run['tokens'] / 1e6:.1f} M | {loss:.2f} | {100 * right:.1f} % | {minutes} |")
    return lines


FAMILY_TASKS = {"conll2003": "CoNLL-2003 F1", "sick-entailment": "SICK", "sst2-2000": "SST-2, 2,000"}
FAMILY_ROWS = (
    "bert",
    "roberta",
    "spanbert",
    "albert",
    "electra",
    "electra-warmed",
    "gpt",
    "random",
    "random-albert",
    "random-gpt",
    "static",
)
FAMILY_COLUMNS = list(product(FAMILY_TASKS, ("probe", "fine-tuned")))


Start = tuple[str, int]
"""What is fine-tuned, and the tokens that it was pretrained on: 0 are random weights."""


def family_learnt(result: dict[str, Any]) -> list[str]:
    """What each member learnt of its own objectives, on held-out text."""
    lines = ["| | learning rate | held out | minutes (threads) |", "|---|---|---|---|"]
    runs = {(run["member"], run["budget"]): run for run in result["runs"] if "member" in run}
    for start in sorted(runs, key=_family_order):
        run, last = runs[start], runs[start]["heldout"][-1]
        parts = [name.removesuffix("_loss") for name in last if name.endswith("_loss")]
        told = [
            f"{part.replace('_', ' ')} {last[f'{part}_loss']:.2f} ({100 * last[f'{part}_accuracy']:.1f} %"
            + (f", never replaced {100 * last[f'{part}_guess']:.1f} %)" if f"{part}_guess" in last else ")")
            for part in parts
        ]
        if "out_of_context" in run:
            told.append(f"among other words {run['out_of_context']:.2f}")
        minutes = f"{run['seconds'] / 60:.0f} ({run['about']['threads']})"
        lines.append(f"| {_family_title(start)} | {run['learning_rate']:.2g} | {', '.join(told)} | {minutes} |")
    return lines


def family(result: dict[str, Any]) -> list[str]:
    """What each member is good for."""
    scores, chosen = _family_scores(result)

    def cell(start: Start, task: str, method: str) -> str:
        spread = _spread(scores.get((start, task, method), []))
        factor = chosen.get((start, task)) if method == "fine-tuned" else None
        return f"{spread} (× {factor:g})" if spread and factor else spread

    return _family_table({start for start, _, _ in scores}, cell)


def family_gain(result: dict[str, Any]) -> list[str]:
    """What each start scores above random weights, by the same method."""
    scores, _ = _family_scores(result)

    def cell(start: Start, task: str, method: str) -> str:
        random = (f"random-{start[0]}" if start[0] in ("albert", "gpt") else "random", 0)
        return difference(scores.get((start, task, method), []), scores.get((random, task, method), []))

    return _family_table({start for start, _, _ in scores if start[1]}, cell)


def _family_table(starts: set[Start], cell: Callable[[Start, str, str], str]) -> list[str]:
    titles = ["", *(f"{FAMILY_TASKS[task]}, {method}" for task, method in FAMILY_COLUMNS)]
    rows = [
        [_family_title(start), *(cell(start, *column) for column in FAMILY_COLUMNS)]
        for start in sorted(starts, key=_family_order)
    ]
    lines = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return [lines[0], "|---" * len(titles) + "|", *lines[1:]]


def _family_order(start: Start) -> tuple[int, int]:
    return FAMILY_ROWS.index(start[0]), start[1]


def _family_title(start: Start) -> str:
    name, budget = start
    return f"{name}, {budget / 1e6:g} M" if budget else name


Scores = dict[tuple[Start, str, str], list[float]]


def _family_scores(result: dict[str, Any]) -> tuple[Scores, dict[tuple[Start, str], float]]:
    """The scores of each start, task and method, and the factor of the learning rate that was chosen in fine-tuning."""
    runs = [((run["start"], run.get("budget", 0)), run) for run in result["runs"] if "task" in run]
    tried: dict[tuple[Start, str], dict[float, float]] = {}
    for start, run in runs:
        if run["method"] == "choosing":
            tried.setdefault((start, run["task"]), {})[run["factor"]] = run["score"]
    chosen = {key: max(sorted(factors), key=lambda factor: factors[factor]) for key, factors in tried.items()}
    scores: Scores = {}
    for start, run in runs:
        best = chosen.get((start, run["task"]))
        if run["method"] == "probe" or (run["method"] == "fine-tuned" and run["factor"] == best):
            scores.setdefault((start, run["task"], run["method"]), []).append(run["score"])
    return scores, chosen


def _spread(scores: list[float]) -> str:
    if len(scores) < 2:
        return "".join(f"{score:.1f}" for score in scores)
    return f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}"


def difference(scores: list[float], others: list[float]) -> str:
    """Return the difference of two means with its 95 % interval (Welch 1947); nothing of single runs."""
    from scipy import stats

    if min(len(scores), len(others)) < 2:
        return ""
    with warnings.catch_warnings():  # of seeds that score the same, which is what happened
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = stats.ttest_ind(scores, others, equal_var=False).confidence_interval(0.95)
    apart = statistics.mean(scores) - statistics.mean(others)
    return f"{apart:+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]"
