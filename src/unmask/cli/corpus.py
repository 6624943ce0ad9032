"""`unmask corpus build` and `unmask corpus info`."""

from __future__ import annotations

import argparse
import sys

from unmask.cli.options import add_text, num_cores, report, text_options
from unmask.errors import UserError, counted


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    build = verbs.add_parser("build", help="cut text into checksummed shards of tokens")
    build.add_argument("files", nargs="+", metavar="FILE", help="text or JSON Lines, also .gz and .xz; - is stdin")
    build.add_argument("--tokenizer", required=True, metavar="DIR")
    build.add_argument("--heldout", nargs="+", default=[], metavar="FILE", help="default: 1 %% of the documents")
    build.add_argument(
        "--workers", type=int, default=num_cores(), metavar="N", help="processes that encode (default: one a core)"
    )
    build.add_argument("--out", required=True, metavar="DIR")
    build.add_argument("--quiet", action="store_true")
    add_text(build)
    info = verbs.add_parser("info", help="check a corpus and say what is in it")
    info.add_argument("directory", metavar="DIR")


def run(options: argparse.Namespace) -> None:
    """Build or describe."""
    if options.action == "info":
        _info(options.directory)
        return
    if options.workers < 1:
        raise UserError(f"--workers {options.workers}: there must be one", remedy="pass --workers 1 or more")
    from unmask.corpus.build import build_corpus
    from unmask.model import find_tokenizer
    from unmask.tokenizers.load import load_tokenizer

    build_corpus(
        options.files,
        load_tokenizer(find_tokenizer(options.tokenizer)),
        options.out,
        heldout=options.heldout,
        options=text_options(options),
        workers=options.workers,
        report=lambda text: report(options, text),
    )
    report(options, f"corpus: {options.out}")


def _info(directory: str) -> None:
    from unmask.corpus.corpus import open_corpus

    corpus = open_corpus(directory)
    corpus.verify()
    manifest, tokenizer = corpus.manifest, corpus.tokenizer
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        print(f"{name}: {part.amounts}, {counted(len(part.shards), 'shard')}")
    frequent = manifest.most_frequent_token
    print(f"tokenizer: {tokenizer.size:,} pieces, {'uncased' if tokenizer.lowercase else 'cased'}")
    print(f"most frequent token: {tokenizer.token(frequent.id)} ({100 * frequent.share:.2f} %)")
    print(f"sources: {', '.join(manifest.sources)}")
    print(f"skipped: {manifest.skipped.count}")
    for place in manifest.skipped.places:
        print(f"  {place}")
    print("all checksums are right", file=sys.stderr)
