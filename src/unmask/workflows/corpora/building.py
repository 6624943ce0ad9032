"""Building of a corpus by tasks, which processes of one or several machines divide between them.

Input: files, a tokenizer and rules. Output: the corpus, the same for any number of processes, wherever they run, and
whether or not some of them were killed. A small text is one task, the same as `write_corpus`; of a large one, each
task encodes consecutive files of about `TASK_BYTES` together (`portions`), into shards of their own.

    clean 1, 2, …      a file each (data/cleaning/clean.py), if there are rules
    join               duplicates among all files
    encode 1, 2, …     a portion each -> OUT.tasks/encode-1/corpus
    merge              -> OUT

Several machines share OUT.tasks and OUT.cleaned, beside OUT. What other processes of this machine and of Ray must know
is passed as JSON; nothing is pickled, and no URL with credentials is written.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.cleaning.clean import CleanedFile, FileCleaning, clean_file, file_cleanings, join_files, read_cleaned
from unmask.data.cleaning.rules import Rules
from unmask.data.corpus.build import ALWAYS_HELD, SHARD_TOKENS, check_yield, report_yield, write_corpus, write_portion
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.manifest import NAME, SkippedEntry
from unmask.data.corpus.merge import merge_corpora
from unmask.data.text.documents import Skipped, TextOptions, resolve_documents
from unmask.data.text.record_files import fingerprint_source
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.choices import as_url
from unmask.support.durable import new_directory, replace_file
from unmask.support.errors import UnmaskError, UserError, counted
from unmask.support.fingerprint import differences, versions
from unmask.support.messages import argument
from unmask.support.stores import look_up
from unmask.support.urls import Url, address_of
from unmask.support.workers import local_workers, work_on_ray
from unmask.workflows.corpora.tasks import Task, check_done, work

TASK_BYTES = 256_000_000
"""Number of bytes of files, as they are stored, from which on a portion of them is a task."""
TASKS, TOKENIZER, PLAN, CORPUS = ".tasks", "tokenizer", "plan.json", "corpus"
"""Suffix of the folder of tasks, what is in it beside them, and the folder of a task's corpus."""
JOIN = "unmask.workflows.corpora.building:join"
"""What other processes call."""


