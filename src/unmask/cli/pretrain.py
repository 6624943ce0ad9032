"""`unmask pretrain [RECIPE]`: pretrain from scratch, or with --init from an existing model."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from unmask.cli.options import (
    add_machine,
    add_model,
    add_run,
    add_settings,
    add_text,
    add_workers,
    count,
    machine,
    report,
    text_options,
)
from unmask.support.environment import num_cores, rank_and_size, whole
from unmask.support.errors import UserError
from unmask.training.interrupt import Interrupt

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Corpus
    from unmask.recipes.recipe import Recipe
    from unmask.support.settings import Overrides

ATTEMPT = "UNMASK_ATTEMPT"
"""Environment variable with the number of earlier attempts of a supervised process."""
FINAL = (0, 2, 129, 130, 143, -1, -signal.SIGINT, -signal.SIGTERM)
"""Exit statuses after which there is no other attempt: success, a user error, stopped by a person or a scheduler."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?",
        help="name of a shipped recipe (see unmask recipes list) or a .toml file (default: the best one for the text, "
        "the machine and the budget; with --init: adapt)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--corpus", metavar="DIR", help="corpus built with unmask corpus build")
    source.add_argument(
        "--text", nargs="+", metavar="FILE", help="raw text; the tokenizer and the corpus are created inside RUN"
    )
    add_model(parser, "--init", required=False)
    parser.add_argument(
        "--layers", type=int, metavar="N", help="with --init: keep N of the model's layers, at equal distances"
    )
    parser.add_argument(
        "--extend",
        type=int,
        metavar="N",
        help="with --init and --text: extend the model's vocabulary by at most N tokens learned from the text",
    )
    add_settings(parser, "a setting of the recipe, for example budget.steps=100")
    parser.add_argument(
        "--search",
        action="store_true",
        help="first try half, once and twice the learning rate, in short runs that take an eighth of the budget",
    )
    add_run(parser)
    parser.add_argument(
        "--restarts",
        type=count,
        default=0,
        metavar="N",
        help="after a crash, restart and resume at most N times (default: 0)",
    )
    add_workers(parser)
    add_text(parser)
    add_machine(parser, precision="auto")


def run(options: argparse.Namespace) -> None:
    """Pretrain, under supervision if --restarts is given."""
    if options.restarts and ATTEMPT not in os.environ:  # before torch is imported, so that no signal is missed
        raise SystemExit(supervise(options))
    from unmask.support.settings import parse_overrides
    from unmask.training.runs.directory import RunDirectory
    from unmask.workflows.pretraining.checks import check_teacher
    from unmask.workflows.pretraining.default import choose
    from unmask.workflows.pretraining.pretrain import pretrain
    from unmask.workflows.pretraining.search import search_rate

    out = Path(options.out)
    resume = options.resume or (restarted() and started(out))
    if restarted() and not resume and rank_and_size()[0] == 0:
        RunDirectory.forget_unstarted(out)
    _refuse_idle(options)
    settings, chosen = parse_overrides(options.set), machine(options)
    own = out / "recipe.toml"
    continues = resume and not options.recipe and own.is_file()  # then the recipe of the run is taken as it is
    named = own if continues else options.recipe
    if not named and not options.init and processes() > 1:
        raise UserError("a recipe is chosen by a single process only", remedy="name one: see unmask recipes list")
    recipe = _recipe(options, named, settings)
    check_teacher(recipe, None)
    corpus = _corpus(options, recipe, out, resume=resume)
    if not named and not options.init:
        recipe, lines = choose(corpus, recipe.tokenizer, chosen, settings)
        for line in lines:
            report(options, line)
    train = partial(
        pretrain,
        init=options.init,
        layers=options.layers,
        allow_pickle=options.allow_pickle,
        machine=chosen,
        quiet=options.quiet,
    )
    if options.search and not continues:  # otherwise it has the rate that was found
        recipe = search_rate(
            recipe,
            out,
            lambda trial, run, again: train(trial, corpus, run, resume=again),
            report=lambda text: report(options, text),
        )
    train(recipe, corpus, out, resume=resume)


