"""Distillation from Python: one function for text and for tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.labelled.table import Data, as_sources
from unmask.model.model import load_model
from unmask.recipes.recipe import Recipe, as_recipe
from unmask.support.environment import rank_and_size
from unmask.support.errors import UserError
from unmask.support.settings import Overrides
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display
from unmask.workflows.distillation.comparison import BASELINE, SAME_ALONE, measure, of_task, write_comparison
from unmask.workflows.distillation.general import distill_encoder
from unmask.workflows.distillation.lesson import Lesson
from unmask.workflows.distillation.task import prepare_baseline, prepare_lesson
from unmask.workflows.finetuning.job import LabelledFiles
from unmask.workflows.finetuning.run import run_prepared

Files = str | Path | Sequence[str | Path]


def distill(
    recipe: Recipe | str | Path,
    teacher: str | Path,
    out: str | Path,
    *,
    corpus: Corpus | str | Path | None = None,
    train: Data = (),
    unlabelled: Data = (),
    dev: Data = (),
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    augment: int = 0,
    masked_lm: str | Path | None = None,
    init: str | Path | None = None,
    layers: int | None = None,
    targets: str | Path | None = None,
    baseline: bool = False,
    settings: Overrides | None = None,
    allow_pickle: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Train a small student by what a teacher computes, on text or on the examples of a task.

    Args:
        recipe: the shape of the student, and the objectives, of which at least one learns from a teacher, or the name
            or file of a recipe.
        teacher: MODEL to learn from: fine-tuned for a task, if there are examples.
        out: the run directory.
        corpus: text to learn from, built with the teacher's tokenizer, or its directory; None: examples are given.
        train: labeled files or examples in memory, as for `finetune`.
        unlabelled: files of texts, or of examples without labels, which the teacher labels.
        dev: labeled files to evaluate on, not used for any choice; empty: a tenth of `train`.
        columns: mapping of our column names to those of the files.
        kind: format of the files, if the suffix does not determine it.
        augment: number of variants of each training example; 0: none.
        masked_lm: MODEL with a masked-LM head that proposes words for them.
        init: MODEL that the student continues from; None: it begins with weights of the teacher, where shapes allow.
        layers: number of layers of the student, whose other sizes are then those of the teacher.
        targets: directory in which the teacher's predictions are stored, so that further students do not need it.
        baseline: whether to also train the same student without a teacher, in RUN/baseline, for the report.
        settings: settings of the task's run that override the defaults, for example `{"budget.epochs": 5}`.
        allow_pickle: whether models may contain pickled weights.
        resume: whether to continue the run in `out`.
        machine: device and precision; None: chosen automatically.
        quiet: whether to print nothing.

    Returns:
        The directory of the student, RUN/model.

    Raises:
        UserError: files, models, recipe and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    if baseline and rank_and_size()[1] > 1:
        raise UserError("--baseline works with a single process only", remedy="train it by unmask finetune or pretrain")
    recipe = as_recipe(recipe)
    student: dict[str, Any] = {"init": init, "layers": layers, "targets": targets, "allow_pickle": allow_pickle}
    run: dict[str, Any] = {"baseline": baseline, "resume": resume, "machine": machine, "quiet": quiet}
    if corpus is not None:
        given: dict[str, Any] = {"train": train, "unlabelled": unlabelled, "dev": dev, "columns": columns, "kind": kind}
        given |= {"augment": augment, "masked_lm": masked_lm, "settings": settings}
        if idle := [name for name, value in given.items() if value]:
            raise UserError(f"{idle[0]} has no effect with a corpus", remedy="remove it")
        text = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
        return distill_encoder(recipe, teacher, text, out, **student, **run)
    files = LabelledFiles(as_sources(train), as_sources(dev), columns or {}, kind)
    student |= {"settings": settings or {}, "augment": augment, "masked_lm": masked_lm}
    return distill_lesson(Lesson(recipe, teacher, files, as_sources(unlabelled), **student), out, **run)


def distill_lesson(
    lesson: Lesson,
    out: str | Path,
    *,
    baseline: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Train a student on the examples of a task, and compare it with its teacher; see `distill`."""
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.is_main)
    machine, run = machine or choose_machine(), Path(out)
    alone = prepare_baseline(lesson, machine, display) if baseline else None
    ready = prepare_lesson(lesson, machine, display)
    finished = run_prepared(ready, run, machine, processes, display, resume=resume)
    models = {"teacher": lesson.teacher, "student": run}
    if alone is not None:
        display.say(SAME_ALONE)
        again = resume and (run / BASELINE / "checkpoints").is_dir()
        run_prepared(alone, run / BASELINE, machine, processes, display, resume=again)
        models["without a teacher"] = run / BASELINE
    if processes.is_main and ready.data.held:
        exact, held = replace(machine, precision="float32"), ready.data.held
        loaded = {name: load_model(one, allow_pickle=lesson.allow_pickle) for name, one in models.items()}
        subjects = [of_task(name, models[name], model, held, exact) for name, model in loaded.items()]
        write_comparison(run, measure(subjects, held), display.say)
    return finished
