"""A corpus that is being written, and what an interrupted build left of one.

In: documents of both parts, as text and then encoded. Out: the directory that `unmask.corpus.manifest` describes, whole
or not at all.

    OUT.partial/corpus/          becomes OUT when all of it is on the disk
    OUT.partial/progress.json    the full shards, and of which text each was made

A build that is started again takes the full shards over. It reads again what they were made of, which is fast, and
compares its digest: so it is the text that has to be the same, not the names or dates of files, and a line that was
mended further on, or the same text on standard input, is no obstacle. What else decides over the bytes are the
`settings`. The last shard of a part, which only ends with the text, is never taken over.
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

from unmask.corpus.encode import Encoded
from unmask.corpus.manifest import FrequentToken, PartEntry, ShardEntry
from unmask.corpus.shard_writer import ShardWriter, WholeShard
from unmask.corpus.verify import verify_shard
from unmask.durable import sync
from unmask.errors import UserError, counted
from unmask.lock import acquire

PARTS = ("train", "heldout")

_PROGRESS, _ASIDE, _LOCK = "progress.json", "progress.part", ".lock"
_SAME_COMMAND = "give the command that began it, and it goes on; or remove the folder to start again"


class PlacedDocument(NamedTuple):
    """A document and its place.

    Attributes:
        part: "train" or "heldout".
        text: of the document.
        seen, digest: how many documents its part has up to it, and the digest of their text.
    """

    part: str
    text: str
    seen: int
    digest: str


class Progress(msgspec.Struct, forbid_unknown_fields=True):
    """How far a build is.

    Attributes:
        settings: what decides over the bytes beside the text.
        whole: the full shards of each part.
    """

    settings: dict[str, str]
    whole: dict[str, list[WholeShard]]


class PartialCorpus:
    """See the module. A context manager: when an error leaves it, the folder stays if it holds a full shard.

    Args:
        out: the corpus that it shall become.
        settings: what decides over the bytes beside the text.
        dtype: of the tokens.
        vocabulary: how many ids there are.
        shard_tokens: tokens after which a shard is full (with the document).
        report: is told in a line what was written and what was taken over.

    Attributes:
        corpus: where the files of the corpus lie.

    Raises:
        UserError: the folder beside OUT cannot be written, is in use, is no partial corpus, or holds full shards that
            were built with other settings.
    """

    def __init__(
        self,
        out: Path,
        settings: dict[str, str],
        *,
        dtype: str,
        vocabulary: int,
        shard_tokens: int,
        report: Callable[[str], None],
    ) -> None:
        self._out = out
        self._folder = out.with_name(out.name + ".partial")
        self._file = self._folder / _PROGRESS
        self._report = report
        self.corpus = self._folder / "corpus"
        self._held = _lock(self._folder)
        try:
            self._progress = self._take_over(settings, dtype, vocabulary)
            self._save()
            self._tidy()
        except BaseException:
            self._held.release()
            raise
        self._taken = {
            part: {shard.seen: shard.digest for shard in whole} for part, whole in self._progress.whole.items()
        }
        self._writers = {
            part: ShardWriter(
                self.corpus, part, dtype=dtype, vocabulary=vocabulary, shard_tokens=shard_tokens, whole=whole
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
            self._report(f"{self._folder} holds {num_whole} full shards; {_SAME_COMMAND}")
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._held.release()
        with suppress(OSError):  # Windows leaves the folder while the lock is held; where it is needed it is not empty
            self._folder.rmdir()

    def missing(self, documents: Iterable[tuple[str, str]]) -> Iterator[PlacedDocument]:
        """Leave out the documents that lie in full shards already.

        Args:
            documents: part and text of each, from the first on.

        Yields:
            The others.

        Raises:
            UserError: those shards were made of another text.
        """
        seen: Counter[str] = Counter()
        digests = dict.fromkeys(self._taken, b"")
        left = {part: max(taken, default=0) for part, taken in self._taken.items()}
        for part, text in documents:
            digests[part] = hashlib.blake2b(text.encode(), digest_size=16, key=digests[part]).digest()
            seen[part] += 1
            digest = digests[part].hex()
            if self._taken[part].get(seen[part], digest) != digest:
                raise self._other_text(part)
            if seen[part] > left[part]:
                yield PlacedDocument(part, text, seen[part], digest)
        for part in left:
            if seen[part] < left[part]:
                raise self._other_text(part)

    def add(self, document: PlacedDocument, encoded: Encoded) -> None:
        """Add the next document; one without tokens is left out."""
        if not encoded.lengths:
            return
        shard = self._writers[document.part].add(encoded, document.seen, document.digest)
        if shard is not None:
            self._save()
            self._tell(shard)

    def finish(self) -> tuple[PartEntry, PartEntry, FrequentToken]:
        """Write what is left; return the train part, the held-out part, and the most frequent token of the former."""
        parts = []
        for writer in self._writers.values():
            parts.append(writer.finish())
            for shard in parts[-1].shards[len(writer.whole) :]:
                self._tell(shard)
        return parts[0], parts[1], self._writers["train"].most_frequent()

    def publish(self) -> None:
        """Rename the corpus once all of it is on the disk, so that OUT is either whole or not there."""
        for path in [*self.corpus.rglob("*"), self.corpus]:
            sync(path)
        with suppress(FileNotFoundError):
            self._out.rmdir()  # an empty one, which Windows would not replace
        self.corpus.replace(self._out)
        sync(self._out.parent)

    def _take_over(self, settings: dict[str, str], dtype: str, vocabulary: int) -> Progress:
        """Read how far an interrupted build came, and check that it was this one."""
        before = _read(self._file) if self._file.exists() else Progress(settings, {})
        if before.settings != settings and any(before.whole.values()):
            differences = [
                f"{name} was {before.settings.get(name, 'not set')}, now {settings.get(name, 'not set')}"
                for name in sorted(before.settings.keys() | settings.keys())
                if before.settings.get(name) != settings.get(name)
            ]
            raise UserError(
                f"holds shards of an interrupted build that was not this one: {'; '.join(differences)}",
                file=self._folder,
                remedy=_SAME_COMMAND,
            )
        whole = {part: self._undamaged(before.whole.get(part, []), dtype, vocabulary) for part in PARTS}
        if num_whole := sum(map(len, whole.values())):
            self._report(f"an interrupted build goes on: {num_whole} full shards are taken over")
        return Progress(settings, whole)

    def _undamaged(self, whole: list[WholeShard], dtype: str, vocabulary: int) -> list[WholeShard]:
        """Return the shards before the first damaged one; the power may have failed before all was on the disk."""
        for number, shard in enumerate(whole):
            try:
                verify_shard(self.corpus, shard.entry, dtype, vocabulary)
            except UserError as error:
                self._report(f"built again from here on: {error}")
                return whole[:number]
        return whole

    def _tidy(self) -> None:
        """Remove what belongs to no full shard."""
        self.corpus.mkdir(exist_ok=True)
        belonging = {name for whole in self._progress.whole.values() for shard in whole for name in shard.entry.files}
        for path in self.corpus.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in belonging:
                path.unlink()

    def _save(self) -> None:
        aside = self._folder / _ASIDE
        aside.write_bytes(msgspec.json.encode(self._progress))
        sync(aside)
        aside.replace(self._file)

    def _tell(self, shard: ShardEntry) -> None:
        self._report(f"{shard.name}: {counted(shard.documents, 'document')}, {counted(shard.tokens, 'token')}")

    def _other_text(self, part: str) -> UserError:
        return UserError(
            f"holds shards of an interrupted build, but the text of its part '{part}' was another one",
            file=self._folder,
            remedy=_SAME_COMMAND,
        )


def _lock(folder: Path) -> FileLock:
    """Make the folder, or take one that an interrupted build left, and keep other programs out of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if {path.name for path in folder.iterdir()} - {_LOCK, _ASIDE} and not (folder / _PROGRESS).exists():
            raise UserError("is in the way: it holds no interrupted build", file=folder, remedy="remove or rename it")
        lock = acquire(folder / _LOCK)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", file=folder) from error
    if lock is None:
        raise UserError("another program is building this corpus", file=folder, remedy="wait for it")
    return lock


def _read(path: Path) -> Progress:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Progress)
    except ValueError as error:
        raise UserError(f"is damaged ({error})", file=path, remedy="remove its folder to start again") from error