def _recipe(options: argparse.Namespace, named: str | Path | None, settings: Overrides) -> Recipe:
    """Return the recipe that is named, or that adapts the model, or else one by which a corpus can be made."""
    from unmask.recipes.recipe import read_recipe
    from unmask.workflows.pretraining.default import SIZES, for_model, for_text

    if named:
        return read_recipe(named, settings)
    if options.init:
        return for_model(options.init, settings)
    return for_text(options.text, text_options(options), settings) if options.text else read_recipe(SIZES[0], settings)


def _corpus(options: argparse.Namespace, recipe: Recipe, out: Path, *, resume: bool) -> Corpus:
    """Return the corpus that is named, or the one that is made from text."""
    from unmask.data.corpus.corpus import open_corpus
    from unmask.workflows.pretraining.corpus import corpus_from_text

    if options.corpus:
        return open_corpus(options.corpus)
    return corpus_from_text(
        options.text,
        recipe,
        out,
        init=options.init,
        extend=options.extend,
        layers=options.layers,
        options=text_options(options),
        resume=resume,
        workers=num_cores(),
        report=lambda text: report(options, text),
    )


def processes() -> int:
    """Return the number of processes that torchrun has started."""
    return rank_and_size()[1]


def restarted() -> bool:
    """Return whether `supervise`, or torchrun with --max-restarts, has restarted this process after a crash."""
    return any(whole(name, 0) > 0 for name in (ATTEMPT, "TORCHELASTIC_RESTART_COUNT"))


def started(out: Path) -> bool:
    """Return whether a run directory has a checkpoint to resume from."""
    return any((out / "checkpoints").glob("step-*"))


def supervise(options: argparse.Namespace) -> int:
    """Run the same command in a child process, restarting it after a crash, and return its last exit status.

    User errors and signals are final. Ctrl-C, SIGTERM and SIGHUP are left to the child process, whose end is awaited.
    """
    if processes() > 1:
        raise UserError("--restarts works with a single process only", remedy="use --max-restarts of torchrun")
    stopped = False
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if number != signal.SIGINT and process is not None:  # Ctrl-C is sent to both by the terminal
            process.send_signal(number)

    for number in Interrupt.signals:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGHUP under nohup
            signal.signal(number, stop)
    for attempt in range(options.restarts + 1):
        command = [sys.executable, "-P", "-m", "unmask", *options.given]  # -P: not a numpy.py of the current folder
        process = subprocess.Popen(command, env=os.environ | {ATTEMPT: str(attempt)})
        if stopped:  # the signal came before `process` was assigned
            process.terminate()
        status = _wait(process)
        if status in FINAL or stopped:
            break
        report(options, f"the process ended with status {status}; restarts left: {options.restarts - attempt}")
    return status if status >= 0 else 128 - status


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a process.

    A signal that arrives just before a blocking system call is handled only after it: waiting is never long.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=1)


def _refuse_idle(options: argparse.Namespace) -> None:
    """Raise an error for options that have no effect, or that do not work with several processes."""
    if processes() > 1 and options.search:
        raise UserError("--search works with a single process only", remedy="search first, with one process")
    if processes() > 1 and options.text:
        raise UserError("--text works with a single process only", remedy="build the corpus first, then pass --corpus")
    if options.allow_pickle and not options.init:
        raise UserError("--allow-pickle has no effect without --init")
    if options.corpus and (options.field, options.documents, options.strict) != ("text", "auto", False):
        raise UserError(
            "--field, --documents and --strict have no effect on a corpus that is already built", remedy="omit them"
        )
    if options.corpus and options.extend is not None:
        raise UserError(
            "--extend has no effect on a corpus that is already built",
            remedy="extend its tokenizer with unmask tokenizer extend, and rebuild it",
        )
    for setting in options.set:
        key = setting.partition("=")[0]
        if key.startswith("tokenizer.") and (options.corpus or options.init):
            owner = "the corpus" if options.corpus else "the model"
            raise UserError(f"--set {setting} has no effect: {owner} has its own tokenizer", remedy="omit it")
        if options.init and key.startswith("encoder.") and key != "encoder.dropout":
            remedy = "pass --layers N for fewer layers" if key == "encoder.layers" else "omit it"
            raise UserError(f"--set {setting} has no effect: --init determines the encoder", remedy=remedy)
