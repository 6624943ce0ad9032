"""`unmask export`: write a model in the format of another program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.options import add_model, add_quiet, print_text, report
from unmask.support.errors import UserError

if TYPE_CHECKING:
    from unmask.model.model import Model

SIGNIFICANT = 0.05
"""Probability below which a loss of the paired bootstrap is not taken for chance."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument(
        "--format",
        required=True,
        dest="kind",
        choices=("onnx", "openvino", "huggingface", "allennlp"),
        help="onnx (ONNX Runtime) or openvino: a program with its tokenizer, which predict, evaluate and load also "
        "read; huggingface: a directory for transformers; allennlp: options.json and weights.hdf5 of an ELMo",
    )
    parser.add_argument(
        "--precision",
        default="float32",
        choices=("float32", "bf16", "int8"),
        help="number format (default: float32); bf16 for openvino, int8 for onnx and openvino",
    )
    parser.add_argument(
        "--head", metavar="NAME", help="head to export (default: the task's, or masked_lm, or features)"
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="labeled examples: calibrate int8 by them (openvino), and refuse it if it is significantly worse on them",
    )
    parser.add_argument(
        "--target",
        default="any",
        choices=("any", "this"),
        help="processors that int8 is made for: any (default), or the closest on this one, which other programs may "
        "compute wrongly elsewhere",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="new directory")
    parser.add_argument("--columns", metavar="OURS=THEIRS,...", help="names of the columns of --data, as for evaluate")
    add_quiet(parser)


def run(options: argparse.Namespace) -> None:
    """Write the files."""
    from unmask.inference.program import refuse_filled
    from unmask.model.model import load_model

    out = Path(options.out)
    refuse_filled(out)
    _check(options)
    model = load_model(options.model, allow_pickle=options.allow_pickle)
    if options.kind == "allennlp":
        _allennlp(model, out, options)
    elif options.kind == "huggingface":
        _huggingface(model, out, options)
    else:
        _program(model, out, options)


def _check(options: argparse.Namespace) -> None:
    """Raise an error for options that have no effect with the format."""
    if options.kind in ("allennlp", "huggingface"):
        if options.precision != "float32":
            raise UserError(f"--format {options.kind} is written in float32", remedy="omit --precision")
        if options.head or options.data or options.target != "any":
            raise UserError(
                f"--head, --data and --target have no effect with --format {options.kind}", remedy="omit them"
            )


def _allennlp(model: Model, out: Path, options: argparse.Namespace) -> None:
    from unmask.families.checkpoints.allennlp import write

    write(out, model.encoder, model.tokenizer.tokens(range(model.tokenizer.size)))
    if model.heads:
        report(options, f"not in this format, and left out: {', '.join(sorted(model.heads))}")
    report(options, f"AllenNLP's files: {out}")


def _huggingface(model: Model, out: Path, options: argparse.Namespace) -> None:
    from unmask.model.model import load_model, save_model

    save_model(out, model, f"# {out.name}\n\nWritten by `unmask export`.\n")
    if load_model(out).fingerprint() != model.fingerprint():
        raise UserError("what was written differs from the model", file=out)
    report(options, f"a directory for transformers, the same weights: {out}")


def _program(model: Model, out: Path, options: argparse.Namespace) -> None:
    """Write and check a program; with labeled data, also compare its predictions."""
    from unmask.inference.export import Export, export_model

    examples, samples = _examples(model, options)
    wanted = Export(options.kind, options.precision, options.head, options.target)
    manifest = export_model(model, wanted, out, samples)
    report(options, f"largest difference from the original: {manifest.difference:.2g} of {manifest.scale:.3g}")
    if examples:
        _gate(model, out, options)
    made = f"{manifest.precision}, {manifest.signature.head}"
    report(options, f"{made}, for {manifest.target} processor, checked on {manifest.processor}: {out}")


def _examples(model: Model, options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """Return the examples of --data, and samples of the first ones; both are empty without it."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.quantize import CALIBRATION

    if not options.data:
        return [], []
    if model.task is None:
        raise UserError("--data: this model was not fine-tuned, so that no metric tells what was lost")
    examples = model.task.read([options.data], columns=parse_columns(options.columns))
    return examples, model.task.frame(model.tokenizer, examples[:CALIBRATION], model.labels, gold=False).samples


def _gate(model: Model, out: Path, options: argparse.Namespace) -> None:
    """Compare the exported model with the original on labeled data, and remove it if it is significantly worse.

    Raises:
        UserError: it is.
    """
    import shutil

    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.evaluation.model import evaluate_task
    from unmask.inference.predictor import load

    assert model.task is not None
    result = evaluate_task(
        load(out),
        [options.data],
        columns=parse_columns(options.columns),
        against=model,
        names=(str(out), options.model),
    )
    found = result["against"]["differences"][model.task.metric]
    low, high = found["interval"]
    print_text(
        f"{model.task.metric}, exported minus original: {found['difference']:+.4g} [{low:+.4g}, {high:+.4g}], "
        f"p = {found['p']:.2g}, {result['examples']:,} examples"
    )
    if options.precision != "float32" and found["difference"] < 0 and found["p"] < SIGNIFICANT:
        shutil.rmtree(out)
        raise UserError(
            f"{options.precision} loses {-found['difference']:.3g} of {model.task.metric} on these examples "
            f"(p = {found['p']:.2g}): nothing was written",
            file=options.data,
            remedy="choose another --precision or --format",
        )
