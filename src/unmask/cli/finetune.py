"""`unmask finetune TASK`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unmask.cli.options import add_labelled, add_machine, add_model, add_workers, machine
from unmask.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.settings import parse_overrides
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
    from unmask.finetuning.finetune import run_job
    from unmask.finetuning.job import Job, LabelledFiles, Start
    from unmask.finetuning.trials import run_trials
    from unmask.labelled.labelled_file import parse_columns

    job = Job(
        options.task,
        Start(options.model, options.tokenizer, options.allow_pickle),
        LabelledFiles(options.train, options.dev, parse_columns(options.columns), options.format),
        parse_overrides(options.set),
        options.frozen,
        options.downstream,
        machine(options),
        options.quiet,
    )
    if options.seeds is None and not options.search:
        run_job(job, options.out, resume=options.resume)
        return
    seeds = 1 if options.seeds is None else options.seeds
    run_trials(job, options.out, seeds=seeds, search=options.search, resume=options.resume)
    if not options.quiet:
        print((Path(options.out) / "report.md").read_text(encoding="utf8"), file=sys.stderr)
