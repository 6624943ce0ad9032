"""`unmask finetune TASK`."""

from __future__ import annotations

import argparse

from unmask.cli.options import add_labelled, add_machine, add_model, add_workers, machine

TASKS = ("classification", "regression", "question-answering")
"""Those of `unmask.tasks.TASKS`, which only torch can import."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("task", choices=TASKS)
    add_model(parser)
    parser.add_argument("--tokenizer", metavar="DIR", help="with --model random:RECIPE, for untrained weights")
    parser.add_argument(
        "--train",
        nargs="+",
        required=True,
        metavar="FILE",
        help=".tsv, .csv or .jsonl (questions: .json of SQuAD's format), also .gz, .xz",
    )
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="default: a tenth of --train")
    add_labelled(parser)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for example budget.epochs=5")
    parser.add_argument("--resume", action="store_true", help="go on where RUN stands")
    parser.add_argument("--out", required=True, metavar="RUN")
    add_workers(parser)
    add_machine(parser, precision="auto")


def run(options: argparse.Namespace) -> None:
    """Fine-tune."""
    from unmask.finetuning import finetune
    from unmask.tasks.labelled_file import parse_columns

    finetune(
        options.task,
        options.model,
        options.train,
        options.out,
        dev=options.dev,
        columns=parse_columns(options.columns),
        kind=options.format,
        settings=options.set,
        tokenizer=options.tokenizer,
        allow_pickle=options.allow_pickle,
        resume=options.resume,
        machine=machine(options),
        quiet=options.quiet,
    )
