"""`unmask fill`: predict the tokens at [MASK]."""

from __future__ import annotations

import argparse

from unmask.cli.options import add_machine, add_model, machine, print_json, print_text


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="text with one or more [MASK]")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="number of candidates per mask (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")
    add_machine(parser, precision="float32", quiet=False)


def run(options: argparse.Namespace) -> None:
    """Fill the masks and print the candidates."""
    from unmask.inference.predictor import Predictor
    from unmask.model.model import load_model

    model = load_model(options.model, allow_pickle=options.allow_pickle)
    for filling in Predictor(model, machine(options)).fill(options.texts, top=options.top):
        if options.json:
            print_json(filling)
            continue
        print_text(filling.text)
        for mask in filling.masks:
            found = ", ".join(f"{candidate.token} {candidate.probability:.3f}" for candidate in mask.candidates)
            print_text(f"  at {mask.position}: {found}")
