"""Words about a run: report.md for whoever opens the directory, README.md for the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Protocol

from unmask.runs.directory import RunDirectory
from unmask.runs.display import duration
from unmask.runs.plots import can_draw

GUESSED = {"masked_lm_accuracy": "hidden", "generator_accuracy": "hidden", "causal_lm_accuracy": "next"}
"""Where one token is guessed, and which."""
WORDS_ALONE = 0.9
"""The loss of telling replaced tokens by the words that a generator draws too often, in terms of a constant's: that was
0.96 to 0.99, and of what had begun to read the context 0.89 and less (docs/family.md)."""


class Done(Protocol):
    """What is read of a finished run's progress."""

    step: int
    tokens: int
    seconds: float
    skipped: int


class Asked(Protocol):
    """What is read of a task."""

    title: ClassVar[str]
    usage: ClassVar[str]


def pretraining_report(run: RunDirectory, name: str, done: Done) -> str:
    """Return report.md of a pretraining run.

    Args:
        run: whose metrics are read.
        name: of the recipe.
        done: how far it went.
    """
    heldout = run.read_metrics("heldout")
    lines = [f"# {name}, pretrained", "", _how_it_went(done), ""]
    fills = "masked_lm" in run.read_recipe().get("objective", {})
    if heldout:
        first, last = heldout[0], heldout[-1]
        lines += ["| held out | before the first step | after the last |", "|---|---|---|"]
        lines += [f"| {key} | {_number(first[key])} | {_number(last[key])} |" for key in last if _is_metric(key)]
        for guess, (name, which) in product(run.read_metrics("guess"), GUESSED.items()):
            if name in guess:
                share = f"{100 * guess[name]:.2f} %"
                lines += ["", f"Always saying the most frequent token would be right for {share} of the {which} ones."]
        if "replaced_token_guess" in last:
            share = 100 * last["replaced_token_guess"]
            lines += [f"Always saying that a token was not replaced would be right for {share:.2f} % of all."]
        if warned := warning(last):
            lines += ["", f"**{warned}**"]
    lines += [
        *_picture(run, "training"),
        "",
        "Use it:",
        "",
        "```",
        *([f'unmask fill --model {run.path} "Text with a [MASK] in it."'] if fills else []),
        f"unmask finetune classification --model {run.path} --train FILE --out RUN",
        "```",
        "",
        "`model/` is a Hugging Face directory; `recipe.toml` is what was trained; `metrics.jsonl` has a line a step.",
    ]
    return "\n".join(lines) + "\n"


def warning(heldout: Mapping[str, float]) -> str | None:
    """Return what to say of an encoder that tells replaced tokens from others by the tokens alone.

    Its rows lie on one line, a number for each token, which is worse than random weights (docs/family.md).

    Args:
        heldout: metrics on held-out text; None is returned where no replaced tokens were asked for.
    """
    loss = heldout.get("replaced_token_loss")
    if loss is None or loss < WORDS_ALONE * _constant_loss(heldout):
        return None
    return (
        "Replaced tokens are told from others hardly better than by a constant, as words without their context could "
        "be: this encoder is no use to a task yet. Begin as a masked LM and go on with --init (docs/family.md)."
    )


def _constant_loss(heldout: Mapping[str, float]) -> float:
    """Return the loss, in nats, of saying of each token that it was replaced as often as tokens are."""
    kept = heldout["replaced_token_guess"]
    return -sum(share * math.log(share) for share in (kept, 1 - kept) if share)


def finetuning_report(
    run: RunDirectory,
    task: Asked,
    labels: Sequence[str],
    done: Done,
    examples: int,
    metrics: Mapping[str, float] | None,
) -> str:
    """Return report.md of a fine-tuning run; `metrics` are those of the dev data, 0 to 100."""
    lines = [
        f"# {task.title}" + (f": {', '.join(labels)}" if labels else ""),
        "",
        f"{examples:,} training examples. {_how_it_went(done)}",
        "",
    ]
    if metrics:
        lines += ["| on the dev data, which were used for no choice | |", "|---|---|"]
        lines += [f"| {name} | {value:.2f} |" for name, value in metrics.items()]
        if confusion := _picture(run, "confusion"):
            lines += confusion
            if not can_draw(labels):
                lines += ["", *(f"{number}: {label}  " for number, label in enumerate(labels, 1))]
    lines += [
        *_picture(run, "training"),
        "",
        "Use it:",
        "",
        "```",
        f"unmask predict --model {run.path} {task.usage}",
        f"unmask evaluate --model {run.path} --data FILE",
        "```",
    ]
    return "\n".join(lines) + "\n"


def model_card(title: str, about: str, metrics: Mapping[str, float]) -> str:
    """Return README.md of a model's directory."""
    lines = ["---", "library_name: transformers", "---", f"# {title}", "", about, ""]
    if metrics:
        lines += ["| held-out data | |", "|---|---|", *(f"| {name} | {value:.4f} |" for name, value in metrics.items())]
    return "\n".join(lines) + "\n"


def _picture(run: RunDirectory, name: str) -> list[str]:
    """Return the lines that show a picture, none where it was not drawn."""
    return ["", f"![{name}](plots/{name}.png)"] if (run.plots / f"{name}.png").exists() else []


def _how_it_went(done: Done) -> str:
    text = f"{done.step:,} steps, {done.tokens:,} tokens, {duration(done.seconds)} in steps"
    rate = done.tokens / done.seconds if done.seconds else 0
    skipped = f"; {done.skipped} steps were not finite and left out" if done.skipped else ""
    return f"{text} ({rate:,.0f} tokens/s){skipped}."


def _number(value: float | None) -> str:
    """Return a metric with four decimals; None is what JSON has for one that is not finite."""
    return "not finite" if value is None else f"{value:.4f}"


def _is_metric(name: str) -> Any:
    return name == "loss" or name.endswith(("_loss", "_accuracy"))
