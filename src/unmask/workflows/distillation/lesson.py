"""Specification of a task distillation: the student, the teacher, the examples and the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.data.labelled.table import Source
from unmask.recipes.recipe import Recipe
from unmask.support.errors import UserError
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides
from unmask.workflows.finetuning.job import LabelledFiles

ELSEWHERE = ("frozen", "downstream", "reset")
"""Settings of fine-tuning that students do not have."""


@dataclass(frozen=True)
class Lesson:
    """A student's task, and from whom it learns it.

    Attributes:
        recipe: the shape of the student, and the objectives that learn from a teacher.
        teacher: fine-tuned MODEL to learn from.
        files: labeled files to train on and to evaluate on.
        unlabelled: files of texts, or of examples without labels, which the teacher labels.
        init: MODEL that the student continues from; None: it begins with weights of the teacher.
        layers: number of layers of the student, whose other sizes are then those of the teacher.
        augment: number of variants of each training example; 0: none.
        masked_lm: MODEL with a masked-LM head that proposes words for them; None: the teacher's own head, if any.
        targets: directory of the teacher's predictions, which are computed only once; None: they are not stored.
        settings: settings that override the defaults, by dotted key.
        allow_pickle: whether models may contain pickled weights.
    """

    recipe: Recipe
    teacher: str | Path
    files: LabelledFiles
    unlabelled: Sequence[Source] = ()
    init: str | Path | None = None
    layers: int | None = None
    augment: int = 0
    masked_lm: str | Path | None = None
    targets: str | Path | None = None
    settings: Overrides = field(default_factory=dict)
    allow_pickle: bool = False

    def check(self) -> None:
        """Check whatever can be checked before any file is read.

        Raises:
            UserError: nothing is given to train on, or an option has no effect.
        """
        if not self.files.train and not self.unlabelled:
            raise UserError(
                "there is nothing to learn from",
                remedy=(
                    f"pass {argument('train')}, {argument('unlabelled')}, {argument('corpus')} or {argument('text')}"
                ),
            )
        if self.augment < 0:
            raise UserError(f"{argument('augment')} must not be negative, not {self.augment}")
        if self.masked_lm is not None and not self.augment:
            raise UserError(f"{argument('masked_lm')} has no effect without {argument('augment')}", remedy="remove it")
        if self.init is not None and self.layers is not None:
            raise UserError(
                f"{argument('layers')} has no effect with {argument('init')}, which determines the student",
                remedy="remove it",
            )
        for key, value in self.settings.items():
            if key.split(".")[0] in ELSEWHERE:
                raise UserError(f"{setting(key, value)} is not allowed: students are trained as a whole")
