"""`unmask tokenizer train` and `unmask tokenizer encode`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.options import add_text, print_json, report, text_options
from unmask.errors import UserError, counted

if TYPE_CHECKING:
    from unmask.tokenizers.tokenizer import Tokenizer

CHUNK = 1000
"""How many texts are encoded at once, on all cores."""


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
    encode = verbs.add_parser("encode", help="print the tokens of texts, a text a line")
    encode.add_argument("texts", nargs="*", metavar="TEXT")
    encode.add_argument("--tokenizer", required=True, metavar="DIR", help="of a tokenizer, a model or a run")
    encode.add_argument("--data", metavar="FILE", help="encode each line of a file, also .gz and .xz; - is stdin")
    encode.add_argument(
        "--special", action="store_true", help="add the special tokens that a model reads around a text"
    )
    form = encode.add_mutually_exclusive_group()
    form.add_argument("--ids", action="store_true", help="print ids instead of tokens")
    form.add_argument("--json", action="store_true", help="print one JSON object a line: text, tokens, ids, offsets")


def run(options: argparse.Namespace) -> None:
    """Train and save, or encode and print."""
    _train(options) if options.action == "train" else _encode(options)


def _train(options: argparse.Namespace) -> None:
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


def _encode(options: argparse.Namespace) -> None:
    from unmask.text.unicode import check_unicode

    if options.texts and options.data:
        raise UserError("give texts or --data FILE, not both")
    if not options.texts and not options.data:
        raise UserError("there is no text to encode", remedy="give texts, or --data FILE")
    check_unicode(options.texts)
    tokenizer = _load(options.tokenizer, special=options.special)
    texts = iter(_lines(options.data) if options.data else options.texts)
    while chunk := list(islice(texts, CHUNK)):
        for encoded in _encoded(tokenizer, chunk, special=options.special):
            if options.json:
                print_json(encoded)
            else:
                print(*encoded["ids" if options.ids else "tokens"])


def _load(source: str, *, special: bool) -> Tokenizer:
    """Load the tokenizer of a directory; with `special`, that of a GPT puts its own tokens around texts."""
    from unmask.model import find_tokenizer
    from unmask.tokenizers.load import load_tokenizer

    if not Path(source).is_dir():
        raise UserError("no such folder", file=source, remedy="name that of a tokenizer, a model or a run")
    directory = find_tokenizer(source)
    tokenizer = load_tokenizer(directory)
    if special and (directory / "config.json").is_file():
        from unmask.checkpoints.huggingface import read_settings

        tokenizer.summary = read_settings(directory).summary
    return tokenizer


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a file; empty ones too, so that each has its line of output.

    Raises:
        UserError: a line is not UTF-8 or too long, or there is none.
    """
    from unmask.text.files import MAX_DOCUMENT, display_name, read_lines

    number = 0
    for number, line in read_lines(path):
        if line is None:
            raise UserError(f"longer than {MAX_DOCUMENT:,} bytes", file=display_name(path), line=number)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8 (byte {error.start + 1} of the line)", file=display_name(path), line=number
            ) from error
    if not number:
        raise UserError("there is no text in the file", file=display_name(path))


def _encoded(tokenizer: Tokenizer, texts: list[str], *, special: bool) -> Iterable[dict[str, Any]]:
    """Yield what is printed of each text; special tokens that are added stand at (0, 0)."""
    from unmask.batches.frame import Frame

    frame = Frame.of(tokenizer)
    for text, (ids, places) in zip(texts, tokenizer.encode_offsets_many(texts), strict=True):
        numbers, offsets = ids.tolist(), places.tolist()
        if special:
            numbers, offsets = frame.wrap(ids).ids.tolist(), [[0, 0], *offsets, [0, 0]]
        yield {"text": text, "tokens": tokenizer.tokens(numbers), "ids": numbers, "offsets": offsets}
