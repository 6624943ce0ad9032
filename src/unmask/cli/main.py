"""`unmask VERB …`: parse the command line, run the verb, and report errors as one line and an exit status.

A verb's module is imported only when the verb is called, so that `unmask --help` does not import torch.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from unmask.errors import UnmaskError
from unmask.processor import read_times
from unmask.version import __version__

VERBS = {
    "tokenizer": "train a tokenizer on text, extend one, or tokenize texts with one",
    "corpus": "build a pretraining corpus from text, or check and describe one",
    "pretrain": "pretrain an encoder from scratch, or adapt an existing model",
    "finetune": "fine-tune a model on labeled examples",
    "distill": "train a small student by a teacher, on text or on the examples of a task",
    "evaluate": "score a fine-tuned model on labeled examples, or a pretrained model on text",
    "predict": "classify texts, find entities, or answer questions with a fine-tuned model",
    "features": "write an encoder's hidden states for each token of texts, as features for other models",
    "fill": "predict the tokens at [MASK] in texts",
    "export": "write a model in the format of another program",
    "recipes": "list, show and compare the shipped recipes, or migrate recipes of earlier versions",
    "runs": "list runs, describe one, or plot the curves of several",
    "demo": "go from raw text to a sentiment classifier, using only this package",
}
"""Verbs and their summaries; cli/VERB.py defines `add(parser)` and `run(arguments)`."""
SPINS = "10000"
"""GOMP_SPINCOUNT: iterations for which an OpenMP thread spins at a barrier before it sleeps; read when torch is loaded.
The default of 300,000 wastes milliseconds at each of a step's many barriers if another program occupies a core."""
GARBAGE = 20_000
"""Number of new objects after which Python's garbage collector runs. Importing torch creates 300,000 that all stay
alive: collecting after every 700 takes an eighth of the time until the first step."""
PATH_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Operating system errors that a user can fix by giving another path."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    given, started = list(sys.argv[1:] if arguments is None else arguments), read_times()
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    os.environ["PYTHONSAFEPATH"] = "1"  # Python processes that this one starts import nothing from the current folder
    gc.set_threshold(GARBAGE)
    try:
        options = parse(given)
        options.given, options.started = given, started
        import_module(f"unmask.cli.{options.verb}").run(options)
        sys.stdout.flush()
    except UnmaskError as error:
        print(f"unmask: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("unmask: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        print(f"unmask: {file}{error.strerror or error}", file=sys.stderr)
        return 2 if isinstance(error, PATH_ERRORS) else 1
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, importing only the module of the verb that is called."""
    parser = argparse.ArgumentParser(
        prog="unmask", description="Pretrain, adapt, fine-tune and use language encoders on your own text."
    )
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    called = next((word for word in arguments if not word.startswith("-")), None)
    for verb, summary in VERBS.items():
        inner = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if verb == called:
            import_module(f"unmask.cli.{verb}").add(inner)
    return parser.parse_args(arguments)
