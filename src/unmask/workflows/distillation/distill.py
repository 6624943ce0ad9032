"""Distillation: one function for text and for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.table import Data, as_sources
from unmask.data.text.documents import TextOptions
from unmask.model.model import load_model
from unmask.recipes.recipe import Recipe, as_recipe
from unmask.support.choices import ColumnNames, Device, Documents, Files, Format, Precision, as_files
from unmask.support.environment import num_cores, refuse_several_processes
from unmask.support.errors import UserError, refuse_idle
from unmask.support.messages import argument, call
from unmask.support.settings import Overrides, check_overrides
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display
from unmask.workflows.distillation.comparison import BASELINE, SAME_ALONE, measure, of_task, write_comparison
from unmask.workflows.distillation.general import check_distillation, distill_encoder
from unmask.workflows.distillation.lesson import Lesson
from unmask.workflows.distillation.student import check_start
from unmask.workflows.distillation.task_distillation import prepare_baseline, prepare_lesson
from unmask.workflows.finetuning.job import LabelledFiles
from unmask.workflows.finetuning.run_job import run_prepared
from unmask.workflows.pretraining.checks import check_share, check_teacher, refuse_fixed
from unmask.workflows.pretraining.restarts import restarted, started
from unmask.workflows.pretraining.text_corpus import corpus_for_all, corpus_from_text


def distill(
    recipe: Recipe | str | Path,
    teacher: str | Path,
    out: str | Path,
    *,
    corpus: Corpus | str | Path | None = None,
    text: Files = (),
    train: Data = (),
    unlabelled: Data = (),
    dev: Data = (),
    examples: int | None = None,
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    augment: int = 0,
    masked_lm: str | Path | None = None,
    init: str | Path | None = None,
    layers: int | None = None,
    targets: str | Path | None = None,
    settings: Overrides | None = None,
    baseline: bool = False,
    allow_pickle: bool = False,
    resume: bool = False,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    deterministic: bool = False,
    quiet: bool = False,
) -> Path:
    """Train a small student by a teacher, on text or on the examples of a task.

    Args:
        recipe: the shape of the student, and the objectives, of which at least one learns from a teacher: a shipped
            recipe, such as distilbert-mini or tinybert-mini, or a .toml file.
        teacher: model that the student learns from: fine-tuned for a task, if there are examples.
        out: run directory to write.
        corpus: learn from text: a corpus built with the teacher's tokenizer.
        text: learn from files of raw text.
        train: learn the task of a fine-tuned teacher: labeled examples, as for finetune.
        unlabelled: the same, with or without train: texts (.txt: one per line), which the teacher labels.
        dev: labeled examples to score, not used for any choice; by default a tenth of train.
        examples: learn from so many of train only, drawn at random with the seed.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files, also of those of text; by default UTF-8, or what a byte-order mark declares.
        augment: number of variants of each example to add, with other words.
        masked_lm: model with a masked-LM head that proposes the words; by default the teacher.
        init: student to continue from; by default layers of the teacher, where shapes allow.
        layers: number of the teacher's layers that form the student, instead of the recipe's shape.
        targets: directory in which the teacher's predictions are stored, or from which they are taken for more
            students.
        settings: settings to change, for example budget.minutes=10.
        baseline: also train the same student without a teacher, in RUN/baseline, to compare with.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        resume: continue the run from its last checkpoint.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        deterministic: on a GPU, compute with kernels that give the same numbers each time, where torch has them; they
            are slower.
        quiet: print only results and errors.

    Returns:
        The directory of the student, RUN/model.

    Raises:
        UserError: files, models, recipe and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    if baseline:
        refuse_several_processes("baseline", f"train it by {call('finetune')} or {call('pretrain')}")
    if targets is not None:
        refuse_several_processes("targets", "omit it")
    check_overrides(settings or {})
    changes, reading, paths = settings or {}, TextOptions(field, documents, strict, encoding), as_files(text)
    labelled: dict[str, Any] = {"train": as_sources(train, encoding), "unlabelled": as_sources(unlabelled, encoding)}
    for_task: dict[str, Any] = {
        "dev": as_sources(dev, encoding),
        "examples": examples,
        "columns": columns,
        "format": format,
        "augment": augment,
        "masked_lm": masked_lm,
    }
    _refuse_several({"corpus": corpus, "text": list(paths), **labelled})
    on_text = corpus is not None or bool(paths)
    if on_text:
        refuse_idle("on text", **for_task)
    if corpus is not None:
        refuse_idle("on a corpus that is already built", encoding=encoding)
    if not paths:
        refuse_idle(f"without {argument('text')}", **reading.changed() | {"encoding": None})
    check_start(init, layers)
    fixed = argument("init") if init is not None else argument("layers") if layers is not None else ""
    refuse_fixed(changes, encoder=fixed, tokenizer="the student has the teacher's tokenizer")
    student: dict[str, Any] = {"init": init, "layers": layers, "targets": targets, "allow_pickle": allow_pickle}
    with Processes.launched() as processes:
        machine = choose_machine(device, precision, workers, processes, deterministic=deterministic)
        resume = processes.broadcast(resume or (restarted() and started(Path(out))))
        display = Display(quiet=quiet or not processes.is_main)
        if on_text:
            planned = as_recipe(recipe, changes)
            check_share(planned, init)
            if not isinstance(corpus, Corpus):
                check_teacher(planned, teacher)
                if corpus is not None:
                    corpus = open_corpus(corpus)
                else:
                    check_distillation(planned, teacher, init, layers, allow_pickle=allow_pickle)
                    make = partial(
                        corpus_from_text,
                        paths,
                        planned,
                        Path(out),
                        init=teacher,
                        options=reading,
                        resume=resume,
                        workers=num_cores(),
                        report=display.say,
                    )
                    corpus = corpus_for_all(processes, Path(out), make)
            return distill_encoder(
                planned, teacher, corpus, out, **student, baseline=baseline, resume=resume, machine=machine, quiet=quiet
            )
        shape = {key: value for key, value in changes.items() if key.startswith("encoder.")}
        others = {key: value for key, value in changes.items() if key not in shape}
        files = LabelledFiles(labelled["train"], for_task["dev"], as_columns(columns), format)
        student |= {"settings": others, "augment": augment, "masked_lm": masked_lm, "examples": examples}
        lesson = Lesson(as_recipe(recipe, shape), teacher, files, labelled["unlabelled"], **student)
        return _distill_lesson(lesson, Path(out), machine, processes, display, baseline=baseline, resume=resume)


