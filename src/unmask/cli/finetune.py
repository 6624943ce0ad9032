"""`unmask finetune TASK`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from unmask.cli.options import add_labelled, add_machine, add_model, add_workers, machine
from unmask.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.tasks import TASKS


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("task", choices=tuple(TASKS))
    add_model(parser)
    parser.add_argument("--tokenizer", metavar="DIR", help="with --model random:RECIPE: a tokenizer, run or model")
    parser.add_argument(
        "--train",
        nargs="+",
        required=True,
        metavar="FILE",
        help=".tsv, .csv or .jsonl (tags: also columns; questions: .json of SQuAD's format), also .gz, .xz",
    )
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="default: a tenth of --train")
    add_labelled(parser)
    parser.add_argument("--seeds", type=int, metavar="N", help="runs RUN/seed-0 …, the best by dev as RUN/model")
    parser.add_argument("--search", action="store_true", help="try four learning rates on a tenth of --train first")
    parser.add_argument(
        "--frozen", action="store_true", help="leave the encoder as it is; its features are computed once"
    )
    parser.add_argument(
        "--downstream",
        choices=DOWNSTREAM_KINDS,
        help="a small model over the encoder's layers (with --frozen default: linear)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for example budget.epochs=5")
    parser.add_argument("--resume", action="store_true", help="go on where RUN stands")
    parser.add_argument("--out", required=True, metavar="RUN")
    add_workers(parser)
    add_machine(parser, precision="auto")


def run(options: argparse.Namespace) -> None:
    """Fine-tune, once or several times."""
    from unmask.finetuning.finetune import finetune
    from unmask.finetuning.trials import several
    from unmask.labelled.labelled_file import parse_columns

    tune = partial(
        finetune,
        options.task,
        options.model,
        options.train,
        dev=options.dev,
        columns=parse_columns(options.columns),
        kind=options.format,
        tokenizer=options.tokenizer,
        allow_pickle=options.allow_pickle,
        frozen=options.frozen,
        downstream=options.downstream,
        machine=machine(options),
        quiet=options.quiet,
    )
    if options.seeds is None and not options.search:
        tune(options.out, settings=options.set, resume=options.resume)
        return
    several(
        tune,
        options.task,
        options.out,
        seeds=1 if options.seeds is None else options.seeds,
        search=options.search,
        settings=options.set,
        resume=options.resume,
    )
    if not options.quiet:
        print((Path(options.out) / "report.md").read_text(encoding="utf8"), file=sys.stderr)
