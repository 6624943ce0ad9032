"""`unmask finetune TASK`: fine-tune a model on labeled examples."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import (
    RANDOM_TOKENIZER,
    add_labelled,
    add_machine,
    add_model,
    add_run,
    add_settings,
    add_workers,
    machine,
    report,
)
from unmask.nn.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.support.settings import parse_overrides
from unmask.tasks import TASKS


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("task", choices=tuple(TASKS), help="what the model learns")
    add_model(parser)
    parser.add_argument("--tokenizer", metavar="DIR", help=RANDOM_TOKENIZER)
    _add_examples(parser)
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train N times with different seeds in RUN/seed-0, RUN/seed-1, …, and keep the model with the best dev "
        "score as RUN/model",
    )
    parser.add_argument(
        "--search", action="store_true", help="first choose among four learning rates, by a tenth of --train held out"
    )
    parser.add_argument(
        "--frozen", action="store_true", help="do not train the encoder; its features are computed only once"
    )
    parser.add_argument(
        "--downstream",
        choices=DOWNSTREAM_KINDS,
        help="small model to train on top of the encoder's layers (default with --frozen: linear)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="train N minutes at most: fewer epochs, if the default ones take longer (budget.max_minutes)",
    )
    add_settings(parser, "a setting, for example budget.epochs=5")
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="recipe in place of the rule for defaults, such as the recipe.toml of an earlier run, to run it again",
    )
    add_run(parser)
    add_workers(parser)
    add_machine(parser, precision="auto")


def _add_examples(parser: argparse.ArgumentParser) -> None:
    """Add the options for the examples to train on and to score on."""
    parser.add_argument(
        "--train",
        nargs="+",
        required=True,
        metavar="FILE",
        help="labeled examples: .tsv, .csv, .jsonl, .json, .parquet, .arrow or a directory of datasets (for "
        "token-classification also CoNLL columns; for "
        "question-answering .json in SQuAD format, for quac, coqa and hotpotqa their own files, for multiple-choice "
        "those of SWAG or RACE), optionally compressed (.gz, .xz, .zst)",
    )
    parser.add_argument(
        "--dev",
        nargs="+",
        default=[],
        metavar="FILE",
        help="labeled examples to score on after training (default: a tenth of --train is held out)",
    )
    parser.add_argument(
        "--all", action="store_true", help="train on all of --train, without scores, instead of holding out a tenth"
    )
    add_labelled(parser)


def run(options: argparse.Namespace) -> None:
    """Fine-tune once, or several times with --seeds or --search."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.workflows.finetuning.job import Job, LabelledFiles, Start
    from unmask.workflows.finetuning.run import run_job
    from unmask.workflows.finetuning.trials import run_trials

    minutes = [] if options.minutes is None else [f"budget.max_minutes={options.minutes}"]
    job = Job(
        options.task,
        Start(options.model, options.tokenizer, options.allow_pickle),
        LabelledFiles(options.train, options.dev, parse_columns(options.columns), options.format),
        parse_overrides([*minutes, *options.set]),
        options.frozen,
        options.downstream,
        machine(options),
        options.quiet,
        options.all,
        options.recipe,
    )
    if options.seeds is None and not options.search:
        run_job(job, options.out, resume=options.resume)
        return
    seeds = 1 if options.seeds is None else options.seeds
    run_trials(job, options.out, seeds=seeds, search=options.search, resume=options.resume)
    report(options, (Path(options.out) / "report.md").read_text(encoding="utf8"))
