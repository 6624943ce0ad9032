"""`unmask pretrain RECIPE`: from scratch, or with --init from a model that exists."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import add_machine, add_model, add_text, machine, report, text_options
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped name (unmask recipes list) or a .toml file")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--corpus", metavar="DIR", help="built with unmask corpus build")
    source.add_argument("--text", nargs="+", metavar="FILE", help="raw text: tokenizer and corpus are made in RUN")
    add_model(parser, "--init", required=False)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for example budget.steps=100")
    parser.add_argument("--resume", action="store_true", help="go on where RUN stands")
    parser.add_argument("--out", required=True, metavar="RUN")
    add_text(parser)
    add_machine(parser, precision="auto")


def run(options: argparse.Namespace) -> None:
    """Pretrain."""
    from unmask.corpus.corpus import open_corpus
    from unmask.pretraining import corpus_from_text, pretrain
    from unmask.recipe import read_recipe

    _refuse_idle_settings(options)
    recipe = read_recipe(options.recipe, options.set)
    chosen = machine(options)
    if options.allow_pickle and not options.init:
        raise UserError("--allow-pickle has no effect without --init")
    out = Path(options.out)
    if options.text:
        corpus = corpus_from_text(
            options.text,
            recipe,
            out,
            init=options.init,
            options=text_options(options),
            resume=options.resume,
            report=lambda text: report(options, text),
        )
    elif (options.field, options.documents, options.strict) != ("text", "auto", False):
        raise UserError("--field, --documents and --strict have no effect on a corpus that is built already")
    else:
        corpus = open_corpus(options.corpus)
    pretrain(
        recipe,
        corpus,
        out,
        init=options.init,
        allow_pickle=options.allow_pickle,
        resume=options.resume,
        machine=chosen,
        quiet=options.quiet,
    )


def _refuse_idle_settings(options: argparse.Namespace) -> None:
    for setting in options.set:
        key = setting.partition("=")[0]
        if key.startswith("tokenizer.") and (options.corpus or options.init):
            owner = "the corpus" if options.corpus else "the model"
            raise UserError(f"--set {setting} has no effect: {owner} brings its tokenizer", remedy="leave it away")
        if options.init and key.startswith("encoder.") and key != "encoder.dropout":
            raise UserError(f"--set {setting} has no effect: --init brings the encoder", remedy="leave it away")
