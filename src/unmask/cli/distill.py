"""`unmask distill RECIPE --teacher MODEL`: train a small student by a teacher, on text or on the examples of a task."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.options import (
    add_labelled,
    add_machine,
    add_pickle,
    add_run,
    add_settings,
    add_text,
    add_workers,
    machine,
    report,
    text_options,
)
from unmask.support.environment import num_cores
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Corpus
    from unmask.recipes.recipe import Recipe

TASK_ONLY = ("dev", "columns", "format", "augment", "masked_lm")
"""Options that have an effect on the examples of a task only."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "recipe", metavar="RECIPE", help="a shipped recipe, such as distilbert-mini or tinybert-mini, or a .toml file"
    )
    parser.add_argument("--teacher", required=True, metavar="MODEL", help="what the student learns from")
    add_pickle(parser)
    parser.add_argument("--corpus", metavar="DIR", help="learn from text: a corpus built with the teacher's tokenizer")
    parser.add_argument("--text", nargs="+", default=[], metavar="FILE", help="learn from raw text")
    _add_examples(parser)
    parser.add_argument("--init", metavar="MODEL", help="student to continue from (default: layers of the teacher)")
    parser.add_argument(
        "--layers", type=int, metavar="N", help="a student of N of the teacher's layers, instead of RECIPE's shape"
    )
    parser.add_argument(
        "--targets",
        metavar="DIR",
        help="store the teacher's predictions, or take them from there for more students",
    )
    add_settings(parser, "a setting, for example budget.minutes=10")
    parser.add_argument(
        "--baseline", action="store_true", help="also train the same student without a teacher, to compare with"
    )
    add_run(parser)
    add_workers(parser)
    add_text(parser)
    add_machine(parser, precision="auto")


def _add_examples(parser: argparse.ArgumentParser) -> None:
    """Add the options for the examples of a task."""
    parser.add_argument(
        "--train",
        nargs="+",
        default=[],
        metavar="FILE",
        help="learn the task of a fine-tuned teacher: labeled examples",
    )
    parser.add_argument(
        "--unlabelled",
        nargs="+",
        default=[],
        metavar="FILE",
        help="the same, with or without --train: texts (.txt: one per line), which the teacher labels",
    )
    parser.add_argument(
        "--dev",
        nargs="+",
        default=[],
        metavar="FILE",
        help="labeled examples to score (default: a tenth of --train)",
    )
    add_labelled(parser)
    parser.add_argument(
        "--augment", type=int, default=0, metavar="N", help="add N variants of each example, with other words"
    )
    parser.add_argument(
        "--masked-lm",
        metavar="MODEL",
        help="model with a masked-LM head that proposes the words (default: --teacher)",
    )


def run(options: argparse.Namespace) -> None:
    """Distill on text, or on examples."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.recipes.recipe import read_recipe
    from unmask.workflows.distillation.distill import distill

    _refuse_idle(options)
    given = parse_overrides(options.set)
    if on_text(options):
        recipe, settings = read_recipe(options.recipe, given), {}
        source: dict[str, Any] = {"corpus": _corpus(options, recipe)}
    else:
        shape = {key: value for key, value in given.items() if key.startswith("encoder.")}
        recipe = read_recipe(options.recipe, shape)
        settings = {key: value for key, value in given.items() if key not in shape}
        source = {"train": options.train, "unlabelled": options.unlabelled, "dev": options.dev}
        source |= {"columns": parse_columns(options.columns), "kind": options.format}
        source |= {"augment": options.augment, "masked_lm": options.masked_lm}
    distill(
        recipe,
        options.teacher,
        options.out,
        init=options.init,
        layers=options.layers,
        targets=options.targets,
        baseline=options.baseline,
        settings=settings,
        allow_pickle=options.allow_pickle,
        resume=options.resume,
        machine=machine(options),
        quiet=options.quiet,
        **source,
    )


def on_text(options: argparse.Namespace) -> bool:
    """Return whether the student learns from text, and not from examples."""
    return bool(options.corpus or options.text)


def _corpus(options: argparse.Namespace, recipe: Recipe) -> Corpus:
    """Return the corpus that is named, or the one that is made from text with the teacher's tokenizer."""
    from unmask.data.corpus.corpus import open_corpus
    from unmask.workflows.pretraining.checks import check_teacher
    from unmask.workflows.pretraining.corpus import corpus_from_text

    check_teacher(recipe, options.teacher)
    if options.corpus:
        return open_corpus(options.corpus)
    return corpus_from_text(
        options.text,
        recipe,
        Path(options.out),
        init=options.teacher,
        options=text_options(options),
        resume=options.resume,
        workers=num_cores(),
        report=lambda text: report(options, text),
    )


def _refuse_idle(options: argparse.Namespace) -> None:
    """Raise an error for options that contradict each other or have no effect."""
    sources = [name for name in ("corpus", "text", "train", "unlabelled") if getattr(options, name)]
    if len(sources) > 1 and sources != ["train", "unlabelled"]:
        raise UserError(f"--{sources[0]} and --{sources[1]} cannot be combined", remedy="remove one of them")
    idle = [name for name in TASK_ONLY if getattr(options, name)] if on_text(options) else []
    if idle:
        raise UserError(f"--{idle[0].replace('_', '-')} has no effect on text", remedy="omit it")
    if not options.text and (options.field, options.documents, options.strict) != ("text", "auto", False):
        raise UserError("--field, --documents and --strict have an effect on --text only", remedy="omit them")
    for setting in options.set:
        key = setting.partition("=")[0]
        fixed = "--init" if options.init else "--layers" if options.layers is not None else ""
        if fixed and key.startswith("encoder.") and key != "encoder.dropout":
            raise UserError(f"--set {setting} has no effect: {fixed} determines the encoder", remedy="omit it")
        if key.startswith("tokenizer."):
            raise UserError(f"--set {setting} has no effect: the student has the teacher's tokenizer", remedy="omit it")