class Plan(msgspec.Struct, frozen=True):
    """What is built, as other processes are told.

    Attributes:
        out: directory of the corpus.
        cleaned: the folder of cleaned text.
        current: the current folder, in which relative paths are.
        paths: files, or addresses of URLs.
        portions: number of files of each portion; those that are held out follow.
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
    portions: list[int]
    heldout: int
    options: TextOptions
    held_options: TextOptions
    rules: Rules
    shard_tokens: int
    workers: int


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
        size += look_up(path)[0] if isinstance(path, Url) else Path(path).stat().st_size
    return counts


def is_complete(out: Path, paths: Sequence[str | Path], tokenizer: Tokenizer) -> Corpus | None:
    """Return the corpus of these files, if it is there."""
    if not (out / NAME).exists():
        return None
    corpus = open_corpus(out)
    is_same = corpus.manifest.sources == list(map(str, paths)) and corpus.manifest.tokenizer.sha256 == tokenizer.sha256
    return corpus if is_same else None


def build_by_tasks(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: Path,
    cleaned: Path,
    *,
    counts: Sequence[int],
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
        counts: number of files of each portion.
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
    plan = Plan(
        str(out),
        str(cleaned),
        str(Path.cwd()),
        [address_of(path) or str(path) for path in (*paths, *heldout)],
        list(counts),
        len(heldout),
        replace(options, documents=resolve_documents(paths, options)),
        held_options,
        rules,
        SHARD_TOKENS,
        max(1, workers // len(counts)),
    )
    build = Build(plan)
    build.prepare(tokenizer)
    check_done(build.tasks)
    call, others = uuid.uuid4().hex, min(workers, len(build.tasks)) - 1
    arguments = [msgspec.json.encode(plan).decode(), call]
    if engine == "ray":
        work_on_ray(workers, JOIN, arguments)
    with local_workers(0 if engine == "ray" else others, JOIN, arguments):
        build.work(call, report)
    return build.finish(call, report)


def join(plan: str, call: str) -> None:
    """Work on a build; what another process runs."""
    decoded = msgspec.json.decode(plan, type=Plan)
    with chdir(decoded.current):
        Build(decoded).work(call, lambda line: None)


class Build:
    """A build, as each process knows it.

    Args:
        plan: what is built.

    Attributes:
        plan: the same.
        out: directory of the corpus.
        folder: that of the tasks.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.out, self._cleaned = plan, Path(plan.out), Path(plan.cleaned)
        self.folder = self.out.with_name(self.out.name + TASKS)
        files = list(map(as_url, plan.paths))
        self._train, self._held = files[: len(files) - plan.heldout], files[len(files) - plan.heldout :]
        ends = [0, *accumulate(plan.portions)]
        self._portions = [range(*bounds) for bounds in pairwise(ends)]

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks, each after those it needs."""
        plan, cleaning, needs = self.plan, list[Task](), list[Task]()
        if plan.rules:
            for number, each in enumerate(file_cleanings(self._train, plan.options, plan.rules, self._cleaned), 1):
                made_from = partial(self._content, [each.path, *plan.rules.files])
                cleaning.append(self._task(f"clean {number}", made_from, partial(self._clean, each)))
            needs = [self._task("join", list, partial(self._join, cleaning), cleaning)]
        encoding = []
        for number, chosen in enumerate(self._portions):
            read = [] if plan.rules else self._train[chosen.start : chosen.stop]
            with_held = self._held if len(self._portions) == 1 else []
            made_from = partial(self._content, [*read, *with_held])
            encoding.append(self._task(f"encode {number + 1}", made_from, partial(self._encode, number), needs))
        if self._held and len(self._portions) > 1:
            made_from = partial(self._content, self._held)
            encoding.append(self._task("encode held-out files", made_from, self._encode_held))
        return [*cleaning, *needs, *encoding, self._task("merge", list, partial(self._merge, encoding), encoding)]

    def _task(
        self, name: str, made_from: Callable[[], Any], run: Callable[[Path], Any], needs: Sequence[Task] = ()
    ) -> Task:
        return Task(name, self.folder / name.replace(" ", "-"), made_from, run, needs)

    def prepare(self, tokenizer: Tokenizer) -> None:
        """Create the folder of tasks, or check that it is that of the same build.

        Raises:
            UserError: it is that of another one.
        """
        plan = self.plan
        now = {
            "tokenizer": tokenizer.sha256,
            "files": [str(path) for path in (*self._train, *self._held)],
            "held-out files": plan.heldout,
            "portions": plan.portions,
            "options": [asdict(plan.options), asdict(plan.held_options)],
            "rules": msgspec.to_builtins(plan.rules),
            "tokens of a shard": plan.shard_tokens,
            **versions(("tokenizers", "sentencex")),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / PLAN
        before = msgspec.json.decode(file.read_bytes(), type=dict[str, Any]) if file.exists() else now
        if changed := differences(before, msgspec.json.decode(msgspec.json.encode(now))):
            raise UserError(
                f"contains an interrupted build with other settings: {'; '.join(changed)[:500]}",
                file=self.folder,
                remedy="run the command that started it to resume it, or remove the folder to start from scratch",
            )
        if not (self.folder / TOKENIZER).exists():
            try:
                with new_directory(self.folder / TOKENIZER) as aside:
                    tokenizer.save(aside)
            except UserError:
                if not (self.folder / TOKENIZER).exists():  # another host was quicker
                    raise
        replace_file(file, msgspec.json.encode(now))

    def work(self, call: str, report: Callable[[str], None]) -> None:
        """Do tasks until the corpus is there, or no task is left."""
        try:
            work(self.tasks, call, report)
        except OSError:
            if not (self.out / NAME).exists():  # another host has finished, and removed the tasks
                raise

    def finish(self, call: str, report: Callable[[str], None]) -> Corpus:
        """Return the corpus, and remove what it was made of.

        Raises:
            UnmaskError: tasks failed.
        """
        failed = [(task.name, reason) for task in self.tasks if (reason := task.failure(call))]
        if failed and not (self.out / NAME).exists():
            causes = [(name, reason) for name, reason in failed if not reason.startswith("needs what failed")]
            listed = "; ".join(f"{name}: {reason}" for name, reason in causes[:10])
            more = f"; and {len(causes) - 10} others" if len(causes) > 10 else ""
            raise UnmaskError(
                f"{counted(len(causes), 'task')} of {len(self.tasks)} failed ({listed}{more}); what is done is kept in "
                f"{self.folder}, and the same command continues"
            )
        for task in self.tasks:
            for line in (task.result.value or {}).get("notes", []) if task.result else []:
                report(line)
        corpus = open_corpus(self.out)
        for folder in (self.folder, self._cleaned):
            shutil.rmtree(folder, ignore_errors=True)
        return corpus

    def _content(self, paths: Sequence[str | Path]) -> list[Any]:
        """Return fingerprints of what is in files; of URLs, their sizes and versions."""
        return [look_up(path) if isinstance(path, Url) else fingerprint_source(path) for path in paths]

    def _clean(self, cleaning: FileCleaning, place: Path) -> dict[str, Any]:
        """Clean a file."""
        return {"cleaned": msgspec.to_builtins(clean_file(cleaning))}

    def _join(self, cleaning: Sequence[Task], place: Path) -> dict[str, Any]:
        """Find duplicates among all files."""
        done = [msgspec.convert(task.result.value["cleaned"], CleanedFile) for task in cleaning if task.result]
        notes: list[str] = []
        cleaned = join_files(done, self.plan.rules, self._cleaned, notes.append)
        cleaned.save()
        return {"notes": [*notes, *cleaned.skipped.notes()]}

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
        return {"smallest": portion.smallest, "notes": portion.notes}

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
        return {"notes": portion.notes}

    def _merge(self, encoding: Sequence[Task], place: Path) -> dict[str, Any]:
        """Merge the corpora of all portions."""
        folders = [task.folder for task in encoding]
        if len(self._portions) > 1 and not self._held:
            manifests = [open_corpus(folder / CORPUS).manifest for folder in folders]
            held = sum(manifest.heldout.documents for manifest in manifests)
            documents = held + sum(manifest.train.documents for manifest in manifests)
            smallest = [(task.result.value if task.result else {})["smallest"] for task in encoding]
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
        return {"notes": notes if len(self._portions) > 1 else []}
