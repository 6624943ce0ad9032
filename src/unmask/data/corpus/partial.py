"""A corpus that is being written, and the state that an interrupted build leaves.

Input: documents of both parts, as text and then encoded. Output: the directory that `corpus.manifest` describes,
complete or not at all.

    OUT.partial/corpus/          is renamed to OUT once all of it is on disk
    OUT.partial/progress.json    the full shards, and a digest of the text that each was made from

If OUT is a mount point, OUT/.partial takes the place of OUT.partial, and its files are moved, the manifest last.

A build that is run again reuses the full shards. It reads the text that they were made from again, which is fast, and
compares its digest. So the text must be the same, not the names or dates of the files: a line after it may have been
fixed, and the text may come from standard input. The `settings` are everything else that determines the bytes. The last
shard of a part, which ends only with the text, is never reused.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec
from filelock import FileLock

from unmask.data.corpus.encode import EncodedDocument
from unmask.data.corpus.manifest import (
    NAME,
    VERSION,
    CorpusManifest,
    ShardEntry,
    SkippedEntry,
    TokenizerEntry,
    verify_shard,
)
from unmask.data.corpus.shard_writer import ShardWriter, WholeShard
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.durable import acquire, create, named, read_json, replace_file, sync
from unmask.support.errors import UserError, counted

PARTS = ("train", "heldout")
INSIDE = ".partial"
"""Name of the folder inside OUT, if that is a mount point: the disk that is mounted there is then the only one used."""

_PROGRESS, _ASIDE, _LOCK = "progress.json", "progress.part", ".lock"
_SAME_COMMAND = "run the command that started it to resume it, or remove the folder to start from scratch"


class PlacedDocument(NamedTuple):
    """A document and its position in the corpus.

    Attributes:
        part: "train" or "heldout".
        text: text of the document.
        seen, digest: number of documents of its part up to and including it, and the digest of their text.
    """

    part: str
    text: str
    seen: int
    digest: str


class BuildProgress(msgspec.Struct, forbid_unknown_fields=True):
    """The progress of a build.

    Attributes:
        settings: what determines the bytes in addition to the text.
        whole: the full shards of each part.
    """

    settings: dict[str, str]
    whole: dict[str, list[WholeShard]]


class PartialCorpus:
    """A corpus that is being written; see the module.

    As a context manager it removes the folder on exit, except after an error if the folder contains full shards.

    Args:
        out: the directory of the finished corpus.
        settings: what determines the bytes in addition to the text.
        tokenizer: the tokenizer of the corpus.
        shard_tokens: number of tokens after which a shard is full, at the end of the current document.
        report: called with lines that report the written and the reused shards.

    Attributes:
        corpus: directory of the files of the corpus.
        dtype: data type of the tokens.

    Raises:
        UserError: the folder `OUT.partial` cannot be written, is in use, is not a partial corpus, or contains full
            shards that were built with other settings.
    """

    def __init__(
        self,
        out: Path,
        settings: dict[str, str],
        tokenizer: Tokenizer,
        *,
        shard_tokens: int,
        report: Callable[[str], None],
    ) -> None:
        self.dtype = "<u2" if tokenizer.size <= 2**16 else "<u4"
        self._out = out
        self._folder = _folder(out)
        self._file = self._folder / _PROGRESS
        self._report = report
        self._tokenizer = tokenizer
        self.corpus = self._folder / "corpus"
        self._folder_lock = _lock(self._folder)
        try:
            self._progress = self._resume(settings)
            self._save()
            self._tidy()
        except BaseException:
            self._folder_lock.release()
            raise
        self._reused = {
            part: {shard.seen: shard.digest for shard in whole} for part, whole in self._progress.whole.items()
        }
        self._writers = {
            part: ShardWriter(
                self.corpus,
                part,
                dtype=self.dtype,
                vocabulary=tokenizer.size,
                shard_tokens=shard_tokens,
                whole=whole,
            )
            for part, whole in self._progress.whole.items()
        }

    def __enter__(self) -> PartialCorpus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        num_whole = sum(map(len, self._progress.whole.values()))
        if error is not None and num_whole:
            self._report(f"{self._folder} contains {counted(num_whole, 'full shard')}; {_SAME_COMMAND}")
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder_lock.release()
        with suppress(OSError):  # Windows keeps the folder while the lock is held; if it is needed, it is not empty
            self._folder.rmdir()

    def missing(self, documents: Iterable[tuple[str, str]]) -> Iterator[PlacedDocument]:
        """Yield the documents that are not yet in full shards.

        Args:
            documents: part and text of all documents, starting from the first.

        Yields:
            The documents that are missing.

        Raises:
            UserError: the full shards were made from another text.
        """
        seen: Counter[str] = Counter()
        digests = dict.fromkeys(self._reused, b"")
        reused = {part: max(shards, default=0) for part, shards in self._reused.items()}
        for part, text in documents:
            digests[part] = hashlib.blake2b(text.encode(), digest_size=16, key=digests[part]).digest()
            seen[part] += 1
            digest = digests[part].hex()
            if self._reused[part].get(seen[part], digest) != digest:
                raise self._other_text(part)
            if seen[part] > reused[part]:
                yield PlacedDocument(part, text, seen[part], digest)
        for part in reused:
            if seen[part] < reused[part]:
                raise self._other_text(part)

    def add(self, document: PlacedDocument, encoded: EncodedDocument) -> None:
        """Add the next document; a document without tokens is dropped."""
        if not encoded.lengths:
            return
        shard = self._writers[document.part].add(encoded, document.seen, document.digest)
        if shard is not None:
            self._save()
            self._report_shard(shard)

    def finish(self, sources: list[str], skipped: SkippedEntry) -> CorpusManifest:
        """Write the last shards; return the manifest, given the files that were read, and what was skipped of them."""
        parts = {part: writer.finish() for part, writer in self._writers.items()}
        for part, writer in self._writers.items():
            for shard in parts[part].shards[len(writer.whole) :]:
                self._report_shard(shard)
        return CorpusManifest(
            version=VERSION,
            tokenizer=TokenizerEntry(self._tokenizer.sha256, self._tokenizer.size),
            dtype=self.dtype,
            **parts,
            sources=sources,
            skipped=skipped,
            most_frequent_token=self._writers["train"].most_frequent(),
        )

    def publish(self, manifest: CorpusManifest) -> None:
        """Add the tokenizer and the manifest, and rename the corpus once all of it is on disk.

        So OUT is either complete or does not exist.
        """
        self._tokenizer.save(self.corpus / "tokenizer")
        replace_file(self.corpus / NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        for path in [*self.corpus.rglob("*"), self.corpus]:
            sync(path)
        if self._folder.parent == self._out:  # a mount point, which cannot be replaced
            for path in sorted(self.corpus.iterdir(), key=lambda path: path.name == NAME):  # the manifest last
                path.replace(self._out / path.name)
            sync(self._out)
            return
        with suppress(FileNotFoundError):
            self._out.rmdir()  # an empty one, which Windows would not replace
        self.corpus.replace(self._out)
        sync(self._out.parent)

    def _resume(self, settings: dict[str, str]) -> BuildProgress:
        """Read the progress of an interrupted build, and check that its settings are the same."""
        before = BuildProgress(settings, {})
        if self._file.exists():
            before = read_json(self._file, BuildProgress, "remove its folder to start from scratch")
        if before.settings != settings and any(before.whole.values()):
            differences = [
                f"{name} was {before.settings.get(name, 'not set')}, now {settings.get(name, 'not set')}"
                for name in sorted(before.settings.keys() | settings.keys())
                if before.settings.get(name) != settings.get(name)
            ]
            raise UserError(
                f"contains shards of an interrupted build with other settings: {'; '.join(differences)}",
                file=self._folder,
                remedy=_SAME_COMMAND,
            )
        whole = {part: self._undamaged(before.whole.get(part, [])) for part in PARTS}
        if num_whole := sum(map(len, whole.values())):
            self._report(f"resuming an interrupted build: reusing {counted(num_whole, 'full shard')}")
        return BuildProgress(settings, whole)

    def _undamaged(self, whole: list[WholeShard]) -> list[WholeShard]:
        """Return the shards before the first damaged one; there may have been a power failure before a disk write."""
        for number, shard in enumerate(whole):
            try:
                verify_shard(self.corpus, shard.entry, self.dtype, self._tokenizer.size)
            except UserError as error:
                self._report(f"rebuilding from the first damaged shard: {error.message}")
                return whole[:number]
        return whole

    def _tidy(self) -> None:
        """Remove files that do not belong to a full shard."""
        self.corpus.mkdir(exist_ok=True)
        belonging = {name for whole in self._progress.whole.values() for shard in whole for name in shard.entry.files}
        for path in self.corpus.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in belonging:
                path.unlink()

    def _save(self) -> None:
        aside = self._folder / _ASIDE
        with named(self._file), create(aside) as file:
            file.write(msgspec.json.encode(self._progress))
        sync(aside)
        aside.replace(self._file)

    def _report_shard(self, shard: ShardEntry) -> None:
        self._report(f"{shard.name}: {counted(shard.documents, 'document')}, {counted(shard.tokens, 'token')}")

    def _other_text(self, part: str) -> UserError:
        return UserError(
            f"contains shards of an interrupted build, but the text of its part '{part}' was different",
            file=self._folder,
            remedy=_SAME_COMMAND,
        )


def remove_published(out: Path) -> None:
    """Remove the folder of a build that was killed after it had published the corpus, if there is one.

    The files of the corpus are no longer in it. One that contains some is an interrupted build.
    """
    folder = _folder(out)
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    if not folder.exists() or files - {_LOCK, _ASIDE, _PROGRESS}:
        return
    if (lock := acquire(folder / _LOCK)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _folder(out: Path) -> Path:
    return out / INSIDE if out.is_mount() else out.with_name(out.name + ".partial")


def _lock(folder: Path) -> FileLock:
    """Create the folder, or use that of an interrupted build, and lock it against other programs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if {path.name for path in folder.iterdir()} - {_LOCK, _ASIDE} and not (folder / _PROGRESS).exists():
            raise UserError("exists but is not an interrupted build", file=folder, remedy="remove or rename it")
        lock = acquire(folder / _LOCK)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", file=folder) from error
    if lock is None:
        raise UserError("another program is building this corpus", file=folder, remedy="wait until it has finished")
    return lock
