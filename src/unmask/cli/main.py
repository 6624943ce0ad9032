"""`unmask VERB …`: parse, run, and turn errors into one clear line and an exit status.

Verbs are imported when they are called, so that `unmask --help` needs no torch.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from unmask.errors import UnmaskError
from unmask.version import __version__

VERBS = {
    "tokenizer": "train a tokenizer on text, or show how one cuts texts",
    "corpus": "build a corpus from text, or describe one",
    "pretrain": "pretrain an encoder from scratch, or adapt one that exists",
    "finetune": "fine-tune a model on labelled examples",
    "evaluate": "score a model on labelled examples, or a pretrained one on text",
    "predict": "classify texts, find entities, or answer questions",
    "features": "write the layers of an encoder for each token of texts, for models of your own",
    "fill": "fill [MASK] in texts",
    "recipes": "list, show and compare the shipped recipes, or migrate those of earlier versions",
    "runs": "list runs, describe one, draw the curves of several in one picture",
    "demo": "from raw text to a sentiment classifier, with nothing but this package",
}
"""What there is; cli/VERB.py has `add(parser)` and `run(arguments)`."""
SPINS = "10000"
"""How often a thread looks before it sleeps when others are not done; torch's OpenMP reads it when it is loaded. Its
own 300,000 waste milliseconds at each of a step's many meetings if another program holds a core."""
GARBAGE = 20_000
"""So many new objects before Python looks for garbage among them. Importing torch makes 300,000 that all stay: looking
every 700 takes an eighth of the time until the first step."""
MISTAKES = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of the system that a user can mend by naming another path."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    gc.set_threshold(GARBAGE)
    try:
        options = parse(given)
        options.given = given
        import_module(f"unmask.cli.{options.verb}").run(options)
        sys.stdout.flush()
    except UnmaskError as error:
        print(f"unmask: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("unmask: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"unmask: {place}{error.strerror or error}", file=sys.stderr)
        return 2 if isinstance(error, MISTAKES) else 1
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; only the verb that is called is imported."""
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