def _refuse_several(sources: Mapping[str, Any]) -> None:
    """Raise an error if there are several sources to learn from, other than examples with and without labels."""
    used = [name for name, value in sources.items() if value is not None and value != []]
    if len(used) > 1 and used != ["train", "unlabelled"]:
        raise UserError(f"{argument(used[0])} and {argument(used[1])} cannot be combined", remedy="remove one of them")


def _distill_lesson(
    lesson: Lesson, run: Path, machine: Machine, processes: Processes, display: Display, *, baseline: bool, resume: bool
) -> Path:
    """Train a student on the examples of a task, and compare it with its teacher; see `distill`."""
    alone = prepare_baseline(lesson, machine, display) if baseline else None
    ready = prepare_lesson(lesson, machine, display)
    finished = run_prepared(ready, run, machine, processes, display, resume=resume)
    models = {"teacher": lesson.teacher, "student": run}
    if alone is not None:
        display.say(SAME_ALONE)
        again = resume and started(run / BASELINE)
        run_prepared(alone, run / BASELINE, machine, processes, display, resume=again)
        models["without a teacher"] = run / BASELINE
    if processes.is_main and ready.data.held:
        exact, held = replace(machine, precision="float32"), ready.data.held
        loaded = {name: load_model(source, allow_pickle=lesson.allow_pickle) for name, source in models.items()}
        subjects = [of_task(name, models[name], model, held, exact) for name, model in loaded.items()]
        write_comparison(run, measure(subjects, held), display.say)
    return finished
