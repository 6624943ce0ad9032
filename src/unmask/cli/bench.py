"""`unmask bench`: measure the engines of a model on this machine and recommend one."""

from __future__ import annotations

import argparse

from unmask.cli.options import add_pickle, count, print_json, print_text


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="run directory or Hugging Face model directory")
    add_pickle(parser)
    parser.add_argument(
        "--sentences", type=count, default=1000, metavar="N", help="random sentences of mixed lengths (default: 1000)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(options: argparse.Namespace) -> None:
    """Measure and print one line per engine."""
    from unmask.inference.bench import measure_engines
    from unmask.model.model import load_model

    model = load_model(options.model, allow_pickle=options.allow_pickle)
    found = measure_engines(model, sequences=max(1, options.sentences))
    if options.json:
        print_json(found)
        return
    print_text(f"{'engine':20} {'sentences/s':>12} {'p50 ms':>8} {'p99 ms':>8}  difference from float32")
    for row in found.rows:
        name = f"{row.backend} {row.precision}"
        speed = f"{row.sentences_per_second:12,.0f} {row.p50_ms:8.2f} {row.p99_ms:8.2f}"
        print_text(f"{name:20} {speed}  {row.difference:.2g}")
    for reason in found.left_out:
        print_text(f"left out: {reason}")
    best = found.rows[found.recommended]
    how = f"predict --precision {best.precision}" if best.backend == "torch" else ""
    how = how or f"export --format {best.backend} --precision {best.precision}"
    print_text(f"recommended: {best.backend} in {best.precision} (unmask {how})")
