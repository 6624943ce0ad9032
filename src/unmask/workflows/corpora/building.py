"""Building of a corpus by tasks, which processes of one or several machines divide between them.

Input: files, a tokenizer and rules. Output: the corpus, the same for any number of processes, wherever they run, and
whether or not some of them were killed. A small text is one task, the same as `write_corpus`; of a large one, each
task encodes consecutive files of about `TASK_BYTES` together (`portions`), into shards of their own. Larger files are
divided before, where records begin (dividing.py); from then on, their sections are files like any other.

    scan 1, 2, …       a section of a large file each
    divide             sections of all large files
    clean 1, 2, …      a file each (data/cleaning/clean.py), if there are rules
    join               duplicates among all files
    encode 1, 2, …     a portion each -> OUT.tasks/encode-1/corpus
    merge              -> OUT

Several machines share OUT.tasks and OUT.cleaned, beside OUT. What other processes of this machine and of Ray must know
is passed as JSON; nothing is pickled, and no URL with credentials is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import chdir
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.cleaning.clean import (
    DROPPED,
    JOINED,
    REMOVED,
    CleanedFile,
    FileCleaning,
    clean_file,
    file_cleanings,
    is_intact,
    join_files,
    read_cleaned,
)
from unmask.data.cleaning.rule import read_tally
from unmask.data.cleaning.rules import Rules
from unmask.data.corpus.build import (
    ALWAYS_HELD,
    SHARD_TOKENS,
    check_yield,
    report_leak,
    report_yield,
    write_corpus,
    write_portion,
)
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.manifest import CLEANING, NAME, SkippedEntry
from unmask.data.corpus.mix import merge_corpora
from unmask.data.text.documents import Skipped, TextOptions, resolve_documents
from unmask.data.text.record_files import fingerprint_source
from unmask.data.text.section import Section
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.choices import as_url
from unmask.support.durable import new_directory, only_writer, read_json, replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import differences, sha256, versions
from unmask.support.messages import argument
from unmask.support.stores import look_up
from unmask.support.urls import Url, address_of
from unmask.workflows.corpora.dividing import Bounds, divide, large_files, size_of
from unmask.workflows.corpora.tasks import Task, check_failures, work, work_together

TASK_BYTES = 256_000_000
"""Number of bytes of files, as they are stored, from which on a portion of them is a task."""
TASKS, TOKENIZER, PLAN, CORPUS = ".tasks", "tokenizer", "plan.json", "corpus"
"""Suffix of the folder of tasks, what is in it beside them, and the folder of a task's corpus."""
JOIN = "unmask.workflows.corpora.building:join"
"""What other processes call."""


class BuildPlan(msgspec.Struct, frozen=True):
    """What is built, as other processes are told.

    Attributes:
        out: directory of the corpus.
        cleaned: the folder of cleaned text.
        current: the current folder, in which relative paths are.
        paths: files, or addresses of URLs.
        sections: sections of the files that are divided, by the number of the file.
        portions: number of files and sections of each portion; those that are held out follow.
        heldout: number of files that are held out, the last ones.
        options, held_options: how files are read, and those that are held out.
        rules: by which text is cleaned.
        shard_tokens: number of tokens of a shard.
        workers: number of processes of each task.
    """

    out: str
    cleaned: str
    current: str
    paths: list[str]
    sections: dict[int, list[Bounds]]
    portions: list[int]
    heldout: int
    options: TextOptions
    held_options: TextOptions
    rules: Rules
    task_bytes: int
    shard_tokens: int
    workers: int

    @property
    def train(self) -> list[str | Path]:
        """The files that are not held out, and the sections of those that are divided."""
        return [
            part
            for index, path in enumerate(map(as_url, self.paths[: len(self.paths) - self.heldout]))
            for part in self._parts(index, path)
        ]

    @property
    def held(self) -> list[str | Path]:
        """The files that are held out."""
        return list(map(as_url, self.paths[len(self.paths) - self.heldout :]))

    def _parts(self, index: int, path: str | Path) -> list[str | Path]:
        bounds = self.sections.get(index, [])
        last = len(bounds) - 1
        return [Section(path, *each, is_last=number == last) for number, each in enumerate(bounds)] or [path]


