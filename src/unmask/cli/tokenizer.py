"""`unmask tokenizer train`, `extend` and `encode`: train a tokenizer, extend one, or tokenize texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.options import (
    EXISTING_TOKENIZER,
    TEXT_FILES,
    add_action,
    add_quiet,
    add_text,
    print_json,
    print_text,
    report,
    text_options,
)
from unmask.support.errors import UserError, counted

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Tokenizer

CHUNK = 1000
"""Number of texts that are tokenized at once, on all cores."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    train = add_action(actions, "train", "train a tokenizer on text")
    train.add_argument("files", nargs="+", metavar="FILE", help=TEXT_FILES)
    train.add_argument(
        "--kind",
        default="wordpiece",
        choices=("wordpiece", "bpe", "unigram", "words"),
        help="WordPiece as in BERT, byte-level BPE as in RoBERTa, a SentencePiece unigram model as in ALBERT, or whole "
        "words as for ELMo, which reads their characters (default: wordpiece)",
    )
    train.add_argument(
        "--vocab-size", type=int, default=30522, metavar="N", help="number of tokens in the vocabulary (default: 30522)"
    )
    train.add_argument("--cased", action="store_true", help="keep capital letters and accents, as bpe and words do")
    train.add_argument(
        "--coverage",
        type=float,
        metavar="SHARE",
        help="share of the text's characters that get tokens, the most frequent ones (default: 0.9999)",
    )
    train.add_argument("--out", required=True, metavar="DIR", help="directory of the new tokenizer")
    add_quiet(train)
    add_text(train)
    extend = add_action(actions, "extend", "extend a tokenizer by new tokens learned from text")
    extend.add_argument("files", nargs="+", metavar="FILE", help=TEXT_FILES)
    extend.add_argument("--tokenizer", required=True, metavar="DIR", help=EXISTING_TOKENIZER)
    extend.add_argument("--add", type=int, required=True, metavar="N", help="maximum number of new tokens")
    extend.add_argument(
        "--min-count", type=int, metavar="N", help="minimum number of occurrences of what is learned (default: 5)"
    )
    extend.add_argument("--out", required=True, metavar="DIR", help="directory of the extended tokenizer")
    add_quiet(extend)
    add_text(extend)
    encode = add_action(actions, "encode", "print the tokens of texts, one text per line")
    encode.add_argument("texts", nargs="*", metavar="TEXT", help="text to tokenize")
    encode.add_argument("--tokenizer", required=True, metavar="DIR", help=EXISTING_TOKENIZER)
    encode.add_argument(
        "--data",
        metavar="FILE",
        help="tokenize each line of a file, optionally compressed (.gz, .xz, .zst); - is standard input",
    )
    encode.add_argument(
        "--special", action="store_true", help="add the special tokens that the model expects around a text"
    )
    form = encode.add_mutually_exclusive_group()
    form.add_argument("--ids", action="store_true", help="print token ids instead of tokens")
    form.add_argument(
        "--json", action="store_true", help="print one JSON object per text, with text, tokens, ids and offsets"
    )


def run(options: argparse.Namespace) -> None:
    """Train, extend and save a tokenizer, or tokenize and print texts."""
    {"train": _train, "extend": _extend, "encode": _encode}[options.action](options)


def _train(options: argparse.Namespace) -> None:
    from unmask.data.tokenizers.coverage import COVERAGE
    from unmask.data.tokenizers.train import CASED, train_tokenizer

    if options.kind in CASED and options.cased:
        raise UserError(f"--cased has no effect on --kind {options.kind}, which always keeps capitals and accents")
    if options.kind in CASED and options.coverage is not None:
        raise UserError(f"--coverage has no effect on --kind {options.kind}, which leaves out no character")
    coverage = COVERAGE if options.coverage is None else options.coverage
    if not 0 < coverage <= 1:
        raise UserError(f"--coverage must be above 0 and at most 1, not {coverage:g}")
    with _documents(options) as documents:
        tokenizer = train_tokenizer(
            options.kind,
            documents,
            size=options.vocab_size,
            lowercase=not options.cased,
            coverage=coverage,
            progress=_shows_progress(options),
        )
        tokenizer.save(options.out)
        report(options, f"tokenizer with {tokenizer.size:,} tokens: {options.out}")


