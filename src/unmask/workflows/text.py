"""From text files to a tokenizer and a corpus: the calls of `unmask tokenizer` and `unmask corpus`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.data.batches.frame import Frame
from unmask.data.cleaning.rule import read_tally
from unmask.data.corpus import mix
from unmask.data.corpus.build import check_sources
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.manifest import CLEANING
from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_none
from unmask.data.text.encodings import with_encoding
from unmask.data.text.files import display_name, read_text_lines
from unmask.data.tokenizers import extend, train
from unmask.data.tokenizers.coverage import COVERAGE, beginning, suited_vocabulary
from unmask.data.tokenizers.load import load_tokenizer as read_tokenizer
from unmask.data.tokenizers.load import read_length
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.huggingface import read_settings
from unmask.model.directory import find_tokenizer
from unmask.support.choices import Documents, Files, as_files, as_url
from unmask.support.durable import new_directory, refuse_filled
from unmask.support.errors import UserError, check_unicode, counted, refuse_idle
from unmask.support.messages import argument
from unmask.training.runs.display import Display

CHUNK = 1000
"""Number of texts that are tokenized at once, on all cores."""


def train_tokenizer(
    files: Files,
    out: str | Path,
    *,
    kind: Literal["wordpiece", "bpe", "unigram", "words"] | None = None,
    vocab_size: int = 30522,
    lowercase: bool = False,
    coverage: float | None = None,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    encoding: str | None = None,
    quiet: bool = False,
) -> Tokenizer:
    """Train a tokenizer on text.

    Args:
        files: plain text or JSON Lines (.jsonl), optionally compressed (.gz, .bz2, .xz, .zst); Parquet, Arrow, or a
            directory of datasets; WARC, WET and ARC files, HTML, dumps of MediaWiki, EPUB; also their URLs (https://…,
            s3://…); - is standard input.
        out: directory of the new tokenizer.
        kind: WordPiece as in BERT, byte-level BPE as in RoBERTa, a SentencePiece unigram model as in ALBERT, or whole
            words as for ELMo, which reads their characters; by default WordPiece, or unigram for text
            without spaces between words, such as Thai or proteins.
        vocab_size: number of tokens in the vocabulary.
        lowercase: lowercase the text and strip its accents, as an uncased BERT does.
        coverage: share of the text's characters that get tokens, the most frequent ones; by default 0.9999.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        quiet: print only results and errors.

    Raises:
        UserError: the directory is not empty, the files hold no text, or a parameter has no effect.
    """
    display = Display(quiet=quiet)
    if kind in train.CASED:
        fixed = f"on {argument('kind', kind)}, which keeps capitals, accents and all characters"
        refuse_idle(fixed, lowercase=lowercase, coverage=coverage is not None)
    share = COVERAGE if coverage is None else coverage
    if not 0 < share <= 1:
        raise UserError(f"{argument('coverage')} must be above 0 and at most 1, not {share:g}")
    with _documents(as_files(files), Path(out), TextOptions(field, documents, strict, encoding), display) as (
        texts,
        aside,
    ):
        if kind is None:
            first = beginning(texts)
            kind, _ = suited_vocabulary(first, vocab_size)
            texts = chain(first, texts)
        tokenizer = train.train_vocabulary(
            kind, texts, size=vocab_size, lowercase=lowercase, coverage=share, progress=_shows_progress(quiet)
        )
        tokenizer.save(aside)
    display.say(f"tokenizer with {tokenizer.size:,} tokens: {out}")
    return tokenizer


def extend_tokenizer(
    files: Files,
    tokenizer: str | Path,
    out: str | Path,
    add: int,
    *,
    min_count: int = 5,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    encoding: str | None = None,
    quiet: bool = False,
) -> Tokenizer:
    """Extend a tokenizer by new tokens learned from text.

    Args:
        files: plain text or JSON Lines (.jsonl), optionally compressed (.gz, .bz2, .xz, .zst); Parquet, Arrow, or a
            directory of datasets; WARC, WET and ARC files, HTML, dumps of MediaWiki, EPUB; also their URLs (https://…,
            s3://…); - is standard input.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub.
        out: directory of the extended tokenizer.
        add: maximum number of new tokens.
        min_count: minimum number of occurrences of what is learned.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        quiet: print only results and errors.

    Raises:
        UserError: the directory is not empty, the files hold no text, or a parameter has no effect.
    """
    display, old = Display(quiet=quiet), _load(tokenizer, special=False)
    with _documents(as_files(files), Path(out), TextOptions(field, documents, strict, encoding), display) as (
        texts,
        aside,
    ):
        extension = extend.learn_tokens(old, texts, add=add, min_count=min_count, progress=_shows_progress(quiet))
        extension.tokenizer.save(aside, length=read_length(find_tokenizer(tokenizer)))
    display.say(*extension.summary(add))
    display.say(f"tokenizer with {extension.tokenizer.size:,} tokens: {out}")
    return extension.tokenizer


def load_tokenizer(source: str | Path) -> Tokenizer:
    """Load a tokenizer.

    Args:
        source: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub. The
            vocabulary is read from `tokenizer.json`, or else `vocab.txt`, or else `vocab.json` and `merges.txt` (for
            GPT-2 also `encoder.json` and `vocab.bpe`), or else `spiece.model` (`30k-clean.model`).
            `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` may override the names of the
            special tokens and the normalizer's settings, and add tokens. A `vocab.txt` without such settings
            lower-cases unless one of its tokens has a capital letter.

    Raises:
        UserError: there is no tokenizer, it is corrupt, of another kind, or has settings that are not implemented.
    """
    directory = find_tokenizer(source)
    if not directory.is_dir():
        raise UserError("there is no such directory", file=source, remedy="name that of a tokenizer, a model or a run")
    return read_tokenizer(directory)


def tokenize(
    texts: Sequence[str] = (),
    *,
    tokenizer: str | Path,
    data: str | Path | None = None,
    encoding: str | None = None,
    special: bool = False,
) -> Iterator[dict[str, Any]]:
    """Tokenize texts.

    Args:
        texts: texts to tokenize.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub.
        data: tokenize each line of a file, optionally compressed (.gz, .bz2, .xz, .zst); - is standard input.
        encoding: encoding of the file; by default UTF-8, or what a byte-order mark declares.
        special: add the special tokens that the model expects around a text.

    Returns:
        For each text `{text, tokens, ids, offsets}`; added special tokens have the offsets (0, 0).

    Raises:
        UserError: there is no text, or no tokenizer.
    """
    if texts and data:
        raise UserError(f"give texts or {argument('data', 'FILE')}, not both")
    if not texts and not data:
        raise UserError("there is no text to tokenize", remedy=f"give texts, or {argument('data', 'FILE')}")
    if not data:
        refuse_idle(f"without {argument('data')}", encoding=encoding)
    check_unicode(texts)
    lines = _lines(with_encoding(as_url(data), encoding)) if data else iter(texts)
    return _encoded(_load(tokenizer, special=special), lines, special=special)


def mix_corpora(
    corpora: Sequence[str | Path],
    out: str | Path,
    *,
    shares: Sequence[float] = (),
    temperature: float | None = None,
    tokens: float | None = None,
    max_repeats: float = 4.0,
    seed: int = 0,
    quiet: bool = False,
) -> Corpus:
    """Mix corpora of the same vocabulary, such as text of a domain and general text.

    Args:
        corpora: directories or URLs of the corpora.
        out: directory of the new corpus; an interrupted mixture there is continued.
        shares: their shares of the tokens, such as 0.8,0.2; by default those of their sizes.
        temperature: in place of shares: the higher, the more equal are those of small and large corpora; 1 keeps the
            proportions.
        tokens: number of tokens to train on; by default as many as there are if nothing is read twice.
        max_repeats: maximum number of times that a corpus is read.
        seed: of the choice of documents of corpora that are read in part.
        quiet: print only results and errors.

    Raises:
        UserError: there are fewer than two corpora, their vocabularies differ, shares are not positive, one would be
            read too often, or the directory is not empty.
    """
    display = Display(quiet=quiet)
    if len(corpora) < 2:
        raise UserError("a mixture needs at least two corpora")
    if shares and temperature is not None:
        raise UserError(f"{argument('shares')} and {argument('temperature')} cannot be combined", remedy="omit one")
    if shares and len(shares) != len(corpora):
        raise UserError(f"{len(shares)} {argument('shares')} for {len(corpora)} corpora", remedy="give one for each")
    numbers = {"temperature": temperature, "tokens": tokens, "max_repeats": max_repeats}
    given = [(name, value) for name, value in numbers.items() if value is not None]
    for name, value in [*given, *(("shares", share) for share in shares)]:
        if not 0 < value < math.inf:
            raise UserError(f"{argument(name)} must be above 0, not {value:g}")
    opened = [open_corpus(corpus) for corpus in corpora]
    corpus = mix.write_mixture(
        opened,
        list(shares) or (None if temperature is None else mix.tempered(opened, temperature)),
        Path(out),
        tokens=tokens,
        most_repeats=max_repeats,
        seed=seed,
        report=display.say,
    )
    display.say(f"corpus: {out}")
    return corpus


def describe_corpus(directory: str | Path) -> str:
    """Verify the checksums of a corpus and describe its content.

    Args:
        directory: directory or URL of a corpus.

    Raises:
        UserError: there is no corpus, or it is damaged.
    """
    corpus = open_corpus(directory)
    corpus.verify()
    manifest, tokenizer, frequent = corpus.manifest, corpus.tokenizer, corpus.manifest.most_frequent_token
    lines = [
        f"{name}: {part.amounts}, {counted(len(part.shards), 'shard')}"
        for name, part in (("train", manifest.train), ("heldout", manifest.heldout))
    ]
    lines += [
        f"tokenizer: {tokenizer.size:,} tokens, {'uncased' if tokenizer.lowercase else 'cased'}",
        f"most frequent token: {tokenizer.token(frequent.id)} ({100 * frequent.share:.2f} %)",
        f"sources: {', '.join(manifest.sources)}",
        f"skipped: {manifest.skipped.count}",
        *(f"  {reason}" for reason in manifest.skipped.places),
        *read_tally(corpus.directory / CLEANING).lines(),
    ]
    Display().say("all checksums match")
    return "\n".join(lines)


@contextmanager
def _documents(
    files: Sequence[str | Path], out: Path, options: TextOptions, display: Display
) -> Iterator[tuple[Iterator[str], Path]]:
    """Yield the documents to learn from and a folder that becomes `out`; report what was skipped or looks damaged."""
    refuse_filled(out)
    check_sources(files, options)
    skipped = Skipped()
    with new_directory(out) as aside:
        yield refuse_none(read_documents(files, options, skipped), skipped, files), aside
    if skipped.count:
        display.say(f"skipped: {counted(skipped.count, 'document')}: " + "; ".join(skipped.places))
    display.say(*skipped.notes())


def _shows_progress(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


def _load(source: str | Path, *, special: bool) -> Tokenizer:
    """Load a tokenizer; with `special`, a GPT model's settings determine its special tokens."""
    tokenizer, directory = load_tokenizer(source), find_tokenizer(source)
    if special and (directory / "config.json").is_file():
        tokenizer.summary = read_settings(directory).summary
    return tokenizer


def _lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, including empty ones, so that each has its line of output.

    Raises:
        UserError: a line is not UTF-8 or is too long, or the file is empty.
    """
    empty = True
    for _, line in read_text_lines(path):
        empty = False
        yield line
    if empty:
        raise UserError("there is no text in the file", file=display_name(path))


def _encoded(tokenizer: Tokenizer, texts: Iterator[str], *, special: bool) -> Iterator[dict[str, Any]]:
    """Yield the fields of each text."""
    frame = replace(Frame.of(tokenizer), spell=np.asarray)  # ids, also where models read characters
    while chunk := list(islice(texts, CHUNK)):
        for text, (ids, spans) in zip(chunk, tokenizer.encode_offsets_many(chunk), strict=True):
            numbers, offsets = ids.tolist(), spans.tolist()
            if special:
                at = frame.spread(np.arange(len(ids))).tolist()
                numbers = frame.wrap(ids).ids.tolist()
                offsets = [offsets[index] if index >= 0 else [0, 0] for index in at]
            yield {"text": text, "tokens": tokenizer.tokens(numbers), "ids": numbers, "offsets": offsets}
