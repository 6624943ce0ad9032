"""Words about a run: report.md for whoever opens the directory, README.md for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from unmask.runs.directory import RunDirectory
from unmask.runs.display import duration
from unmask.runs.plots import can_draw


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


@dataclass(frozen=True)
class Remarks:
    """What the objectives of a run say of it.

    Attributes:
        notes: what its held-out metrics stand beside.
        warnings: what the user must know.
        usage: commands that use what it has learnt.
    """

    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    usage: Sequence[str] = ()


def pretraining_report(run: RunDirectory, name: str, done: Done, said: Remarks) -> str:
    """Return report.md of a pretraining run.

    Args:
        run: whose metrics are read.
        name: of the recipe.
        done: how far it went.
        said: by its objectives.
    """
    heldout = run.read_metrics("heldout")
    lines = [f"# {name}, pretrained", "", _how_it_went(done), ""]
    if heldout:
        first, last = heldout[0], heldout[-1]
        lines += ["| held out | before the first step | after the last |", "|---|---|---|"]
        lines += [f"| {key} | {_number(first[key])} | {_number(last[key])} |" for key in last if _is_metric(key)]
        lines += [line for note in said.notes for line in ("", note)]
        lines += [line for warned in said.warnings for line in ("", f"**{warned}**")]
    lines += [
        *_picture(run, "training"),
        "",
        "Use it:",
        "",
        "```",
        *said.usage,
        f"unmask finetune classification --model {run.path} --train FILE --out RUN",
        "```",
        "",
        "`model/` is a Hugging Face directory; `recipe.toml` is what was trained; `metrics.jsonl` has a line a step.",
    ]
    return "\n".join(lines) + "\n"


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
