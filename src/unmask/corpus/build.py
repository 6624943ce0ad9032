"""Build a corpus: documents to checksummed shards of token ids, in parallel and in bounded memory.

In: raw files and a tokenizer. Out: the directory that `unmask.corpus.manifest` describes, written aside as
`OUT.partial` and renamed when all of it is on the disk. The same text gives the same bytes, with any number of workers,
and whether or not the build was interrupted.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, repeat, tee
from pathlib import Path

import msgspec

from unmask.corpus.corpus import Corpus, open_corpus
from unmask.corpus.encode import Encoder, encode_documents
from unmask.corpus.manifest import VERSION, Manifest, SkippedEntry, TokenizerEntry
from unmask.corpus.partial import PartialCorpus
from unmask.errors import UserError, counted
from unmask.text.documents import Skipped, TextOptions, read_documents, refuse_idle_options, resolve_documents
from unmask.text.files import as_paths, display_name
from unmask.tokenizers.tokenizer import Tokenizer
from unmask.version import __version__

ALWAYS_HELD = 2
"""Documents that are held out of any corpus that can spare them."""
_HELDOUT_BELOW = 2**64 // 100  # 1 % of the hashes


def _silent(line: str) -> None:
    """Report to nobody."""


def build_corpus(
    paths: str | Path | Sequence[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    heldout: str | Path | Sequence[str | Path] | None = (),
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    shard_tokens: int = 16_000_000,
    workers: int = 1,
    report: Callable[[str], None] = _silent,
) -> Corpus:
    """Build a corpus out of raw files, or go on with a build that was interrupted.

    Args:
        paths: the files to train on.
        tokenizer: cuts sentences into ids; a copy goes into the corpus.
        out: the directory to write, which must not exist or be empty.
        heldout: the files to measure on. Without any, 1 % of the documents, at least two of four, chosen by a hash of
            their text, so that equal documents are in the same part. None: nothing is held out.
        options: how the files are read.
        shard_tokens: tokens after which a shard ends (with the document).
        workers: processes that encode, beside this one that reads and writes; with one, this one does it all. They are
            spawned, so a script that asks for several needs `if __name__ == "__main__":`.
        report: is told in a line what was chosen, what was written and what was skipped.

    Returns:
        The corpus, opened.

    Raises:
        UserError: `out` is not empty, a file cannot be read or is named twice, nothing is left to train on, or an
            interrupted build beside `out` was another one.
        UnmaskError: a worker was killed.
    """
    paths, heldout = as_paths(paths), None if heldout is None else as_paths(heldout)
    check_sources([*paths, *(heldout or ())], options)
    given, out = out, Path(out).resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("exists and is not empty", file=given, remedy="choose another --out or remove it")
    skipped = Skipped()
    documents = _divide(paths, heldout, options, skipped, report)
    dtype = "<u2" if tokenizer.size <= 2**16 else "<u4"
    with PartialCorpus(
        out,
        _settings(tokenizer, shard_tokens),
        dtype=dtype,
        vocabulary=tokenizer.size,
        shard_tokens=shard_tokens,
        report=report,
    ) as partial:
        _encode_into(partial, documents, Encoder(tokenizer, dtype), workers)
        train, held, most_frequent = partial.finish()
        manifest = Manifest(
            version=VERSION,
            tokenizer=TokenizerEntry(tokenizer.sha256, tokenizer.size),
            dtype=dtype,
            train=train,
            heldout=held,
            sources=[str(path) for path in [*paths, *(heldout or ())]],
            skipped=SkippedEntry(skipped.count, skipped.places),
            most_frequent_token=most_frequent,
        )
        _check_yield(manifest, heldout, skipped.remedy)
        tokenizer.save(partial.corpus / "tokenizer")
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        (partial.corpus / "manifest.json").write_bytes(content)
        partial.publish()
    _report_yield(manifest, report)
    return open_corpus(out)


def _encode_into(partial: PartialCorpus, documents: Iterable[tuple[str, str]], encoder: Encoder, workers: int) -> None:
    """Add to a corpus what it lacks of its documents."""
    missing, again = tee(partial.missing(documents))  # which holds those that the workers are at
    with closing(encode_documents((document.text for document in again), encoder, workers)) as encoded:
        for document, ids in zip(missing, encoded, strict=True):
            partial.add(document, ids)


def _settings(tokenizer: Tokenizer, shard_tokens: int) -> dict[str, str]:
    """Say what decides over the bytes of a corpus beside the text."""
    libraries = {name: importlib.metadata.version(name) for name in ("tokenizers", "sentencex")}
    return {
        "tokenizer": tokenizer.sha256[:16],
        "tokens of a shard": str(shard_tokens),
        "unmask": __version__,
        **libraries,
    }


def _divide(
    paths: Sequence[str | Path],
    heldout: Sequence[str | Path] | None,
    options: TextOptions,
    skipped: Skipped,
    report: Callable[[str], None],
) -> Iterable[tuple[str, str]]:
    """Read all documents, each with the part to which it goes."""
    documents = read_documents(paths, options, skipped)
    report(f"documents: {resolve_documents(paths, options)}")
    if heldout is None:
        return (("train", text) for text in documents)
    if not heldout:
        return _hold_out(documents)
    report(f"held-out documents: {resolve_documents(heldout, options)}")
    held = read_documents(heldout, options, skipped)
    return chain((("train", text) for text in documents), (("heldout", text) for text in held))


def check_sources(paths: Sequence[str | Path], options: TextOptions) -> None:
    """Refuse what would only fail, or be read twice, after hours.

    Raises:
        UserError: a file is missing, a directory, or named twice; an option has no effect on any of the files.
    """
    refuse_idle_options(paths, options)
    seen: set[Path] = set()
    for path in paths:
        place = Path(path) if str(path) == "-" else Path(path).resolve()
        if place in seen:
            raise UserError("is named twice", file=display_name(path), remedy="name each file once")
        if str(path) != "-" and not place.exists():
            raise UserError("does not exist", file=path)
        if place.is_dir():
            raise UserError("is a directory", file=path, remedy=f"name its files, as in {path}/*.txt")
        seen.add(place)


def _hold_out(documents: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Give each document its part: 1 % are held out, by the hash of their text, so that equal ones stay together.

    In a small corpus that may be none, and next sentence prediction needs two. So the `ALWAYS_HELD` documents with the
    smallest hashes, and their copies, wait until the end and are held out in any case, as long as two others are there
    to train on; of two or three documents one is held out.
    """
    waiting: dict[int, tuple[str, int]] = {}  # by hash: text and copies
    trained = 0
    for text in documents:
        value = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        waiting[value] = text, waiting.get(value, ("", 0))[1] + 1
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


def _check_yield(manifest: Manifest, heldout: Sequence[str | Path] | None, remedy: str) -> None:
    skipped, cause = manifest.skipped, ""
    if skipped.count:
        verb = "was" if skipped.count == 1 else "were"
        cause = f"{counted(skipped.count, 'document')} {verb} skipped, the first at {skipped.places[0]}"
        cause += f"; {remedy}" if remedy else ""
    if manifest.train.documents == 0:
        raise UserError("the files hold no text to train on", remedy=cause or "is it the right file, and --documents?")
    if heldout and manifest.heldout.documents == 0:
        raise UserError("the held-out files hold no text", remedy=cause)


def _report_yield(manifest: Manifest, report: Callable[[str], None]) -> None:
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        report(f"{name}: {part.amounts}")
    if manifest.skipped.count:
        report(f"skipped: {counted(manifest.skipped.count, 'document')}, the first of them:")
        for place in manifest.skipped.places:
            report(f"  {place}")
