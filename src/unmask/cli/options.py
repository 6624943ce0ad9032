"""Options that several verbs share, and what they become."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from unmask.text.documents import TextOptions

if TYPE_CHECKING:
    from unmask.training.machine import Machine


def add_text(parser: argparse.ArgumentParser) -> None:
    """How raw text is read."""
    group = parser.add_argument_group("text")
    group.add_argument("--field", default="text", metavar="NAME", help="of JSON Lines (default: text)")
    group.add_argument(
        "--documents",
        default="auto",
        choices=("auto", "file", "blank-line", "line"),
        help="what a document is in plain text (default: auto: of several files each, in a single one blank lines)",
    )
    group.add_argument("--strict", action="store_true", help="end at the first document that cannot be read")


def text_options(options: argparse.Namespace) -> TextOptions:
    """Return how raw text is read."""
    return TextOptions(field=options.field, documents=options.documents, strict=options.strict)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """How many processes make batches."""
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that make batches ahead (default: 2 for a GPU, none for a CPU); they change no result",
    )


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_machine(parser: argparse.ArgumentParser, *, precision: str, quiet: bool = True) -> None:
    """Where to compute, and how precisely by default."""
    group = parser.add_argument_group("machine")
    group.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    group.add_argument(
        "--precision",
        default=precision,
        choices=("auto", "float32", "bf16"),
        help=f"auto: bf16 where the hardware multiplies it (default: {precision})",
    )
    if quiet:
        group.add_argument("--quiet", action="store_true", help="print results and errors only")


def machine(options: argparse.Namespace) -> Machine:
    """Return where to compute."""
    from unmask.training.machine import choose_machine

    return choose_machine(options.device, options.precision, getattr(options, "workers", None))


def add_model(parser: argparse.ArgumentParser, flag: str = "--model", *, required: bool = True) -> None:
    """Which model."""
    parser.add_argument(flag, required=required, metavar="MODEL", help="a run or a Hugging Face directory")
    parser.add_argument("--allow-pickle", action="store_true", help="read pickled weights, tensors only")


def add_labelled(parser: argparse.ArgumentParser, *more: str) -> None:
    """How labelled files are read; `more` are further formats."""
    parser.add_argument("--columns", metavar="text=…,label=…", help="names of columns, or numbers from 0 (no header)")
    parser.add_argument(
        "--format", choices=("tsv", "csv", "jsonl", "conll", *more), help="where the file's suffix does not tell"
    )


def print_json(value: object) -> None:
    """Print one JSON object on a line of standard output."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def report(options: argparse.Namespace, text: str) -> None:
    """Say something that is no result."""
    if not getattr(options, "quiet", False):
        print(text, file=sys.stderr)
