"""`unmask tokenizer train`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unmask.cli.options import add_text, report, text_options
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    train = verbs.add_parser("train", help="train a vocabulary on text")
    train.add_argument("files", nargs="+", metavar="FILE", help="text or JSON Lines, also .gz and .xz; - is stdin")
    train.add_argument("--kind", default="wordpiece", choices=("wordpiece", "bpe"))
    train.add_argument("--vocab-size", type=int, default=30522, metavar="N")
    train.add_argument("--cased", action="store_true", help="keep capitals and accents (bpe always does)")
    train.add_argument("--out", required=True, metavar="DIR")
    train.add_argument("--quiet", action="store_true")
    add_text(train)


def run(options: argparse.Namespace) -> None:
    """Train and save."""
    from unmask.text.documents import Skipped, read_documents, refuse_idle_options
    from unmask.tokenizers.bpe import train_bpe
    from unmask.tokenizers.wordpiece import train_wordpiece

    if options.kind == "bpe" and options.cased:
        raise UserError("--cased has no effect on --kind bpe, which always keeps capitals and accents")
    out = Path(options.out)
    if out.exists() and any(out.iterdir()):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    refuse_idle_options(options.files, text_options(options))
    skipped = Skipped()
    documents = read_documents(options.files, text_options(options), skipped)
    progress = not options.quiet and sys.stderr.isatty()
    if options.kind == "bpe":
        tokenizer = train_bpe(documents, size=options.vocab_size, progress=progress)
    else:
        tokenizer = train_wordpiece(documents, size=options.vocab_size, lowercase=not options.cased, progress=progress)
    tokenizer.save(out)
    report(options, f"{tokenizer.size} pieces: {out}")
    if skipped.count:
        report(options, f"{skipped.count} documents were skipped: " + "; ".join(skipped.places))
