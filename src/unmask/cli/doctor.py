"""`unmask doctor`: print what this machine has and computes, for reports of problems."""

from __future__ import annotations

import argparse

from unmask.cli.options import print_json, print_text


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> None:
    """Print the facts under their headings."""
    from unmask.workflows.doctor import diagnose

    report = diagnose()
    if options.json:
        print_json(report)
        return
    width = max(len(name) for facts in report.values() for name in facts)
    for heading, facts in report.items():
        print_text(heading)
        for name, fact in facts.items():
            print_text(f"  {name:{width}}  {fact}")
