"""`unmask tokenizer train`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unmask.cli.options import add_text, report, text_options
from unmask.errors import UserError, counted


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    train = verbs.add_parser("train", help="train a vocabulary on text")
    train.add_argument("files", nargs="+", metavar="FILE", help="text or JSON Lines, also .gz and .xz; - is stdin")
    train.add_argument("--kind", default="wordpiece", choices=("wordpiece", "bpe", "unigram"))
    train.add_argument("--vocab-size", type=int, default=30522, metavar="N")
    train.add_argument("--cased", action="store_true", help="keep capitals and accents (bpe always does)")
    train.add_argument("--out", required=True, metavar="DIR")
    train.add_argument("--quiet", action="store_true")
    add_text(train)


def run(options: argparse.Namespace) -> None:
    """Train and save."""
    from unmask.text.documents import Skipped, read_documents, refuse_idle_options, refuse_none
    from unmask.tokenizers.train import CASED, train_tokenizer

    if options.kind in CASED and options.cased:
        raise UserError(f"--cased has no effect on --kind {options.kind}, which always keeps capitals and accents")
    out = Path(options.out)
    if out.exists() and any(out.iterdir()):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    refuse_idle_options(options.files, text_options(options))
    skipped = Skipped()
    documents = refuse_none(read_documents(options.files, text_options(options), skipped), skipped)
    progress = not options.quiet and sys.stderr.isatty()
    tokenizer = train_tokenizer(
        options.kind, documents, size=options.vocab_size, lowercase=not options.cased, progress=progress
    )
    tokenizer.save(out)
    report(options, f"{tokenizer.size} pieces: {out}")
    if skipped.count:
        report(options, f"skipped: {counted(skipped.count, 'document')}: " + "; ".join(skipped.places))
