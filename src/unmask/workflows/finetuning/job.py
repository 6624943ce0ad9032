"""Specification of a fine-tuning run: the task, the initial model, the labeled files, the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.data.labelled.table import Source, Table
from unmask.nn.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.support.errors import UserError, counted, nearest
from unmask.support.settings import Overrides, check_overrides, write_line
from unmask.tasks import TASKS
from unmask.training.machine import Machine


@dataclass(frozen=True)
class Start:
    """The initial model of a fine-tuning run.

    Attributes:
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        tokenizer: tokenizer for random:RECIPE.
        allow_pickle: whether `model` may contain pickled weights.
    """

    model: str | Path
    tokenizer: str | Path | None = None
    allow_pickle: bool = False

    @property
    def pretrained(self) -> bool:
        """Whether the model has trained weights."""
        return not str(self.model).startswith("random:")


@dataclass(frozen=True)
class LabelledFiles:
    """The files, or examples in memory, to train on and to evaluate on.

    Attributes:
        train: labeled files.
        dev: labeled files to evaluate on, not used for any choice; empty: a tenth of `train`, the same for all seeds.
        columns: mapping of our column names to those of the files.
        kind: format of the files, if the suffix does not determine it.
    """

    train: Sequence[Source]
    dev: Sequence[Source] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None

    @property
    def in_memory(self) -> str:
        """A description of the examples that are not in files; empty if all are."""
        parts = (("train", self.train), ("dev", self.dev))
        tables = [(name, one) for name, part in parts for one in part if isinstance(one, Table)]
        return "; ".join(f"{name}: {table.name}, {counted(len(table), 'row')}" for name, table in tables)


@dataclass(frozen=True)
class Job:
    """A fine-tuning run.

    Attributes:
        task: one of `unmask.tasks.TASKS`.
        start: the initial model.
        files: the labeled files.
        settings: settings that override the defaults, by dotted key.
        frozen: whether to keep the encoder fixed and compute its features once.
        downstream: a small model over its layers, "linear", "average" or "rnn"; None: only the head of the task, which
            is equivalent to "linear".
        machine: device and precision; None: chosen automatically.
        quiet: whether to print nothing.
        all_examples: whether to train on all examples, without scores, instead of holding out a tenth.
        recipe: a fine-tuning recipe, such as RUN/recipe.toml, in place of the rule for defaults; None: the rule.
    """

    task: str
    start: Start
    files: LabelledFiles
    settings: Overrides = field(default_factory=dict)
    frozen: bool = False
    downstream: str | None = None
    machine: Machine | None = None
    quiet: bool = False
    all_examples: bool = False
    recipe: str | Path | None = None

    def check(self) -> None:
        """Check whatever can be checked before any file is read.

        Raises:
            UserError: a name is unknown, or the settings are inconsistent.
        """
        check_overrides(self.settings)
        if self.all_examples and self.files.dev:
            raise UserError("--all has no effect with --dev: nothing is held out then", remedy="remove one of them")
        if self.task not in TASKS:
            raise UserError(f"unknown task '{self.task}'", remedy=nearest(self.task, TASKS))
        if self.downstream is not None and self.downstream not in DOWNSTREAM_KINDS:
            raise UserError(
                f"unknown downstream model '{self.downstream}'", remedy=nearest(self.downstream, DOWNSTREAM_KINDS)
            )
        small = self.frozen or self.downstream is not None
        if self.recipe is not None and small:
            raise UserError("--frozen and --downstream have no effect with --recipe", remedy="remove them")
        if not small and self.recipe is None and any(key.startswith("downstream.") for key in self.settings):
            raise UserError(
                "downstream.… has no effect without a downstream model", remedy="pass --frozen or --downstream KIND"
            )
        for key, value in self.settings.items():
            if key in ("frozen", "downstream.kind"):
                raise UserError(
                    f"--set {write_line(key, value)} is not allowed",
                    remedy="pass --frozen or --downstream KIND",
                )
