"""`unmask finetune TASK`."""

from __future__ import annotations

import argparse

from unmask.cli.options import add_labelled, add_machine, add_model, add_workers, machine

TASKS = ("classification", "regression")
"""Those of `unmask.tasks.TASKS`, which only torch can import."""
KINDS = ("linear", "average", "rnn")
"""Those of [downstream]."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("task", choices=TASKS)
    add_model(parser)
    parser.add_argument("--tokenizer", metavar="DIR", help="with --model random:RECIPE, for untrained weights")
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=".tsv, .csv or .jsonl, also .gz, .xz")
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="default: a tenth of --train")
    add_labelled(parser)
    parser.add_argument(
        "--frozen", action="store_true", help="leave the encoder as it is; its features are computed once"
    )
    parser.add_argument(
        "--downstream", choices=KINDS, help="a small model over the encoder's layers (with --frozen default: linear)"
    )
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
        frozen=options.frozen,
        downstream=options.downstream,
        resume=options.resume,
        machine=machine(options),
        quiet=options.quiet,
    )
