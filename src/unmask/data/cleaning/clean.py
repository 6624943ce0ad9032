"""Cleaning of raw files: documents that rules keep, without duplicates, on disk.

Input: raw files and rules. Output: `CleanedText`, the documents that are left, as often as they are needed, and a tally
of what was dropped. Each file is a task of its own, which reads it, judges its documents and writes them with their
signatures (store.py): tasks may run in several processes and in any order, and those that were completed before a kill
are not run again if their files are the same. Then duplicates are found among all.

The same text gives the same documents for any number of processes, and whether or not cleaning was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from unmask.data.cleaning.duplicates import (
    AGAIN,
    BOILERPLATE,
    EQUAL,
    KEPT,
    NEAR,
    REPEATED,
    bounds,
    find_boilerplate,
    find_duplicates,
    find_repeated_lines,
    find_repeated_passages,
)
from unmask.data.cleaning.rule import Document, Judge, Tally
from unmask.data.cleaning.rules import Rules
from unmask.data.cleaning.store import FORMAT, Store, StoreWriter, file_checksums
from unmask.data.corpus.encode import map_in_processes
from unmask.data.text.documents import Skipped, SourceText, TextOptions, read_sources, resolve_documents
from unmask.data.text.record_files import fingerprint_source
from unmask.data.text.text_copy import TextCopy
from unmask.support.arrays import create_map, save_array
from unmask.support.durable import acquire, named, read_json, replace_file
from unmask.support.errors import UserError, counted
from unmask.support.fingerprint import fingerprint_values
from unmask.support.messages import argument

_LOCK = ".lock"
DROPPED, REMOVED, JOINED = "dropped.npy", "removed.part", "joined.json"
"""Files of all sources: what is known of each document and of each line, and counts."""


class CleanedFile(msgspec.Struct):
    """What is known of a source that has been cleaned: what it was made from, counts, and the SHA-256 of its files."""

    made_from: str
    tally: Tally
    skipped: Skipped
    files: dict[str, str] = {}


@dataclass(frozen=True)
class FileCleaning:
    """The cleaning of a source: its number, its path, how it is read, and the rules."""

    index: int
    path: str | Path
    options: TextOptions
    rules: Rules
    folder: Path


@dataclass(frozen=True)
class CleanedText(TextCopy):
    """Documents that have been cleaned.

    Attributes:
        num_sources: number of files.
        dropped: what is known of each document, (documents,) uint8; those that are not `KEPT` are dropped.
        removed: what is known of each line, (lines,) uint8; those that are not `KEPT` are removed. None: all stay.
        tally: what was dropped.
        chosen: numbers of the files whose documents are read; None: all.
    """

    num_sources: int
    dropped: np.ndarray
    removed: np.ndarray | None
    tally: Tally
    chosen: range | None = None

    def sources(self) -> Iterator[SourceText]:
        """Yield the documents, holding at most one and a block of a file in memory."""
        store, chosen = Store(self.directory, self.num_sources), self.chosen or range(self.num_sources)
        first, line = int(store.starts[chosen.start]), 0
        if self.removed is not None:
            line = sum(int(store.column(index, "counts").sum()) for index in range(chosen.start))
        for number, (text, url) in enumerate(zip(store.texts(chosen), store.urls(chosen), strict=True), first):
            if self.removed is not None:
                lines = text.split("\n\n")
                marks = self.removed[line : line + len(lines)]
                line += len(lines)
                if self.dropped[number] == KEPT and marks.any():
                    text = "\n\n".join(each for each, mark in zip(lines, marks, strict=True) if mark == KEPT)
            if self.dropped[number] == KEPT and text:
                yield SourceText(text, url)

    @property
    def summary(self) -> bytes:
        """The tally, as JSON."""
        return msgspec.json.format(msgspec.json.encode(self.tally), indent=2) + b"\n"

    def save(self) -> None:
        """Write what was dropped beside the documents, for other processes."""
        save_array(self.directory / DROPPED, self.dropped)
        lines = None if self.removed is None else len(self.removed)
        about = _Joined(self.num_sources, lines, self.tally, self.skipped)
        replace_file(self.directory / JOINED, msgspec.json.encode(about))


class _Joined(msgspec.Struct):
    """What is known of all sources: their number, that of lines if some are removed, and counts."""

    sources: int
    lines: int | None
    tally: Tally
    skipped: Skipped


def read_cleaned(folder: Path, chosen: range) -> CleanedText:
    """Return the documents of some of the files that were cleaned; see `CleanedText.save`."""
    remedy = f"remove {folder} and the folder of tasks beside it"
    about = read_json(folder / JOINED, _Joined, remedy)
    try:
        removed = None if about.lines is None else np.memmap(folder / REMOVED, np.uint8, "r", shape=(about.lines,))
        dropped = np.load(folder / DROPPED, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"what is known of its documents is damaged ({error})", file=folder, remedy=remedy) from error
    return CleanedText(folder, about.skipped, about.sources, dropped, removed, about.tally, chosen)


def clean_documents(
    paths: Sequence[str | Path],
    options: TextOptions,
    rules: Rules,
    folder: Path,
    *,
    workers: int = 1,
    report: Callable[[str], None] = print,
) -> CleanedText:
    """Clean the documents of raw files.

    Args:
        paths, options: see `read_documents`.
        rules: the rules.
        folder: where cleaned documents are kept; those of an interrupted call are used.
        workers: number of processes, each of which cleans a file at a time.
        report: called with lines about what was dropped.

    Raises:
        UserError: a file cannot be read, a rule cannot be built or has no effect, or nothing is left.
        UnmaskError: a worker process was killed.
    """
    tasks = file_cleanings(paths, options, rules, folder)
    lock = acquire(folder / _LOCK)
    if lock is None:
        raise UserError("another program is cleaning text there", file=folder, remedy="wait until it has finished")
    try:
        in_processes = min(workers, sum(str(path) != "-" for path in paths)) > 1
        elsewhere = [task for task in tasks if in_processes and str(task.path) != "-"]
        done = {task.index: clean_file(task) for task in tasks if task not in elsewhere}
        if elsewhere:
            results = map_in_processes(elsewhere, clean_file, min(workers, len(elsewhere)))
            done |= zip((task.index for task in elsewhere), results, strict=True)
        return join_files([done[index] for index in range(len(tasks))], rules, folder, report)
    finally:
        lock.release()


def file_cleanings(paths: Sequence[str | Path], options: TextOptions, rules: Rules, folder: Path) -> list[FileCleaning]:
    """Return the tasks that clean each of several files; see `clean_documents`."""
    rules.judges()  # before anything is read
    options = replace(options, documents=resolve_documents(paths, options))
    folder.mkdir(parents=True, exist_ok=True)
    return [FileCleaning(index, path, options, rules, folder) for index, path in enumerate(paths)]


def join_files(done: Sequence[CleanedFile], rules: Rules, folder: Path, report: Callable[[str], None]) -> CleanedText:
    """Return the documents of all sources, without duplicates.

    Raises:
        UserError: a rule has no effect, or nothing is left.
    """
    skipped, tally, store = Skipped(), Tally(), Store(folder, len(done))
    for each in done:
        skipped.merge(each.skipped)
        tally.merge(each.tally)
    for name in ("urls", "boilerplate"):
        if getattr(rules, name) is not None and len(store) and not store.has_urls:
            raise UserError(
                f"the rule {name} has no effect: no document has an address",
                remedy="leave it out, or give web archives, or records with a field url",
            )
    near = rules.near_duplicates
    dropped = np.zeros(len(store), np.uint8)
    if rules.duplicates is not None or near is not None:
        dropped = find_duplicates(store, similarity=near.similarity if near else None)
    if rules.repeated_passages is not None:
        dropped[find_repeated_passages(store, dropped, rules.repeated_passages.max_repeated)] = REPEATED
    removed = None
    if rules.boilerplate is not None or rules.repeated_lines is not None:
        lines = int(bounds(store, "counts")[-1])
        removed = create_map(folder / REMOVED, np.uint8(KEPT), max(1, lines))
        if rules.boilerplate is not None:
            find_boilerplate(store, dropped, rules.boilerplate, removed)
        if rules.repeated_lines is not None:
            find_repeated_lines(store, dropped, removed)
    cleaned = CleanedText(folder, skipped, len(done), dropped, removed, tally)
    _count(cleaned, store, rules)
    for line in tally.lines():
        report(line)
    if tally.documents and not tally.left:
        worst = max(tally.rules.items(), key=lambda item: item[1].documents)[0]
        raise UserError(
            f"cleaning left none of {counted(tally.documents, 'document')}; {worst} dropped most",
            remedy=f"change or omit rules of {argument('clean')}",
        )
    return cleaned


_DOCUMENTS = {
    EQUAL: ("duplicates", "equals an earlier document"),
    NEAR: ("near_duplicates", "nearly equals another"),
    REPEATED: ("repeated_passages", "consists of passages of earlier documents"),
}
_LINES = {
    BOILERPLATE: ("boilerplate", "line on many pages of a host"),
    AGAIN: ("repeated_lines", "line that occurred before"),
}


def _count(cleaned: CleanedText, store: Store, rules: Rules) -> None:
    """Count dropped documents and removed lines, and what is left."""
    tally, line = cleaned.tally, 0
    for mark, (name, _) in _DOCUMENTS.items():
        if getattr(rules, name) is not None or (cleaned.dropped == mark).any():
            tally.rule(name).judged = len(store)
    for name, _ in _LINES.values():
        if getattr(rules, name) is not None:
            tally.rule(name)
    for number, text in enumerate(store.texts()):
        parts = text.split("\n\n") if cleaned.removed is not None else []
        line += len(parts)
        if (mark := int(cleaned.dropped[number])) != KEPT:
            name, reason = _DOCUMENTS[mark]
            tally.rule(name).drop(reason, text)
            tally.left -= 1
            tally.left_bytes -= len(text.encode())
        elif cleaned.removed is not None:
            _count_lines(tally, parts, cleaned.removed[line - len(parts) : line])


def _count_lines(tally: Tally, parts: Sequence[str], marks: np.ndarray) -> None:
    """Count the lines that are removed from a document."""
    left = len(parts)
    for mark, (name, reason) in _LINES.items() if marks.any() else ():
        lines = [part for part, each in zip(parts, marks, strict=True) if each == mark]
        if not lines:
            continue
        counts = tally.rule(name)
        size = sum(len(each.encode()) + 2 for each in lines) - 2 * (len(lines) == left)
        left -= len(lines)
        counts.judged, counts.changed, counts.removed = counts.judged + 1, counts.changed + 1, counts.removed + size
        for each in lines:
            counts.add(reason, each)
        tally.left_bytes -= size
    tally.left -= left == 0


def clean_file(task: FileCleaning) -> CleanedFile:
    """Clean a file, or return what is known of it if that was done before."""
    content = fingerprint_source(task.path)
    made_from = fingerprint_values(
        [content, asdict(task.options), msgspec.to_builtins(task.rules), _of_files(task.rules), FORMAT]
    )
    record, needed = task.folder / f"{task.index:05d}.json", task.rules.needed()
    if content is not None and record.exists():
        try:
            done = msgspec.json.decode(record.read_bytes(), type=CleanedFile)
        except (msgspec.DecodeError, RecursionError):
            done = None
        if done is not None and done.made_from == made_from and is_intact(task, done):
            return done
    record.unlink(missing_ok=True)
    tally, skipped = Tally(), Skipped()
    judges = task.rules.judges()
    with named(task.folder), StoreWriter(task.folder, task.index, needed) as writer:
        for text, url in read_sources([task.path], task.options, skipped, lines=True):
            size = len(text.encode())
            tally.documents, tally.bytes = tally.documents + 1, tally.bytes + size
            document = _judged(Document(text, url), judges, tally)
            if document is not None:
                tally.left, tally.left_bytes = tally.left + 1, tally.left_bytes + len(document.text.encode())
                writer.add(document.text, url)
    done = CleanedFile(made_from, tally, skipped, file_checksums(task.folder, task.index, needed))
    replace_file(record, msgspec.json.encode(done))
    return done


def is_intact(task: FileCleaning, done: CleanedFile) -> bool:
    """Return whether the files of a source that has been cleaned are as they were written."""
    return done.files == file_checksums(task.folder, task.index, task.rules.needed())


def _of_files(rules: Rules) -> list[str | None]:
    """Return the fingerprints of the files that rules name."""
    return list(map(fingerprint_source, rules.files))


def _judged(document: Document, judges: dict[str, Judge], tally: Tally) -> Document | None:
    """Return what rules leave of a document; None: it is dropped."""
    for name, judge in judges.items():
        counts = tally.rule(name)
        counts.judged += 1
        verdict = judge(document)
        dropped = verdict.dropped or ("" if verdict.document.text else "nothing left")
        if dropped:
            counts.drop(dropped, document.text)
            return None
        if verdict.changes:
            counts.changed += 1
            counts.removed += len(document.text.encode()) - len(verdict.document.text.encode())
            for reason, number in verdict.changes.items():
                counts.add(reason, document.text, number)
        document = verdict.document
    return document
