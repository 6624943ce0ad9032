"""Fine-tuning of a model on labeled examples: all parameters, one new layer, one documented rule for the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unmask.data.labelled.table import Data, as_sources
from unmask.support.settings import Overrides
from unmask.training.machine import Machine
from unmask.workflows.finetuning.job import Job, LabelledFiles, Start
from unmask.workflows.finetuning.run import run_job
from unmask.workflows.finetuning.trials import run_trials


def finetune(
    task: str,
    model: str | Path,
    train: Data,
    out: str | Path,
    *,
    dev: Data = (),
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    settings: Overrides | None = None,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    frozen: bool = False,
    downstream: str | None = None,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
    all_examples: bool = False,
    recipe: str | Path | None = None,
    seeds: int | None = None,
    search: bool = False,
) -> Path:
    """Fine-tune a model for a task and write a run directory.

    Args:
        task: one of `unmask.tasks.TASKS`.
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        train: labeled files or examples in memory; see `unmask.data.labelled.table.as_sources`.
        out: the run directory.
        dev: likewise, to evaluate on, not used for any choice; empty: a tenth of `train`, the same for all seeds.
        columns: mapping of our column names to those of the files.
        kind: format of the files, if the suffix does not determine it.
        settings: settings that override the defaults, for example `{"seed": 1, "budget.epochs": 5}`.
        tokenizer: tokenizer for random:RECIPE.
        allow_pickle: whether `model` may contain pickled weights.
        frozen: whether to keep the encoder fixed and compute its features once.
        downstream: a small model over its layers, "linear", "average" or "rnn"; None: only the head of the task, which
            is equivalent to "linear".
        resume: whether to continue the run in `out`.
        machine: device and precision; None: chosen automatically.
        quiet: whether to print nothing.
        all_examples: whether to train on all examples of `train`, without scores, instead of holding out a tenth.
        recipe: a fine-tuning recipe, such as RUN/recipe.toml, in place of the rule for defaults.
        seeds: number of seeds to train with in OUT/seed-0, …; the best model is then OUT/model. None: train once.
        search: whether to choose among four learning rates first, by a tenth of the training examples.

    Returns:
        The directory of the model, RUN/model.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    start = Start(model, tokenizer, allow_pickle)
    files = LabelledFiles(as_sources(train), as_sources(dev), columns or {}, kind)
    job = Job(task, start, files, settings or {}, frozen, downstream, machine, quiet, all_examples, recipe)
    if seeds is not None or search:
        return run_trials(job, out, seeds=1 if seeds is None else seeds, search=search, resume=resume)
    return run_job(job, out, resume=resume)
