"""Build a corpus: documents to checksummed shards of token ids, in bounded memory.

In: raw files and a tokenizer. Out: the directory that `unmask.corpus.corpus` describes, written aside as `OUT.partial`
and renamed when all of it is on the disk. The same files give the same bytes.
"""

from __future__ import annotations

import hashlib
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path

import msgspec
import numpy as np

from unmask.corpus.corpus import (
    ARRAYS,
    VERSION,
    Corpus,
    FileEntry,
    FrequentToken,
    Manifest,
    PartEntry,
    ShardEntry,
    SkippedEntry,
    TokenizerEntry,
    open_corpus,
)
from unmask.durable import sha256, sync
from unmask.errors import UserError
from unmask.text.documents import Skipped, TextOptions, read_documents, refuse_idle_options, resolve_documents
from unmask.text.files import display_name
from unmask.text.sentences import split_sentences
from unmask.tokenizers.tokenizer import Ids, Tokenizer

_BATCH_CHARACTERS = 1 << 18  # encoded at once: enough to keep the cores busy
ALWAYS_HELD = 2
"""Documents that are held out of any corpus that can spare them."""
_HELDOUT_BELOW = 2**64 // 100  # 1 % of the hashes


def _silent(line: str) -> None:
    """Report to nobody."""


def build_corpus(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    heldout: Sequence[str | Path] | None = (),
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    shard_tokens: int = 16_000_000,
    report: Callable[[str], None] = _silent,
) -> Corpus:
    """Build a corpus out of raw files.

    Args:
        paths: the files to train on.
        tokenizer: cuts sentences into ids; a copy goes into the corpus.
        out: the directory to write, which must not exist or be empty.
        heldout: the files to measure on. Without any, 1 % of the documents, at least two of four, chosen by a hash of
            their text, so that equal documents are in the same part. None: nothing is held out.
        options: how the files are read.
        shard_tokens: tokens after which a shard ends (with the document).
        report: is told in a line what was chosen, what was written and what was skipped.

    Returns:
        The corpus, opened.

    Raises:
        UserError: `out` is not empty, a file cannot be read or is named twice, or nothing is left to train on.
    """
    check_sources([*paths, *(heldout or ())], options)
    out = Path(out).resolve()
    partial = out.with_name(out.name + ".partial")
    _make_room(out, partial)
    try:
        manifest = _write(partial, paths, tokenizer, heldout, options, shard_tokens, report)
        _publish(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _report_yield(manifest, report)
    return open_corpus(out, verify=False)


def _write(
    folder: Path,
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    heldout: Sequence[str | Path] | None,
    options: TextOptions,
    shard_tokens: int,
    report: Callable[[str], None],
) -> Manifest:
    """Write all files of a corpus into an empty folder."""
    skipped = Skipped()
    documents = read_documents(paths, options, skipped)
    report(f"documents: {resolve_documents(paths, options)}")
    if heldout is None:
        parts: Iterable[tuple[str, str]] = (("train", text) for text in documents)
    elif not heldout:
        parts = _hold_out(documents)
    else:
        report(f"held-out documents: {resolve_documents(heldout, options)}")
        held = read_documents(heldout, options, skipped)
        parts = chain((("train", text) for text in documents), (("heldout", text) for text in held))
    writers = {part: _Writer(folder, part, tokenizer.size, shard_tokens, report) for part in ("train", "heldout")}
    for part, document in _encode(parts, tokenizer):
        writers[part].add(document)
    manifest = Manifest(
        version=VERSION,
        tokenizer=TokenizerEntry(tokenizer.sha256, tokenizer.size),
        dtype=writers["train"].dtype.str,
        train=writers["train"].finish(),
        heldout=writers["heldout"].finish(),
        sources=[str(path) for path in [*paths, *(heldout or ())]],
        skipped=SkippedEntry(skipped.count, skipped.places),
        most_frequent_token=writers["train"].most_frequent(),
    )
    _check_yield(manifest, heldout)
    tokenizer.save(folder / "tokenizer")
    (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


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


def _make_room(out: Path, partial: Path) -> None:
    """Check that OUT may be written, and make an empty folder beside it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("exists and is not empty", file=out, remedy="choose another --out or remove it")
    try:
        if partial.exists():  # of a build that was killed
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", file=partial) from error


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


def _encode(documents: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[str, list[Ids]]]:
    """Give the ids of each document's sentences, many documents at once; what gives no ids is left out."""
    batch: list[tuple[str, list[str]]] = []
    size = 0
    for part, text in documents:
        batch.append((part, split_sentences(text)))
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield from _encode_batch(batch, tokenizer)
            batch, size = [], 0
    yield from _encode_batch(batch, tokenizer)


def _encode_batch(batch: list[tuple[str, list[str]]], tokenizer: Tokenizer) -> Iterator[tuple[str, list[Ids]]]:
    ids = chain.from_iterable(map(tokenizer.encode_many, _slices([text for _, texts in batch for text in texts])))
    for part, texts in batch:
        if document := [sentence for sentence in islice(ids, len(texts)) if len(sentence)]:
            yield part, document


def _slices(texts: list[str]) -> Iterator[list[str]]:
    """Cut a batch, as a single document may be long and an encoding takes a hundred times the room of its ids."""
    start = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield texts[start:end]
            start, size = end, 0
    yield texts[start:]


class _Writer:
    """Writes the shards of one part. In memory is the shard at hand: 2 or 4 bytes a token and 8 a sentence."""

    def __init__(
        self, directory: Path, part: str, vocabulary: int, shard_tokens: int, report: Callable[[str], None]
    ) -> None:
        self.dtype = np.dtype("<u2" if vocabulary <= 2**16 else "<u4")
        self._directory = directory
        self._part = part
        self._shard_tokens = shard_tokens
        self._report = report
        self._counts = np.zeros(vocabulary, dtype=np.int64)
        self._shards: list[ShardEntry] = []
        self._begin()

    def _begin(self) -> None:
        self._tokens = bytearray()
        self._sentences = array("q", [0])
        self._documents = array("q", [0])

    def add(self, document: list[Ids]) -> None:
        """Add a document, by the ids of its sentences."""
        self._tokens += np.concatenate(document).astype(self.dtype).tobytes()
        for sentence in document:
            self._sentences.append(self._sentences[-1] + len(sentence))
        self._documents.append(len(self._sentences) - 1)
        if self._sentences[-1] >= self._shard_tokens:
            self._flush()

    def _flush(self) -> None:
        tokens = np.frombuffer(self._tokens, self.dtype)
        self._counts += np.bincount(tokens, minlength=len(self._counts))
        name = f"{self._part}-{len(self._shards):05d}"
        index = np.dtype("<i8")
        arrays = (tokens, np.array(self._sentences, index), np.array(self._documents, index))
        files = {}
        for kind, content in zip(ARRAYS, arrays, strict=True):
            path = self._directory / f"{name}.{kind}.npy"
            np.save(path, content, allow_pickle=False)
            files[path.name] = FileEntry(sha256(path), path.stat().st_size)
        shard = ShardEntry(name, files, len(self._documents) - 1, len(self._sentences) - 1, len(tokens))
        self._shards.append(shard)
        self._report(f"{name}: {shard.documents:,} documents, {shard.tokens:,} tokens")
        del tokens, arrays  # views, which hold the buffer
        self._begin()

    def finish(self) -> PartEntry:
        """Write what is left and sum up."""
        if len(self._documents) > 1:
            self._flush()
        return PartEntry(
            sum(shard.documents for shard in self._shards),
            sum(shard.sentences for shard in self._shards),
            sum(shard.tokens for shard in self._shards),
            self._shards,
        )

    def most_frequent(self) -> FrequentToken:
        """Say which token is the most frequent of all shards written so far."""
        id = int(self._counts.argmax())
        return FrequentToken(id, int(self._counts[id]) / max(1, int(self._counts.sum())))


def _check_yield(manifest: Manifest, heldout: Sequence[str | Path] | None) -> None:
    skipped = manifest.skipped
    cause = f"{skipped.count} documents were skipped, the first at {skipped.places[0]}" if skipped.count else ""
    if manifest.train.documents == 0:
        raise UserError("the files hold no text to train on", remedy=cause or "is it the right file, and --documents?")
    if heldout and manifest.heldout.documents == 0:
        raise UserError("the held-out files hold no text", remedy=cause)


def _report_yield(manifest: Manifest, report: Callable[[str], None]) -> None:
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        report(f"{name}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")
    if manifest.skipped.count:
        report(f"skipped: {manifest.skipped.count:,} documents, the first of them:")
        for place in manifest.skipped.places:
            report(f"  {place}")


def _publish(partial: Path, out: Path) -> None:
    """Rename the folder once all of it is on the disk, so that OUT is either whole or not there."""
    for path in [*partial.rglob("*"), partial]:
        sync(path)
    partial.replace(out)
    sync(out.parent)