def portions(paths: Sequence[str | Path]) -> list[int]:
    """Return how many consecutive files form each portion: those that have `TASK_BYTES` together, at least.

    Standard input, which other processes cannot read, is in a single portion with all others.
    """
    if "-" in map(str, paths):
        return [len(paths)]
    counts, size = [0], 0
    for path in paths:
        if size >= TASK_BYTES:
            counts, size = [*counts, 0], 0
        counts[-1] += 1
        size += size_of(path)
    return counts


def needs_tasks(paths: Sequence[str | Path], options: TextOptions) -> bool:
    """Return whether files are more than one task has."""
    return len(portions(paths)) > 1 or bool(large_files(paths, options, TASK_BYTES))


def is_complete(
    out: Path, paths: Sequence[str | Path], tokenizer: Tokenizer, rules: Collection[str] = ()
) -> Corpus | None:
    """Return the corpus of these files, cleaned by the rules of these names, if it is there."""
    if not (out / NAME).exists():
        return None
    corpus = open_corpus(out)
    is_same = corpus.manifest.sources == list(map(str, paths)) and corpus.manifest.tokenizer.sha256 == tokenizer.sha256
    was_cleaned = (out / CLEANING).exists()
    is_cleaned = was_cleaned == bool(rules) and read_tally(out / CLEANING).rules.keys() <= set(rules)
    return corpus if is_same and is_cleaned else None


def remove_tasks(out: Path, cleaned: Path) -> None:
    """Remove what a corpus was made of that is complete: its tasks, and the folder of cleaned text."""
    for folder in (_folder(out), cleaned):
        shutil.rmtree(folder, ignore_errors=True)


def _folder(out: Path) -> Path:
    return out.with_name(out.name + TASKS)


