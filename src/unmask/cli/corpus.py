"""`unmask corpus build` and `unmask corpus info`."""

from __future__ import annotations

import argparse
import sys

from unmask.cli.options import (
    EXISTING_TOKENIZER,
    TEXT_FILES,
    add_action,
    add_quiet,
    add_text,
    count,
    print_text,
    report,
    text_options,
)
from unmask.support.environment import num_cores
from unmask.support.errors import UserError, counted


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    build = add_action(actions, "build", "tokenize text and write it as checksummed shards")
    build.add_argument("files", nargs="+", metavar="FILE", help=TEXT_FILES)
    build.add_argument("--tokenizer", required=True, metavar="DIR", help=EXISTING_TOKENIZER)
    build.add_argument(
        "--heldout",
        nargs="+",
        default=[],
        metavar="FILE",
        help="text to hold out for evaluation during training (default: 1 %% of the documents)",
    )
    build.add_argument(
        "--workers",
        type=count,
        default=num_cores(),
        metavar="N",
        help="number of processes that tokenize (default: one per core)",
    )
    build.add_argument("--out", required=True, metavar="DIR", help="directory of the new corpus")
    add_quiet(build)
    add_text(build)
    info = add_action(actions, "info", "verify the checksums of a corpus and describe its content")
    info.add_argument("directory", metavar="DIR", help="directory of a corpus")


def run(options: argparse.Namespace) -> None:
    """Build a corpus, or describe one."""
    if options.action == "info":
        _info(options.directory)
        return
    if options.workers < 1:
        raise UserError(f"--workers {options.workers}: at least one is needed", remedy="pass --workers 1 or more")
    from unmask.data.corpus.build import build_corpus
    from unmask.data.tokenizers.load import load_tokenizer
    from unmask.model.directory import find_tokenizer

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
    from unmask.data.corpus.corpus import open_corpus

    corpus = open_corpus(directory)
    corpus.verify()
    manifest, tokenizer = corpus.manifest, corpus.tokenizer
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        print_text(f"{name}: {part.amounts}, {counted(len(part.shards), 'shard')}")
    frequent = manifest.most_frequent_token
    print_text(f"tokenizer: {tokenizer.size:,} tokens, {'uncased' if tokenizer.lowercase else 'cased'}")
    print_text(f"most frequent token: {tokenizer.token(frequent.id)} ({100 * frequent.share:.2f} %)")
    print_text(f"sources: {', '.join(manifest.sources)}")
    print_text(f"skipped: {manifest.skipped.count}")
    for reason in manifest.skipped.places:
        print_text(f"  {reason}")
    print_text("all checksums match", sys.stderr)
