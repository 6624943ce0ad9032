"""Fine-tuning of a model on labeled examples: all parameters, one new layer, one documented rule for the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unmask.data.labelled.table import Data, as_sources
from unmask.support.choices import Device, DownstreamKind, Format, Precision
from unmask.support.settings import Overrides, check_overrides
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.run_job import run_job
from unmask.workflows.finetuning.trials import run_trials


def finetune(
    task: str,
    model: str | Path,
    train: Data,
    out: str | Path,
    *,
    dev: Data = (),
    all_examples: bool = False,
    columns: Mapping[str, str] | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    seeds: int | None = None,
    search: bool = False,
    frozen: bool | None = None,
    downstream: DownstreamKind | None = None,
    minutes: float | None = None,
    settings: Overrides | None = None,
    recipe: str | Path | None = None,
    resume: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    quiet: bool = False,
) -> Path:
    """Fine-tune a model on labeled examples.

    Args:
        task: what the model learns: one of `unmask.tasks.TASKS`.
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, or
            random:RECIPE, an untrained model.
        train: labeled examples: .tsv, .csv, .jsonl, .json, .parquet, .arrow, .xlsx, .ods, .sqlite, a directory of
            datasets or the name of a data set on the Hub, NAMESPACE/NAME#SPLIT (for token-classification and spans also
            CoNLL columns; for question-answering .json in SQuAD format, for quac, coqa and hotpotqa their own files,
            for multiple-choice those of SWAG or RACE), optionally compressed (.gz, .xz, .zst); in Python also examples
            in memory.
        out: run directory to write.
        dev: labeled examples to score on after training, not used for any choice; by default a tenth of train is held
            out, the same for all seeds.
        all_examples: train on all of train, without scores, instead of holding out a tenth.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub; for
            random:RECIPE.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        seeds: train so many times with different seeds in RUN/seed-0, RUN/seed-1, …, and keep the model with the best
            dev score as RUN/model.
        search: first choose among four learning rates, by a tenth of train held out.
        frozen: do not train the encoder; its features are computed only once. By default it is frozen only if labels
            are few (docs/fine-tuning.md).
        downstream: small model to train on top of the encoder's layers; with frozen, linear by default.
        minutes: time to train at most: fewer epochs, if the default ones take longer (budget.max_minutes).
        settings: settings to change, for example budget.epochs=5.
        recipe: recipe in place of the rule for defaults, such as the recipe.toml of an earlier run, to run it again.
        resume: continue the run from its last checkpoint.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        quiet: print only results and errors.

    Returns:
        The directory of the model, RUN/model.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    check_overrides(settings or {})
    changes = {**({} if minutes is None else {"budget.max_minutes": minutes}), **(settings or {})}
    machine = choose_machine(device, precision, workers)
    start = InitialModel(model, tokenizer, allow_pickle)
    files = LabelledFiles(as_sources(train, encoding), as_sources(dev, encoding), columns or {}, format)
    job = FinetuningJob(task, start, files, changes, frozen, downstream, machine, quiet, all_examples, recipe)
    if seeds is None and not search:
        return run_job(job, out, resume=resume)
    best = run_trials(job, out, seeds=1 if seeds is None else seeds, search=search, resume=resume)
    Display(quiet=quiet).say((Path(out) / "report.md").read_text(encoding="utf8"))
    return best
