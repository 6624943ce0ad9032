"""Fine-tuning of one encoder for several tasks, as users start it: `unmask.multitask`."""

from __future__ import annotations

from pathlib import Path

from unmask.support.choices import Device, Precision
from unmask.support.environment import rank_and_size
from unmask.support.errors import UserError
from unmask.support.settings import Overrides, check_overrides
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel
from unmask.workflows.multitask.alone import compare_with_alone
from unmask.workflows.multitask.mixture import prepare_mixture
from unmask.workflows.multitask.run import run_mixture
from unmask.workflows.multitask.task_tables import TaskTables, read_tables

OF_THE_MIXTURE = ("budget.", "temperature")
"""Beginnings of settings that the runs of single tasks do not have."""


def multitask(
    tasks: TaskTables,
    model: str | Path,
    out: str | Path,
    *,
    alone: bool = False,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    settings: Overrides | None = None,
    resume: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    quiet: bool = False,
) -> Path:
    """Fine-tune one encoder on several tasks at once, each with labeled examples and a head of its own.

    Args:
        tasks: file.toml with a table [NAME] for each task, whose keys are task, train and optionally dev, columns,
            format and encoding, as in `unmask.finetune`, and settings of the task, such as {length = 64}; in Python
            also a mapping of names to such tables, which may have examples in memory.
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, or
            random:RECIPE, an untrained model.
        out: run directory to write; RUN/model/NAME is the model of a task.
        alone: then also train each task alone, and report whether it was helped by the others.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub; for
            random:RECIPE.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        settings: settings to change, for example temperature=1, which draws tasks by their numbers of examples (inf:
            all equally often), or budget.steps=1000.
        resume: continue the run from its last checkpoint.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        quiet: print only results and errors.

    Returns:
        RUN/model, with a directory for each task.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    settings = settings or {}
    check_overrides(settings)
    if rank_and_size()[1] > 1:
        raise UserError("several tasks do not train under torchrun", remedy="start a single process")
    tables = read_tables(tasks)
    machine, display = choose_machine(device, precision, workers), Display(quiet=quiet)
    start = InitialModel(model, tokenizer, allow_pickle)
    mixture = prepare_mixture(tables, start, settings, machine, display)
    run_mixture(mixture, Path(out), machine, display, resume=resume)
    if alone:
        common = {key: value for key, value in settings.items() if not key.startswith(OF_THE_MIXTURE)}
        jobs = {
            name: FinetuningJob(
                table.task,
                start,
                table.files(),
                {**common, **{f"task.{key}": value for key, value in table.settings.items()}},
                machine=machine,
                quiet=quiet,
            )
            for name, table in tables.items()
        }
        compare_with_alone(mixture, jobs, Path(out), machine, display, resume=resume)
    return Path(out) / "model"
