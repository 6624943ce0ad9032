"""Options shared by several verbs, and the objects built from them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from unmask.data.text.documents import TextOptions
from unmask.support.environment import busy_cores, num_cores, read_times
from unmask.support.errors import UserError, counted, printable

if TYPE_CHECKING:
    from unmask.training.machine import Machine

TEXT_FILES = (
    "plain text or JSON Lines (.jsonl), optionally compressed (.gz, .xz, .zst); Parquet, Arrow, or a directory of "
    "datasets; - is standard input"
)
EXISTING_TOKENIZER = "directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub"
RANDOM_TOKENIZER = f"{EXISTING_TOKENIZER}; for --model random:RECIPE, an untrained model"
THREADS = "OMP_NUM_THREADS"
"""Environment variable with the number of threads to compute with, whatever other programs do."""


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    """Add the parser of a verb's action, such as `corpus build`."""
    return actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading raw text."""
    group = parser.add_argument_group("text")
    group.add_argument(
        "--field", default="text", metavar="NAME", help="field of JSON Lines that holds the text (default: text)"
    )
    group.add_argument(
        "--documents",
        default="auto",
        choices=("auto", "file", "blank-line", "line"),
        help="what counts as a document in plain text: a whole file, a block between blank lines, or a line (default: "
        "auto, which is blank-line for a single file, file for several)",
    )
    group.add_argument(
        "--strict", action="store_true", help="stop at the first unreadable document instead of skipping it"
    )


def text_options(options: argparse.Namespace) -> TextOptions:
    """Return how raw text is read."""
    return TextOptions(field=options.field, documents=options.documents, strict=options.strict)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the number of processes that prepare batches."""
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="number of processes that prepare batches in advance, without effect on the results (default: 2 on a "
        "GPU, 0 on a CPU)",
    )


def add_machine(parser: argparse.ArgumentParser, *, precision: str, quiet: bool = True) -> None:
    """Add the options for device and precision; `precision` is the default."""
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda", "mps"),
        help="where to compute; mps: the GPU of Apple's processors (default: auto, which is cuda if available, or cpu)",
    )
    group.add_argument(
        "--precision",
        default=precision,
        type=_precision,
        choices=("auto", "float32", "bf16"),
        help=f"number format of the computation; auto is bf16 where it is faster than float32 (default: {precision})",
    )
    if quiet:
        add_quiet(group)


def _precision(text: str) -> str:
    """Return a precision; int8 is none of a computation with torch.

    Raises:
        ArgumentTypeError: it is int8.
    """
    if text == "int8":
        raise argparse.ArgumentTypeError("int8 is a format of exported models: see unmask export --precision int8")
    return text


def add_quiet(parser: argparse._ActionsContainer) -> None:
    """Add the option that silences progress messages."""
    parser.add_argument("--quiet", action="store_true", help="print only results and errors")


def machine(options: argparse.Namespace) -> Machine:
    """Return the device and precision that the options ask for; cores that other programs occupy are left to them."""
    from unmask.training.machine import choose_machine

    chosen = choose_machine(options.device, options.precision, getattr(options, "workers", None))
    if chosen.device.type == "cpu" and THREADS not in os.environ:
        _leave_busy_cores(options)
    return chosen


def _leave_busy_cores(options: argparse.Namespace) -> None:
    """Compute with as many threads as there are cores that no other program has occupied since the start."""
    import torch

    busy, cores = busy_cores(options.started, read_times()), num_cores()
    free = max(1, cores - round(busy))
    if free < torch.get_num_threads():
        torch.set_num_threads(free)
        how = f"computing with {counted(free, 'thread')} ({THREADS} overrides)"
        report(options, f"other programs use {busy:.1f} of {cores} cores: {how}")


def add_model(parser: argparse.ArgumentParser, flag: str = "--model", *, required: bool = True) -> None:
    """Add the options for the model to load."""
    text = "run directory, Hugging Face model directory or name on the Hub, or directory of AllenNLP's ELMo" + (
        "" if required else " to start from"
    )
    parser.add_argument(flag, required=required, metavar="MODEL", help=text)
    add_pickle(parser)


def add_pickle(parser: argparse.ArgumentParser) -> None:
    """Add the option to load pickled weights."""
    parser.add_argument(
        "--allow-pickle", action="store_true", help="load pickled weights (pytorch_model.bin), restricted to tensors"
    )


def add_settings(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option that changes settings; `what` can be changed, for example."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"change {what}; can be repeated"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run directory, and whether to continue the run in it."""
    parser.add_argument("--resume", action="store_true", help="continue the run in RUN from its last checkpoint")
    parser.add_argument("--out", required=True, metavar="RUN", help="run directory to write")


def add_labelled(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the options for reading labeled files; `more` are additional formats."""
    parser.add_argument(
        "--columns",
        metavar="text=…,label=…",
        help="names of the columns to read, or their numbers from 0 for a file without a header",
    )
    parser.add_argument(
        "--format", choices=("tsv", "csv", "jsonl", "conll", *more), help="file format (default: by the file's suffix)"
    )


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    text = msgspec.json.encode(value).decode()
    try:
        text.encode(sys.stdout.encoding or "utf8")
    except UnicodeEncodeError:
        text = json.dumps(msgspec.json.decode(text))  # only ASCII
    sys.stdout.write(text + "\n")


def refuse_input(out: Path, inputs: Iterable[str], flag: str) -> None:
    """Refuse to overwrite an input, whatever its name: a link to it is the same file.

    Raises:
        UserError: a file to write is one of the files that are read.
    """
    for path in map(Path, inputs):
        if out.exists() and path.exists() and out.samefile(path):
            raise UserError(f"{flag} is the same file as --data", file=out, remedy="name another file")


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print a line for people, on standard output by default; control characters in it, but tabs, are escaped."""
    print("\t".join(map(printable, text.split("\t"))), file=stream)


def print_lines(text: str, stream: TextIO | None = None) -> None:
    """Print a text of several lines as `print_text`."""
    for line in text.split("\n"):
        print_text(line, stream)


def count(text: str) -> int:
    """Parse a whole number from 0 of the command line.

    Raises:
        ArgumentTypeError: it is something else.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a whole number from 0 to 999")
    return int(text)


def report(options: argparse.Namespace, text: str) -> None:
    """Print a message that is not a result on standard error, unless --quiet is given."""
    if not getattr(options, "quiet", False):
        print_lines(text, sys.stderr)