def _extend(options: argparse.Namespace) -> None:
    from unmask.data.tokenizers.extend import MIN_COUNT, extend_tokenizer
    from unmask.data.tokenizers.load import read_length
    from unmask.model.directory import find_tokenizer

    old = _load(options.tokenizer, special=False)
    least = MIN_COUNT if options.min_count is None else options.min_count
    with _documents(options) as documents:
        extension = extend_tokenizer(
            old, documents, add=options.add, min_count=least, progress=_shows_progress(options)
        )
        new = extension.tokenizer
        new.save(options.out, length=read_length(find_tokenizer(options.tokenizer)))
        for line in extension.summary(options.add):
            report(options, line)
        report(options, f"tokenizer with {new.size:,} tokens: {options.out}")


@contextmanager
def _documents(options: argparse.Namespace) -> Iterator[Iterator[str]]:
    """Yield the documents to learn from; report afterwards how many were skipped."""
    from unmask.data.text.documents import Skipped, read_documents, refuse_idle_options, refuse_none

    out = Path(options.out)
    if out.exists() and any(out.iterdir()):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    refuse_idle_options(options.files, text_options(options))
    skipped = Skipped()
    try:
        yield refuse_none(read_documents(options.files, text_options(options), skipped), skipped, options.files)
    except OSError:  # such as that of a full disk; the directory was empty before
        for path in out.iterdir() if out.is_dir() else ():
            path.unlink()
        raise
    if skipped.count:
        report(options, f"skipped: {counted(skipped.count, 'document')}: " + "; ".join(skipped.places))


def _shows_progress(options: argparse.Namespace) -> bool:
    return not options.quiet and sys.stderr.isatty()


def _encode(options: argparse.Namespace) -> None:
    from unmask.support.errors import check_unicode

    if options.texts and options.data:
        raise UserError("give texts or --data FILE, not both")
    if not options.texts and not options.data:
        raise UserError("there is no text to tokenize", remedy="give texts, or --data FILE")
    check_unicode(options.texts)
    tokenizer = _load(options.tokenizer, special=options.special)
    texts = iter(_lines(options.data) if options.data else options.texts)
    while chunk := list(islice(texts, CHUNK)):
        for encoded in _encoded(tokenizer, chunk, special=options.special):
            if options.json:
                print_json(encoded)
            else:
                print_text(" ".join(map(str, encoded["ids" if options.ids else "tokens"])))


def _load(source: str, *, special: bool) -> Tokenizer:
    """Load the tokenizer of a directory; with `special`, a GPT model's settings determine its special tokens."""
    from unmask.data.tokenizers.load import load_tokenizer
    from unmask.model.directory import find_tokenizer

    if not Path(source).is_dir():
        raise UserError("there is no such directory", file=source, remedy="name that of a tokenizer, a model or a run")
    directory = find_tokenizer(source)
    tokenizer = load_tokenizer(directory)
    if special and (directory / "config.json").is_file():
        from unmask.families.checkpoints.huggingface import read_settings

        tokenizer.summary = read_settings(directory).summary
    return tokenizer


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, including empty ones, so that each has its line of output.

    Raises:
        UserError: a line is not UTF-8 or is too long, or the file is empty.
    """
    from unmask.data.text.files import display_name, read_text_lines

    empty = True
    for _, line in read_text_lines(path):
        empty = False
        yield line
    if empty:
        raise UserError("there is no text in the file", file=display_name(path))


def _encoded(tokenizer: Tokenizer, texts: list[str], *, special: bool) -> Iterable[dict[str, Any]]:
    """Yield the fields to print for each text; added special tokens have the offsets (0, 0)."""
    from unmask.data.batches.frame import Frame

    frame = Frame.of(tokenizer)
    for text, (ids, spans) in zip(texts, tokenizer.encode_offsets_many(texts), strict=True):
        numbers, offsets = ids.tolist(), spans.tolist()
        if special:
            numbers, offsets = frame.wrap(ids).ids.tolist(), [[0, 0], *offsets, [0, 0]]
        yield {"text": text, "tokens": tokenizer.tokens(numbers), "ids": numbers, "offsets": offsets}
