"""Preparation of a tokenizer and a corpus from raw text inside a run directory.

If a preparation is interrupted, the next one reuses its tokenizer and its complete or partial corpus, provided that the
files (by name and content), the settings and the versions of the libraries are the same. A run is resumed with the text
that it was started on, whatever the files are called: the checksums of their content are computed again, which takes
0.7 s for a gigabyte.

If a vocabulary is learned from the text, its documents are copied into the run until the corpus is complete: the raw
files are read once, for their characters, the vocabulary and the corpus (data/text/documents.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.cleaning.clean import clean_documents
from unmask.data.cleaning.rules import Rules
from unmask.data.corpus.build import check_sources, write_corpus
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.encode import refuse_unguarded
from unmask.data.corpus.partial import remove_published
from unmask.data.text.documents import TextOptions
from unmask.data.text.files import display_name
from unmask.data.text.record_files import fingerprint_source
from unmask.data.text.text_copy import TextCopy, copy_documents
from unmask.data.tokenizers.coverage import suited_vocabulary
from unmask.data.tokenizers.extend import learn_tokens
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.train import PADDING, TokenizerSettings, train_vocabulary
from unmask.model.directory import find
from unmask.recipes.recipe import Recipe
from unmask.support.durable import new_directory, read_json
from unmask.support.errors import UserError, check_count
from unmask.support.fingerprint import differences, versions
from unmask.support.messages import argument
from unmask.support.settings import to_table
from unmask.training.processes import Processes
from unmask.training.restoring import deliver
from unmask.training.runs.directory import MARK, PREPARED, RunDirectory
from unmask.workflows.pretraining.checks import check_vocabulary, check_words
from unmask.workflows.pretraining.restarts import restarted

SAME = "resume with the same command, or start a new run"
LIBRARIES = ("tokenizers", "sentencex")
"""Libraries whose versions affect the tokenizer and the corpus."""


def corpus_from_text(
    paths: Sequence[str | Path],
    recipe: Recipe,
    out: Path,
    *,
    init: str | Path | None = None,
    extend: int | None = None,
    options: TextOptions | None = None,
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    suited: Collection[str] = (),
    resume: bool = False,
    workers: int = 1,
    report: Callable[[str], None] = print,
) -> Corpus:
    """Prepare a tokenizer and a corpus inside the directory of a new run, or open those of a resumed run.

    Args:
        paths: raw files.
        recipe: its [tokenizer] describes the tokenizer to train, unless `init` provides one.
        out: the run directory.
        init: model that the run continues from.
        extend: maximum number of tokens by which the tokenizer of `init` is extended; None: it is used as it is.
        options: how the files are read.
        rules: by which the text is cleaned, also for the tokenizer.
        suited: which of the settings "kind" and "vocabulary" of [tokenizer] are chosen for the text
            (`suited_vocabulary`), the recipe's size of the vocabulary being the smallest.
        resume: open the corpus of the existing run.
        workers: number of processes that tokenize (see `write_corpus`).
        report: called with one-line progress messages.

    Raises:
        UserError: the run directory is not empty (or, on resume, the run was started on other files), the files cannot
            be read or contain no text, or the encoder cannot read the vocabulary.
    """
    refuse_unguarded()
    options = options or TextOptions()
    if resume:
        return _started_on(paths, out, extend, options, rules)
    check_count("extend", extend)
    check_sources(paths, options)
    if init is None:
        check_vocabulary(recipe.encoder, PADDING[recipe.tokenizer.kind], recipe.tokenizer.kind)
    pretrained = None if init is None else load_tokenizer(find(init))
    words = recipe.tokenizer if pretrained is None else pretrained
    with RunDirectory.reserved(out, _made_from(paths, options, words, extend, suited, rules)) as folder:
        read: Callable[[], TextCopy] = partial(copy_documents, paths, options, folder / "documents")
        if rules:
            read = cache(
                partial(clean_documents, paths, options, rules, folder / "documents", workers=workers, report=report)
            )
        if pretrained is not None and extend is None:
            tokenizer = pretrained
        else:
            tokenizer = _tokenizer(read, words, suited, extend or 0, folder / "tokenizer", report)
        check_words(recipe, tokenizer)  # before the corpus is built; `pretrain` checks again
        corpus = _finished(folder / "corpus", report)
        if corpus is None:
            corpus = write_corpus(
                paths,
                tokenizer,
                folder / "corpus",
                options=options,
                copy=None if tokenizer is pretrained and not rules else read(),
                workers=workers,
                report=report,
            )
        shutil.rmtree(folder / "documents", ignore_errors=True)
        return corpus


def corpus_for_all(processes: Processes, out: Path, make: Callable[[], Corpus]) -> Corpus:
    """Return the corpus that the main process makes from text in a run directory; each host gets a copy of it.

    Args:
        processes: the processes that train together.
        out: the run directory.
        make: makes the corpus, as `corpus_from_text` does.
    """
    if processes.size == 1:
        return make()
    processes.lead(lambda: make().manifest.train.documents)
    deliver(processes, out / PREPARED)
    return open_corpus(out / PREPARED / "corpus")


def _started_on(
    paths: Sequence[str | Path], out: Path, extend: int | None, options: TextOptions, rules: Rules
) -> Corpus:
    """Return the corpus of a run that is resumed.

    Raises:
        UserError: there is no run, or it was started on other text, with other `options`, `rules` or another `extend`.
    """
    if not (out / "recipe.toml").is_file():
        raise UserError(
            "there is no run to resume",
            file=out,
            remedy=(
                f"check {argument('out')}, or omit {argument('resume')} (a tokenizer and a corpus prepared "
                "here are reused)"
            ),
        )
    corpus, made_from = open_corpus(out / PREPARED / "corpus"), RunDirectory.prepared_from(out)
    before = read_json(out / PREPARED / MARK, dict[str, Any], _instead(out)) if made_from else {}
    if not (restarted() and "-" in map(str, paths)):  # what the first attempt has read cannot be read again
        _check_same_text(before.get("sources", []), paths, out)
    if made_from and extend != before.get("extend"):
        was, now = (
            f"without {argument('extend')}" if number is None else f"with {argument('extend', number)}"
            for number in (before.get("extend"), extend)
        )
        raise UserError(f"this run was started {was}, but is resumed {now}", file=out, remedy=SAME)
    if made_from and (changed := differences(before.get("rules", {}), to_table(rules))):
        raise UserError(f"this run was started with other rules: {'; '.join(changed)}", file=out, remedy=SAME)
    if made_from and (changed := differences(before["options"], asdict(options))):
        raise UserError(f"this run was started with other settings: {'; '.join(changed)}", file=out, remedy=SAME)
    return corpus


def _instead(out: Path) -> str:
    """Return the remedy for what cannot be continued with its text."""
    return f"continue with the corpus made from it: {argument('corpus', str(out / PREPARED / 'corpus'))}"


def _check_same_text(before: Sequence[Mapping[str, str]], paths: Sequence[str | Path], out: Path) -> None:
    """Check that the files have the content that a run was started on, in the same order.

    Raises:
        UserError: one has not, or cannot be compared; the message names it.
    """
    remedy = f"{SAME}, or {_instead(out)}"
    for source, path in zip_longest(before, paths):
        if path is None:
            raise UserError(f"this run was started also on {source['name']}", file=out, remedy=remedy)
        content = fingerprint_source(path)
        if content is None:
            problem = "cannot be compared with the text that this run was started on"
            raise UserError(problem, file=display_name(path), remedy=remedy)
        name = "which has fewer files" if source is None else source["name"]
        if source is None or content != source.get("sha256"):
            raise UserError(f"is not the text that this run was started on, {name}", file=path, remedy=remedy)


def _made_from(
    paths: Sequence[str | Path],
    options: TextOptions,
    words: TokenizerSettings | Tokenizer,
    extend: int | None,
    suited: Collection[str],
    rules: Rules,
) -> bytes:
    """Return bytes that identify the inputs of a preparation; empty if one can be read only once (standard input)."""
    contents = list(map(fingerprint_source, paths))
    if None in contents:
        return b""
    return msgspec.json.encode(
        {
            "sources": [{"name": str(path), "sha256": content} for path, content in zip(paths, contents, strict=True)],
            "options": asdict(options),
            "tokenizer": words.sha256 if isinstance(words, Tokenizer) else words,
            **({} if extend is None else {"extend": extend}),
            **({"suited": sorted(suited)} if suited else {}),
            **({"rules": to_table(rules)} if rules else {}),
            **({"files of rules": list(map(fingerprint_source, rules.files))} if rules.files else {}),
            "versions": versions(LIBRARIES),
        }
    )


def _tokenizer(
    read: Callable[[], Iterable[str]],
    words: TokenizerSettings | Tokenizer,
    suited: Collection[str],
    extend: int,
    directory: Path,
    report: Callable[[str], None],
) -> Tokenizer:
    """Return the tokenizer saved in a directory, or train one on documents, or extend one, and save it there."""
    if directory.exists():
        report("using the tokenizer trained here earlier")
        return load_tokenizer(directory)
    documents = read()
    if isinstance(words, Tokenizer):
        report("extending the tokenizer")
        extension = learn_tokens(words, documents, add=extend)
        for line in extension.summary(extend):
            report(line)
        tokenizer = extension.tokenizer
    else:
        report("training the tokenizer")
        if suited:
            chosen = suited_vocabulary(documents, words.vocabulary)
            choices = dict(zip(("kind", "vocabulary"), chosen, strict=True))
            words = msgspec.structs.replace(words, **{name: choices[name] for name in suited})
        tokenizer = train_vocabulary(words.kind, documents, size=words.vocabulary, lowercase=words.lowercase)
    with new_directory(directory) as aside:
        tokenizer.save(aside)
    return tokenizer


def _finished(directory: Path, report: Callable[[str], None]) -> Corpus | None:
    """Return the corpus in a directory if it is complete; remove a damaged one."""
    if not directory.exists():
        return None
    try:
        corpus = open_corpus(directory)
    except UserError as error:
        report(f"rebuilding the corpus: {error.message}")
        shutil.rmtree(directory)
        return None
    remove_published(directory)
    report("using the corpus built here earlier from the same files")
    return corpus
