"""What a fine-tuning is asked for: the task, the model that it starts from, the labelled files, what it learns with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.errors import UserError, nearest
from unmask.settings import Overrides, check_overrides, write_line
from unmask.tasks import TASKS
from unmask.training.machine import Machine


@dataclass(frozen=True)
class Start:
    """The model that a fine-tuning starts from.

    Attributes:
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        tokenizer: for random:RECIPE.
        allow_pickle: let `model` hold pickled weights.
    """

    model: str | Path
    tokenizer: str | Path | None = None
    allow_pickle: bool = False

    @property
    def pretrained(self) -> bool:
        """Whether its weights were trained."""
        return not str(self.model).startswith("random:")


@dataclass(frozen=True)
class LabelledFiles:
    """What to learn from and to score on.

    Attributes:
        train: labelled files.
        dev: labelled files to score on, used for no choice; none: a tenth of `train`, the same one for all seeds.
        columns: our column names to theirs.
        kind: the files' format where the suffix does not tell.
    """

    train: Sequence[str | Path]
    dev: Sequence[str | Path] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None


@dataclass(frozen=True)
class Job:
    """A fine-tuning.

    Attributes:
        task: one of `unmask.tasks.TASKS`.
        start, files: see there.
        settings: over the defaults: dotted keys to values.
        frozen: leave the encoder as it is and compute its features once.
        downstream: a small model over its layers, "linear", "average" or "rnn"; none: the task's own head, which is
            what "linear" is.
        machine: device and precision; None chooses.
        quiet: print nothing.
    """

    task: str
    start: Start
    files: LabelledFiles
    settings: Overrides = field(default_factory=dict)
    frozen: bool = False
    downstream: str | None = None
    machine: Machine | None = None
    quiet: bool = False

    def check(self) -> None:
        """Refuse what can be refused before anything is read.

        Raises:
            UserError: an unknown name, or settings that do not go together.
        """
        check_overrides(self.settings)
        if self.task not in TASKS:
            raise UserError(f"unknown task '{self.task}'", remedy=nearest(self.task, TASKS))
        if self.downstream is not None and self.downstream not in DOWNSTREAM_KINDS:
            raise UserError(
                f"unknown downstream model '{self.downstream}'", remedy=nearest(self.downstream, DOWNSTREAM_KINDS)
            )
        small = self.frozen or self.downstream is not None
        if not small and any(key.startswith("downstream.") for key in self.settings):
            raise UserError("downstream.… is without a downstream model", remedy="pass --frozen or --downstream KIND")
        for key, value in self.settings.items():
            if key in ("frozen", "downstream.kind"):
                raise UserError(
                    f"--set {write_line(key, value)} is an option of its own",
                    remedy="pass --frozen or --downstream KIND",
                )