def build_by_tasks(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: Path,
    cleaned: Path,
    *,
    heldout: Sequence[str | Path],
    options: TextOptions,
    rules: Rules,
    workers: int,
    engine: str,
    report: Callable[[str], None],
) -> Corpus:
    """Build a corpus by tasks.

    Args:
        paths, tokenizer, out, heldout, options, report: see `write_corpus`.
        cleaned: the folder of cleaned text.
        rules: by which the text is cleaned.
        workers: number of processes that work at the same time.
        engine: where they run: "local", "ray", or "hosts": this machine, beside others that run the same command.

    Raises:
        UserError: files cannot be read, there is no text, or the folder is that of another build.
        UnmaskError: tasks failed; all others are done.
    """
    if out.is_mount() or "-" in map(str, [*paths, *heldout]):
        problem = f"{argument('engine', engine)} does not work with standard input, or with a mount point as output"
        raise UserError(problem, remedy=f"write the text to a file, and choose a directory in it as {argument('out')}")
    held_options = replace(options, documents=resolve_documents(heldout, options)) if heldout else options
    plan = BuildPlan(
        out=str(out),
        cleaned=str(cleaned),
        current=str(Path.cwd()),
        paths=[address_of(path) or str(path) for path in (*paths, *heldout)],
        sections={},
        portions=[],
        heldout=len(heldout),
        options=replace(options, documents=resolve_documents(paths, options)),
        held_options=held_options,
        rules=rules,
        task_bytes=TASK_BYTES,
        shard_tokens=SHARD_TOKENS,
        workers=1,
    )
    folder = Build(plan).prepare(tokenizer)
    large = large_files(paths, options, TASK_BYTES)
    sections = divide(large, folder, out / NAME, task_bytes=TASK_BYTES, workers=workers, engine=engine, report=report)
    plan = msgspec.structs.replace(plan, sections={index: each for index, each in sections.items() if len(each) > 1})
    counts = portions(plan.train)
    each = 1 if engine == "ray" else max(1, workers // len(counts))  # a task of Ray has one core
    build = Build(msgspec.structs.replace(plan, portions=counts, workers=each))
    call = work_together(build.tasks, JOIN, build.plan, workers=workers, engine=engine, report=report, end=out / NAME)
    return build.finish(call, report)


def join(plan: str, call: str) -> None:
    """Work on a build; what another process runs."""
    decoded = msgspec.json.decode(plan, type=BuildPlan)
    with chdir(decoded.current):
        work(Build(decoded).tasks, call, lambda line: None, Path(decoded.out) / NAME)


class Build:
    """A build, as each process knows it.

    Args:
        plan: what is built.

    Attributes:
        plan: the same.
        out: directory of the corpus.
        folder: that of the tasks.
    """

    def __init__(self, plan: BuildPlan) -> None:
        self.plan, self.out, self._cleaned = plan, Path(plan.out), Path(plan.cleaned)
        self.folder = _folder(self.out)
        self._train, self._held = plan.train, plan.held
        ends = [0, *accumulate(plan.portions)]
        self._portions = [range(*bounds) for bounds in pairwise(ends)]

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks, each after those it needs."""
        plan, cleaning, needs = self.plan, list[Task](), list[Task]()
        if plan.rules:
            for number, each in enumerate(file_cleanings(self._train, plan.options, plan.rules, self._cleaned), 1):
                made_from = partial(self._content, [each.path, *plan.rules.files])
                is_whole = partial(self._is_cleaned, each)
                cleaning.append(self._task(f"clean {number}", made_from, partial(self._clean, each), (), is_whole))
            needs = [self._task("join", list, partial(self._join, cleaning), cleaning, self._is_joined)]
        encoding = []
        for number, chosen in enumerate(self._portions):
            read = [] if plan.rules else self._train[chosen.start : chosen.stop]
            with_held = self._held if len(self._portions) == 1 else []
            made_from = partial(self._content, [*read, *with_held], chosen)
            encoding.append(self._task(f"encode {number + 1}", made_from, partial(self._encode, number), needs))
        if self._held and len(self._portions) > 1:
            made_from = partial(self._content, self._held)
            encoding.append(self._task("encode held-out files", made_from, self._encode_held))
        return [*cleaning, *needs, *encoding, self._task("merge", list, partial(self._merge, encoding), encoding)]

    def _task(
        self,
        name: str,
        made_from: Callable[[], Any],
        run: Callable[[Path], Any],
        needs: Sequence[Task] = (),
        is_intact: Callable[[Any], bool] = lambda value: True,
    ) -> Task:
        return Task(name, self.folder / name.replace(" ", "-"), made_from, run, needs, is_intact)

    def prepare(self, tokenizer: Tokenizer) -> Path:
        """Create the folder of tasks, or check that it is that of the same build; return it.

        Raises:
            UserError: it is that of another one.
        """
        plan = self.plan
        settings = {
            "tokenizer": tokenizer.sha256,
            "files": [str(path) for path in (*self._train, *self._held)],
            "held-out files": plan.heldout,
            "bytes of a task": plan.task_bytes,
            "options": [asdict(plan.options), asdict(plan.held_options)],
            "rules": msgspec.to_builtins(plan.rules),
            "tokens of a shard": plan.shard_tokens,
            **versions(("tokenizers", "sentencex")),
        }
        now = msgspec.json.decode(msgspec.json.encode(settings), type=dict[str, Any])
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / PLAN
        remedy = "run the command that started it to resume it, or remove the folder to start from scratch"
        before = read_json(file, dict[str, Any], remedy) if file.exists() else now
        if changed := differences(before, now):
            raise UserError(
                f"contains an interrupted build with other settings: {'; '.join(changed)[:500]}",
                file=self.folder,
                remedy=remedy,
            )
        with only_writer(file, wait=True):  # hosts may begin at the same time
            if not (self.folder / TOKENIZER).exists():
                with new_directory(self.folder / TOKENIZER) as aside:
                    tokenizer.save(aside)
            replace_file(file, msgspec.json.encode(now))
        return self.folder

    def finish(self, call: str, report: Callable[[str], None]) -> Corpus:
        """Return the corpus, and remove what it was made of.

        Raises:
            UnmaskError: tasks failed.
        """
        if not (self.out / NAME).exists():
            check_failures(self.tasks, call, self.folder)
        skipped = Skipped()
        for task in self.tasks:
            value = task.value or {}
            for line in value.get("notes", []):
                report(line)
            skipped.merge(msgspec.convert(value.get("skipped", {}), Skipped))
        for line in skipped.notes():
            report(line)
        corpus = open_corpus(self.out)
        remove_tasks(self.out, self._cleaned)
        return corpus

    def _content(self, paths: Sequence[str | Path], chosen: range = range(0)) -> list[Any]:
        """Return fingerprints of what is in files; of URLs, their sizes and versions; and which files are chosen."""
        contents: list[Any] = []
        for path in paths:
            address = address_of(path)
            bounds = (path.start, path.stop, path.before) if isinstance(path, Section) else ()
            contents.append([look_up(Url(address)) if address else fingerprint_source(path), *bounds])
        return [contents, chosen.start, chosen.stop]

    def _clean(self, cleaning: FileCleaning, place: Path) -> dict[str, Any]:
        """Clean a file."""
        return {"cleaned": msgspec.to_builtins(clean_file(cleaning))}

    def _is_cleaned(self, cleaning: FileCleaning, value: Any) -> bool:
        """Return whether the files of a source that has been cleaned are as they were written."""
        return is_intact(cleaning, msgspec.convert(value["cleaned"], CleanedFile))

    def _join(self, cleaning: Sequence[Task], place: Path) -> dict[str, Any]:
        """Find duplicates among all files."""
        done = [msgspec.convert(value["cleaned"], CleanedFile) for task in cleaning if (value := task.value)]
        notes: list[str] = []
        cleaned = join_files(done, self.plan.rules, self._cleaned, notes.append)
        cleaned.save()
        return {"notes": [*notes, *cleaned.skipped.notes()], "files": self._joined()}

    def _joined(self) -> dict[str, str]:
        """Return the SHA-256 of the files of all sources."""
        paths = [self._cleaned / name for name in (JOINED, DROPPED, REMOVED)]
        return {path.name: sha256(path) for path in paths if path.is_file()}

    def _is_joined(self, value: Any) -> bool:
        """Return whether these files are as they were written."""
        return bool(value.get("files") == self._joined())

    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / TOKENIZER)

    def _encode(self, number: int, place: Path, held: Sequence[int] = ()) -> dict[str, Any]:
        """Build the corpus of a portion in a folder."""
        plan, chosen = self.plan, self._portions[number]
        files, out = self._train[chosen.start : chosen.stop], place / CORPUS
        shutil.rmtree(out, ignore_errors=True)  # of another text
        settings: dict[str, Any] = {
            "options": plan.options,
            "copy": read_cleaned(self._cleaned, chosen) if plan.rules else None,
            "shard_tokens": plan.shard_tokens,
            "workers": plan.workers,
        }
        if len(self._portions) == 1:
            notes: list[str] = []
            write_corpus(files, self._tokenizer(), out, heldout=self._held, **settings, report=notes.append)
            return {"notes": notes}
        part = "train" if self._held else None
        portion = write_portion(files, self._tokenizer(), out, part=part, held=held, **settings)
        return {"smallest": portion.smallest, "skipped": msgspec.to_builtins(portion.skipped)}

    def _encode_held(self, place: Path) -> dict[str, Any]:
        """Build the corpus of the files that are held out."""
        plan, out = self.plan, place / CORPUS
        shutil.rmtree(out, ignore_errors=True)
        portion = write_portion(
            self._held,
            self._tokenizer(),
            out,
            part="heldout",
            options=plan.held_options,
            shard_tokens=plan.shard_tokens,
            workers=plan.workers,
        )
        return {"skipped": msgspec.to_builtins(portion.skipped)}

    def _merge(self, encoding: Sequence[Task], place: Path) -> dict[str, Any]:
        """Merge the corpora of all portions."""
        folders = [task.folder for task in encoding]
        if len(self._portions) > 1 and not self._held:
            manifests = [open_corpus(folder / CORPUS).manifest for folder in folders]
            held = sum(manifest.heldout.documents for manifest in manifests)
            documents = held + sum(manifest.train.documents for manifest in manifests)
            smallest = [(task.value or {})["smallest"] for task in encoding]
            lacking = max(0, min(ALWAYS_HELD, documents // ALWAYS_HELD) - held)
            chosen = sorted({value for values in smallest for value in values})[:lacking]
            for number, values in enumerate(smallest):
                if set(chosen) & set(values):
                    folders[number] = place / f"portion-{number + 1}"
                    self._encode(number, folders[number], chosen)
        cleaned = read_cleaned(self._cleaned, range(len(self._train))) if self.plan.rules else None
        skipped = cleaned.skipped if cleaned is not None and len(self._portions) > 1 else Skipped()
        corpus = merge_corpora(
            [open_corpus(folder / CORPUS) for folder in folders],
            self.out,
            skipped=SkippedEntry(skipped.count, skipped.places),
            cleaning=b"" if cleaned is None else cleaned.summary,
            check=partial(check_yield, heldout=self._held),
        )
        notes: list[str] = []
        report_yield(corpus.manifest, notes.append)
        if self._held:
            report_leak(corpus, notes.append)
        return {"notes": notes if len(self._portions) > 1 else []}
