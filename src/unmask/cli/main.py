"""`unmask VERB …`: parse the command line, run the verb, and report errors as one line and an exit status.

A verb's module is imported only when the verb is called, so that `unmask --help` does not import torch.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

from unmask.support.environment import Times, is_out_of_memory, read_times
from unmask.support.errors import SharedDirectoryWarning, UnmaskError, check_unicode, printable
from unmask.support.version import __version__

VERBS = {
    "tokenizer": "train a tokenizer on text, extend one, or tokenize texts with one",
    "corpus": "build a pretraining corpus from text, or check and describe one",
    "pretrain": "pretrain an encoder from scratch, or adapt an existing model",
    "finetune": "fine-tune a model on labeled examples",
    "distill": "train a small student by a teacher, on text or on the examples of a task",
    "evaluate": "score a fine-tuned model on labeled examples, or a pretrained model on text",
    "predict": "classify texts, find entities, or answer questions with a fine-tuned model",
    "features": "write an encoder's hidden states for each token of texts, as features for other models",
    "embed": "write one vector per text, for search and similarity",
    "fill": "predict the tokens at [MASK] in texts",
    "serve": "answer requests over HTTP with one or more models",
    "export": "write a model in the format of another program",
    "bench": "measure the engines of a model on this machine, and recommend one",
    "doctor": "print what this machine has and computes, for reports of problems",
    "push": "upload a model with its card to the Hugging Face Hub",
    "recipes": "list, show and compare the shipped recipes, or print their schema",
    "completion": "print the completion of a shell: bash, zsh or fish",
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
FALLBACK = "fall back to run on the CPU"
"""What torch says of an operator that Apple's GPUs do not have."""
PATH_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Operating system errors that a user can fix by giving another path."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    given, started = list(sys.argv[1:] if arguments is None else arguments), read_times()
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # read when torch is loaded
    os.environ["PYTHONSAFEPATH"] = "1"  # Python processes that this one starts import nothing from the current folder
    gc.set_threshold(GARBAGE)
    _open_streams()
    with _noting_interrupts() as interrupted:
        try:
            return _run(given, started)
        except UnmaskError as error:
            _complain(str(error))
            return error.status
        except KeyboardInterrupt:
            _complain("interrupted")
            return 130
        except BrokenPipeError:  # the reader of our output has closed it
            return 0
        except OSError as error:
            file = error.filename or ("standard output" if _discard_output() else "")
            _complain(f"{file}: {error.strerror or error}" if file else f"{error.strerror or error}")
            return 2 if isinstance(error, PATH_ERRORS) else 1
        except Exception as error:
            if interrupted:  # what C code that was being imported makes of Ctrl-C
                _complain("interrupted")
                return 130
            if is_out_of_memory(error):
                _complain("out of memory; choose smaller sizes, or a machine with more memory")
                return 1
            raise
        finally:
            _discard_output()


def _run(given: list[str], started: Times | None) -> int:
    check_unicode(given)  # texts, and names of files, which are recorded
    options = parse(given)
    options.given, options.started = given, started
    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.showwarning = partial(_warn, shown)
        import_module(f"unmask.cli.{options.verb}").run(options)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnmaskError(f"standard output: {error.strerror or error}") from error
    return 0


def _warn(shown: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a warning to the user as one line; others, which are for programmers, as Python does."""
    if issubclass(category, SharedDirectoryWarning) or FALLBACK in str(message):
        _complain(f"warning: {message}")
    else:
        shown(message, category, *where)


def _complain(text: str) -> None:
    """Print an error, whatever is in it, as one line."""
    with suppress(OSError):
        print(f"unmask: {printable(text)}", file=sys.stderr, flush=True)


def _open_streams() -> None:
    """Replace streams that the caller has closed, and let characters that a stream cannot encode be escaped."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number, which no other file may get
            if number == 1:
                sys.stdout = open(1, "w", encoding="utf8", closefd=False)  # noqa: SIM115 (writing is an error)
            elif number == 2:
                sys.stderr = open(os.devnull, "w", encoding="utf8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> bool:
    """Return whether standard output cannot be written; what it still holds is then lost, so that the end is quiet."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Yield a list that is not empty once Ctrl-C was pressed, even if KeyboardInterrupt became another error."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    own = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if own:
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        if own:
            signal.signal(signal.SIGINT, before)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, importing only the module of the verb that is called."""
    called = next((word for word in arguments if not word.startswith("-")), None)
    return command_parser(called).parse_args(arguments)


def command_parser(called: str | None = None, *, all_verbs: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the command line, with the options of the verb that is called, or of all verbs."""
    parser = argparse.ArgumentParser(
        prog="unmask", description="Pretrain, adapt, fine-tune and use language encoders on your own text."
    )
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, summary in VERBS.items():
        inner = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if all_verbs or verb == called:
            import_module(f"unmask.cli.{verb}").add(inner)
    return parser
