"""Building of a corpus: documents to checksummed shards of token ids, in parallel and in bounded memory.

Input: raw files and a tokenizer. Output: the directory that `corpus.manifest` describes, which is written as
`OUT.partial` and renamed once all of it is on disk. The same text gives the same bytes for any number of workers, and
whether or not the build was interrupted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, repeat, tee
from pathlib import Path
from typing import NamedTuple

from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.encode import DocumentEncoder, encode_documents, refuse_unguarded
from unmask.data.corpus.manifest import CLEANING, CorpusManifest, SkippedEntry
from unmask.data.corpus.partial import INSIDE, PartialCorpus
from unmask.data.corpus.repeats import held_out_again
from unmask.data.corpus.sample import DocumentSampler
from unmask.data.text.documents import (
    Skipped,
    SourceText,
    TextOptions,
    read_sources,
    refuse_idle_options,
    resolve_documents,
)
from unmask.data.text.files import display_name
from unmask.data.text.record_files import is_dataset
from unmask.data.text.text_copy import TextCopy
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.choices import as_files, refuse_url
from unmask.support.durable import replace_file
from unmask.support.errors import UserError, check_unicode, counted
from unmask.support.fingerprint import versions
from unmask.support.messages import argument
from unmask.support.stores import look_up
from unmask.support.urls import Url, address_of

SHARD_TOKENS = 16_000_000
"""Number of tokens after which a shard ends."""
MANY_TOKENS = 1000
"""Tokens of a single document from which on its lines may be documents."""
ALWAYS_HELD = 2
"""Minimum number of documents held out of a corpus that is large enough."""
CLEANED = ".cleaned"
"""Suffix of the folder beside a corpus with its cleaned text, while it is built; its name inside a mount point."""
OF_VOLUMES = {INSIDE, CLEANED, "lost+found"}
"""What may be in an otherwise empty directory that is a mount point."""
_HELDOUT_BELOW = 2**64 // 100  # 1 % of the hashes


def _silent(line: str) -> None:
    """Discard a line of progress."""


def write_corpus(
    paths: str | Path | Sequence[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    heldout: str | Path | Sequence[str | Path] | None = (),
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    copy: TextCopy | None = None,
    shard_tokens: int = SHARD_TOKENS,
    workers: int = 1,
    report: Callable[[str], None] = _silent,
) -> Corpus:
    """Build a corpus from raw files, or resume a build that was interrupted.

    Args:
        paths: the files to train on.
        tokenizer: the tokenizer that encodes sentences; a copy is saved with the corpus.
        out: the directory to write, which must be empty or not exist.
        heldout: the files to evaluate on. If empty, 1 % of the documents (at least two if there are four), chosen by a
            hash of their text, so that equal documents are in the same part. None: no documents are held out.
        options: how the files are read.
        copy: the documents of `paths`, if these have been read already.
        shard_tokens: number of tokens after which a shard ends, at the end of the current document.
        workers: number of processes that encode, in addition to this one, which reads and writes; with one, this
            process does all the work. They are spawned, so a script that uses several needs
            `if __name__ == "__main__":`.
        report: called with lines that report the chosen settings, the written shards and the skipped documents.

    Returns:
        The corpus, opened.

    Raises:
        UserError: `out` is not empty, a file cannot be read or is given twice, there is no text to train on, or
            `OUT.partial` contains an interrupted build of another text or with other settings, or a script calls this
            at its top level with several workers.
        UnmaskError: a worker process was killed.
    """
    refuse_unguarded()
    paths, heldout = as_files(paths), None if heldout is None else as_files(heldout)
    check_sources([*paths, *(heldout or ())], options)
    check_out(out)
    out = Path(out).resolve()
    skipped = Skipped() if copy is None else copy.skipped
    documents = read_sources(paths, options, skipped) if copy is None else copy.sources()
    report(f"documents: {resolve_documents(paths, options)}")
    divided = _divide(documents, heldout, options, skipped, report)
    settings = _settings(tokenizer, shard_tokens)
    sources, summary = [str(path) for path in [*paths, *(heldout or ())]], b"" if copy is None else copy.summary
    with _writing(out, divided, tokenizer, settings, shard_tokens, workers, report) as partial:
        manifest = partial.finish(sources, SkippedEntry(skipped.count, skipped.places))
        check_yield(manifest, heldout, skipped)
        if summary:
            replace_file(partial.corpus / CLEANING, summary)
        partial.publish(manifest)
    report_yield(manifest, report)
    for note in skipped.notes():
        report(note)
    if options.documents == "auto" and resolve_documents(paths, options) == "blank-line":
        _hint_at_lines(manifest, report)
    corpus = open_corpus(out)
    if heldout:
        report_leak(corpus, report)
    return corpus


@contextmanager
def _writing(
    out: Path,
    divided: Iterable[tuple[str, SourceText]],
    tokenizer: Tokenizer,
    settings: dict[str, str],
    shard_tokens: int,
    workers: int,
    report: Callable[[str], None],
) -> Iterator[PartialCorpus]:
    """Encode the documents of a corpus and sample them; yield it, to be finished and published."""
    sampler = DocumentSampler()
    with PartialCorpus(out, settings, tokenizer, shard_tokens=shard_tokens, report=report) as partial:
        _encode_into(partial, sampler.watch(divided), DocumentEncoder(tokenizer.closed, partial.dtype), workers)
        sampler.save(partial.corpus)
        yield partial


class Portion(NamedTuple):
    """A portion of a corpus that was written.

    Attributes:
        smallest: the smallest hashes of its documents, `ALWAYS_HELD` of them, apart from those that are held out.
        skipped: what was left out or looks damaged.
    """

    smallest: list[int]
    skipped: Skipped


def write_portion(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: Path,
    *,
    part: str | None = None,
    held: Collection[int] = (),
    options: TextOptions,
    copy: TextCopy | None = None,
    shard_tokens: int = SHARD_TOKENS,
    workers: int = 1,
    report: Callable[[str], None] = _silent,
) -> Portion:
    """Build the corpus of some of the files of a larger one, which may have no text; see `write_corpus`.

    Args:
        paths, tokenizer, out, options, copy, shard_tokens, workers, report: see `write_corpus`.
        part: part of all documents. None: 1 % are held out, by the hash of their text, but none is always.
        held: hashes of documents that are held out, too.

    Raises:
        UserError: as `write_corpus`.
    """
    skipped = Skipped()
    documents = read_sources(paths, options, skipped) if copy is None else copy.sources()
    smallest: list[int] = []

    def divided() -> Iterator[tuple[str, SourceText]]:
        for document in documents:
            if part is not None:
                yield part, document
                continue
            value = _hash(document.text)
            if value < _HELDOUT_BELOW or value in held:
                yield "heldout", document
                continue
            if value not in smallest:
                smallest[:] = sorted([*smallest, value])[:ALWAYS_HELD]
            yield "train", document

    settings = {**_settings(tokenizer, shard_tokens), "held out": " ".join(map(str, sorted(held)))}
    sources = [str(path) for path in paths]
    with _writing(out, divided(), tokenizer, settings, shard_tokens, workers, report) as partial:
        partial.publish(partial.finish(sources, SkippedEntry(skipped.count, skipped.places)))
    return Portion(smallest, skipped)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def check_out(out: str | Path) -> None:
    """Raise a UserError if the directory of a new corpus exists and is not empty."""
    refuse_url(out)
    resolved = Path(out).resolve()
    if resolved.exists() and (not resolved.is_dir() or {path.name for path in resolved.iterdir()} - OF_VOLUMES):
        raise UserError("exists and is not empty", file=out, remedy=f"choose another {argument('out')} or remove it")


def _encode_into(
    partial: PartialCorpus, documents: Iterable[tuple[str, str]], encoder: DocumentEncoder, workers: int
) -> None:
    """Encode the documents that a corpus lacks, and add them."""
    missing, again = tee(partial.missing(documents))  # tee keeps the documents that the workers are encoding
    with closing(encode_documents((document.text for document in again), encoder, workers)) as encoded:
        for document, ids in zip(missing, encoded, strict=True):
            partial.add(document, ids)


def _settings(tokenizer: Tokenizer, shard_tokens: int) -> dict[str, str]:
    """Return the settings that, in addition to the text, determine the bytes of a corpus."""
    return {
        "tokenizer": tokenizer.sha256[:16],
        "tokens of a shard": str(shard_tokens),
        **versions(("tokenizers", "sentencex")),
    }


def _divide(
    documents: Iterable[SourceText],
    heldout: Sequence[str | Path] | None,
    options: TextOptions,
    skipped: Skipped,
    report: Callable[[str], None],
) -> Iterable[tuple[str, SourceText]]:
    """Yield all documents, those of the held-out files too, each with its part."""
    if heldout is None:
        return (("train", document) for document in documents)
    if not heldout:
        return _hold_out(documents)
    report(f"held-out documents: {resolve_documents(heldout, options)}")
    held = read_sources(heldout, options, skipped)
    return chain((("train", document) for document in documents), (("heldout", document) for document in held))


def check_sources(paths: Sequence[str | Path], options: TextOptions) -> None:
    """Check the files before they are read, which would otherwise fail after hours.

    Raises:
        UserError: a file is missing, is a directory other than one of `datasets`, or is given twice; an option has no
            effect on any of the files.
    """
    seen: set[Path | str] = set()
    for path in paths:
        check_unicode([str(path)])  # the manifest names it
        place = address_of(path) or (Path(path) if str(path) == "-" else Path(path).resolve())
        if place in seen:
            raise UserError("is given twice", file=display_name(path), remedy="give each file once")
        seen.add(place)
        if isinstance(path, Url):
            look_up(path)
        elif str(path) != "-" and not Path(path).exists():  # not `place`, which for a pipe is no path
            raise UserError("does not exist", file=path)
        elif Path(path).is_dir() and not is_dataset(Path(path)):
            raise UserError("is a directory", file=path, remedy=f"give its files, as in {path}/*.txt")
    refuse_idle_options(paths, options)


def held_out(documents: Iterable[str]) -> Iterator[str]:
    """Yield the documents that a corpus holds out, if no files are named for it."""
    return (document.text for part, document in _hold_out(map(SourceText, documents)) if part == "heldout")


def _hold_out(documents: Iterable[SourceText]) -> Iterator[tuple[str, SourceText]]:
    """Assign each document to a part: 1 % are held out by the hash of their text, which keeps equal ones together.

    In a small corpus this could be none, but next sentence prediction needs two. Therefore the `ALWAYS_HELD` documents
    with the smallest hashes, and their copies, are kept until the end and are always held out, provided that two others
    are left to train on; of two or three documents one is held out.
    """
    waiting: dict[int, tuple[SourceText, int]] = {}  # hash to the last document with it, and number of copies
    trained = 0
    for document in documents:
        value = _hash(document.text)
        waiting[value] = document, waiting[value][1] + 1 if value in waiting else 1
        if len(waiting) > ALWAYS_HELD:
            value = max(waiting)
            part = "heldout" if value < _HELDOUT_BELOW else "train"
            trained += part == "train"
            other, copies = waiting.pop(value)
            yield from repeat((part, other), copies)
    held = ALWAYS_HELD if trained >= ALWAYS_HELD else min(1, trained + len(waiting) - 1)
    for rank, value in enumerate(sorted(waiting)):
        other, copies = waiting[value]
        yield from repeat(("heldout" if rank < held else "train", other), copies)


def check_yield(manifest: CorpusManifest, heldout: Sequence[str | Path] | None, skipped: Skipped | None = None) -> None:
    """Check that a corpus has text to train on, and held-out text if files are named for it.

    Args:
        manifest: the manifest of the corpus.
        heldout: the files that are held out.
        skipped: what was left out, if that is known.

    Raises:
        UserError: it has none.
    """
    skipped, cause = skipped or Skipped(manifest.skipped.count, manifest.skipped.places), ""
    if skipped.count:
        verb = "was" if skipped.count == 1 else "were"
        cause = f"{counted(skipped.count, 'document')} {verb} skipped, the first at {skipped.places[0]}"
        cause += f"; {skipped.remedy}" if skipped.remedy else ""
    elif skipped.left_out:
        cause = skipped.notes()[-1]
    if manifest.train.documents == 0:
        raise UserError(
            "the files contain no text to train on", remedy=cause or f"check the files and {argument('documents')}"
        )
    if heldout and manifest.heldout.documents == 0:
        raise UserError("the held-out files contain no text", remedy=cause)


def _hint_at_lines(manifest: CorpusManifest, report: Callable[[str], None]) -> None:
    """Say that a file without blank lines is a single document, as its lines may be meant to be documents."""
    train, held = manifest.train, manifest.heldout
    tokens = train.tokens + held.tokens
    if train.documents + held.documents == 1 and tokens >= MANY_TOKENS:
        report(
            f"{manifest.sources[0]} has no blank line, so it is one document of {tokens:,} tokens, and nothing is held "
            f"out; if each of its lines is a document, pass {argument('documents', 'line')}"
        )


def report_leak(corpus: Corpus, report: Callable[[str], None]) -> None:
    """Report how many documents are held out that are trained on, too: the model is shown what it is judged by."""
    if count := held_out_again(corpus):
        report(
            f"{count:,} of {counted(len(corpus.heldout), 'held-out document')} equal a document that is trained on, so "
            f"the held-out loss is too low; {argument('exclude_overlap')} drops such documents when a corpus is built"
        )


def report_yield(manifest: CorpusManifest, report: Callable[[str], None]) -> None:
    """Report what a corpus has, and what was skipped."""
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        report(f"{name}: {part.amounts}")
    if manifest.skipped.count:
        report(f"skipped: {counted(manifest.skipped.count, 'document')}, the first of them:")
        for place in manifest.skipped.places:
            report(f"  {place}")
