"""Building of a corpus as users call it: `unmask corpus build`."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.cleaning.clean import clean_documents
from unmask.data.cleaning.quality import Quality
from unmask.data.cleaning.rules import read_rules
from unmask.data.corpus import build
from unmask.data.corpus.corpus import Corpus
from unmask.data.corpus.encode import refuse_unguarded
from unmask.data.corpus.partial import remove_published
from unmask.data.text.documents import TextOptions
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.model.directory import find_tokenizer
from unmask.support.choices import Documents, Engine, Files, as_files, check_choice
from unmask.support.environment import num_cores
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument, call
from unmask.training.runs.display import Display
from unmask.workflows.corpora.building import build_by_tasks, is_complete, needs_tasks, remove_tasks

_STUDENT = "quality"


def build_corpus(
    files: Files,
    tokenizer: Tokenizer | str | Path,
    out: str | Path,
    *,
    heldout: Files = (),
    workers: int | None = None,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    encoding: str | None = None,
    clean: Files = (),
    exclude_overlap: Files = (),
    quality: str | Path | None = None,
    quality_label: str | None = None,
    min_quality: float | None = None,
    engine: Engine = "local",
    quiet: bool = False,
) -> Corpus:
    """Tokenize text and write it as checksummed shards.

    Args:
        files: plain text or JSON Lines (.jsonl), optionally compressed (.gz, .bz2, .xz, .zst); Parquet, Arrow, or a
            directory of datasets; WARC, WET and ARC files, HTML, dumps of MediaWiki, EPUB; also their URLs (https://…,
            s3://…); - is standard input.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub.
        out: directory of the new corpus; an interrupted build there is continued.
        heldout: text to hold out for evaluation during training; by default 1 % of the documents.
        workers: number of processes that tokenize; by default one per core.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        clean: rules by which documents are dropped or changed: web (those for English pages), gopher_quality,
            gopher_repetition, c4, fineweb, duplicates, near_duplicates, repeated_passages, boilerplate,
            repeated_lines, pii, or a .toml file with a table of settings for each, also [urls] and [language].
        exclude_overlap: test files; documents that have 13 words in a row in common with them are dropped.
        quality: a model for classification or regression; documents that a static student of it would not keep are
            dropped.
        quality_label: label of the documents that stay.
        min_quality: their minimum probability of this label, by default 0.5; of regression, the minimum number.
        engine: where processes work: on this machine; on this one beside others that share its directories and run the
            same command; or as tasks of a Ray cluster.
        quiet: print only results and errors.

    Raises:
        UserError: the directory is not empty, the files hold no text to train on, or a rule is not known. If a killed
            build has completed this corpus, what it left beside it is removed.
        UnmaskError: tasks have failed (the message names them); all others are done.
    """
    refuse_unguarded()  # it would wait for tasks that this process does
    check_count("workers", workers, 1, 999)
    check_choice("engine", engine, Engine)
    display, paths, options = Display(quiet=quiet), as_files(files), TextOptions(field, documents, strict, encoding)
    processes = num_cores() if workers is None else workers
    rules = read_rules(as_files(clean), as_files(exclude_overlap))
    if quality is None:
        refuse_idle(f"without {argument('quality')}", quality_label=quality_label, min_quality=min_quality is not None)
    tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else load_tokenizer(find_tokenizer(tokenizer))
    folder, held = cleaning_folder(Path(out)), as_files(heldout)
    names = {*rules.names, *(["quality"] if quality is not None else [])}
    completed = partial(is_complete, Path(out), [*paths, *held], tokenizer, names)
    by_another = f"corpus, which another host has completed: {out}"
    if corpus := completed():
        if engine == "hosts":
            display.say(by_another)
            return corpus
        remove_tasks(Path(out), folder)  # of a build that was killed after it had published the corpus
        remove_published(Path(out).resolve())
    common: dict[str, Any] = {"heldout": held, "options": options, "workers": processes, "report": display.say}
    try:
        build.check_out(out)
        build.check_sources([*paths, *held], options)
        if quality is not None:
            from unmask.workflows.corpora.student import make_student  # torch

            if rules.quality is not None:
                raise UserError(f"{argument('quality')} and a table [quality] both name a model", remedy="omit one")
            if "-" in map(str, paths):
                raise UserError(
                    f"{argument('quality')} reads the start of text before the rest, and standard input only once",
                    remedy="write the text to a file",
                )
            student = folder / _STUDENT  # which decides, and is taught in the folder of cleaned text
            make_student(quality, quality_label, min_quality, paths, options, student, display.say)
            rules = msgspec.structs.replace(rules, quality=Quality(student=str(student)))
        if engine != "local" or (not Path(out).is_mount() and needs_tasks(paths, options)):
            corpus = build_by_tasks(paths, tokenizer, Path(out), folder, rules=rules, engine=engine, **common)
        else:
            cleaned = None
            if rules:
                cleaned = clean_documents(paths, options, rules, folder, workers=processes, report=display.say)
            corpus = build.write_corpus(paths, tokenizer, out, copy=cleaned, **common)
            shutil.rmtree(folder, ignore_errors=True)
    except (OSError, UserError):  # another host may publish the corpus, and remove the tasks, at any time
        if engine != "hosts" or not (corpus := completed()):
            raise
        remove_tasks(Path(out), folder)  # created again, after the other host removed them
        remove_published(Path(out).resolve())
        display.say(by_another)
        return corpus
    remedy = f"train a vocabulary on this text ({call('tokenizer train', 'FILES…')}), or extend this one"
    display.say(*corpus.notes(remedy), f"corpus: {out}")
    return corpus


def cleaning_folder(out: Path) -> Path:
    """Return the folder in which the text of a corpus is cleaned."""
    out = out.resolve()
    return out / build.CLEANED if out.is_mount() else out.with_name(out.name + build.CLEANED)
