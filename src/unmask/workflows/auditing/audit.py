"""Which labels are probably wrong: `unmask.audit`.

Input: a model, and labeled examples. Output: the examples that someone should look at, the first ones first; a file to
correct the labels in, which `finetune` reads; a page to look through.

A linear probe on the vectors of the frozen encoder is trained on all folds but one, and says of the labels in that one
how probable they are; confident learning (Northcutt et al. 2021) selects those that are probably wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unmask.data.labelled.columns import as_columns, refuse_weights
from unmask.data.labelled.table import Data, ExampleTable, Source, as_sources
from unmask.data.labelled.tagged_file import write_columns
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.inference.backend import TorchBackend
from unmask.inference.load import warn_of_new_tokens
from unmask.inference.stream import refuse_input
from unmask.model.model import load_model
from unmask.support.choices import AuditedTask, ColumnNames, Device, Format, Precision, check_choice
from unmask.support.durable import check_file, only_writer, replace_file
from unmask.support.errors import UserError, check_count
from unmask.support.messages import argument
from unmask.tasks import TASKS
from unmask.tasks.prediction_tables import check_library
from unmask.tasks.rows import RowTask, texts_of
from unmask.tasks.task import Task
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.auditing.corrections import (
    Record,
    audit_page,
    other_columns,
    sentence_records,
    text_records,
    write_records,
    write_words,
)
from unmask.workflows.auditing.finetuned import finetuned_probabilities
from unmask.workflows.auditing.suspects import RANKERS, Ranking, rank_examples
from unmask.workflows.finetuning.job import InitialModel

OF_TEXTS, OF_WORDS = (".tsv", ".csv", ".jsonl", ".parquet", ".xlsx"), (".conll", ".tsv", ".txt", ".jsonl")
"""Suffixes of the files that are written of texts and of words."""
NO_LABEL = "(none)"


@dataclass(frozen=True)
class Suspect:
    """An example whose label is probably wrong, or that has an equal text with another label.

    Attributes:
        rank: from 1, the first to look at.
        file, line: where it is.
        text: its text, or its texts, separated by a tab.
        given: its label, its labels, or the tags of the words that are probably wrong (of all words but O, if none is).
        suggested: what they probably should be; "": no other label is more probable.
        probability: the smallest probability of its labels; None: they could not be judged.
        equal_to: where an equal text has another label; "": nowhere.
    """

    rank: int
    file: str
    line: int
    text: str
    given: str
    suggested: str
    probability: float | None
    equal_to: str = ""


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        task: the task.
        examples: number of examples.
        suspects: those to look at, in this order.
        wrong: how many examples have a label that is probably wrong.
        contradictory: how many examples have an equal text with other labels.
        noise, agreement: see `Ranking`.
        by_label: see `Ranking`.
        notes: what was truncated, omitted, or could not be judged.
    """

    task: str
    examples: int
    suspects: list[Suspect]
    wrong: int
    contradictory: int
    noise: float
    agreement: float
    by_label: dict[str, dict[str, Any]]
    notes: list[str]


def audit(
    model: str | Path,
    data: Data,
    *,
    task: AuditedTask | None = None,
    out: str | Path | None = None,
    page: str | Path | None = None,
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    folds: int = 5,
    finetune_in: str | Path | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: Precision = "float32",
    quiet: bool = False,
) -> Audit:
    """Find labels that are probably wrong.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, or directory of AllenNLP's ELMo; its
            encoder is used as it is, or also fine-tuned (finetune_in). One that was trained on these labels finds
            fewer: prefer a pretrained one.
        data: labeled examples, as for finetune; several files form one set. In Python also examples in memory.
        task: what the labels are; by default the task that the model was fine-tuned for.
        out: file to correct the labels in, which finetune reads: .tsv, .csv, .jsonl, .parquet or .xlsx
            (token-classification: .conll, .tsv, .txt or .jsonl).
        page: page to look through and to correct the labels on, FILE.html.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        folds: number of parts; the labels of each are judged by what was learned from the others.
        finetune_in: directory to fine-tune the model in, once for each part on the others: what these models say
            counts, too, and finds more, but takes as long as that many trainings; an interrupted audit continues there.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        quiet: print only results and errors.

    Returns:
        The examples to look at, and counts; see `Audit`.

    Raises:
        UserError: the data is malformed, has too few labels, or cannot be written to the files.
    """
    sources = as_sources(data, encoding)
    written, shown = (None if path is None else Path(path) for path in (out, page))
    check_count("folds", folds, 2)
    if task is not None:
        check_choice("task", task, AuditedTask)
    _check_sources(sources)
    machine, display = choose_machine(device, precision), Display(quiet=quiet)
    loaded = load_model(model, allow_pickle=allow_pickle)
    warn_of_new_tokens(loaded, model)
    kind = task or _task_of(loaded.task)
    _check_written(written, shown, sources, OF_WORDS if kind == "token-classification" else OF_TEXTS)
    notes: list[str] = []
    if loaded.task is not None:
        notes.append(
            f"the model was fine-tuned for {loaded.task.title}; its encoder is used, to which labels "
            "that it was trained on look right, also wrong ones"
        )
    reader = TASKS[kind]()
    named = as_columns(columns)
    refuse_weights(named, "labels are judged whatever the weights of their examples")
    examples = reader.read(sources, columns=named, kind=format, notes=notes)
    others: list[Record] = []
    if isinstance(reader, RowTask) and (written or shown):
        others = other_columns(reader, sources, examples, columns=named, kind=format)
    if written is not None:
        _check_content(examples, others, written.suffix)
    finetuned = None
    if finetune_in is not None:
        finetuned = partial(
            finetuned_probabilities,
            task=kind,
            start=InitialModel(model, allow_pickle=allow_pickle),
            directory=Path(finetune_in),
            machine=choose_machine(device),
            display=display,
        )
    with only_writer(written), only_writer(shown, "page"):
        ranking = rank_examples(kind, TorchBackend(loaded, machine, display), examples, folds, notes, finetuned)
        if written or shown:
            _write(kind, examples, others, ranking, written, shown)
    display.say(*notes)
    return _result(kind, examples, ranking, notes)


def _write(
    kind: str, examples: Sequence[Any], others: Sequence[Record], ranking: Ranking, out: Path | None, page: Path | None
) -> None:
    """Write the file to correct labels in, or the page, or both."""
    audited, words = ranking.examples, kind == "token-classification"
    if words:
        records = sentence_records(examples, audited)
    else:
        records = text_records(examples, others, audited, several=kind == "multi-label")
    if out is not None and words and out.suffix != ".jsonl":
        replace_file(out, write_words(examples, audited))
    elif out is not None:
        replace_file(out, write_records(out.suffix, records))
    if page is not None:
        replace_file(page, audit_page(kind, ranking, records, f"{page.stem}.jsonl").encode())


def _task_of(task: Task | None) -> str:
    """Return the task whose labels are audited, if the model was fine-tuned for one.

    Raises:
        UserError: it was not, or its labels cannot be audited.
    """
    kind = None if task is None else task.kind
    if kind not in RANKERS:
        why = "the model was not fine-tuned" if task is None else f"labels of {kind} cannot be audited"
        raise UserError(why, remedy=f"say what the labels are: {argument('task')} of {', '.join(RANKERS)}")
    return kind


def _check_sources(sources: Sequence[Source]) -> None:
    """Raise an error if examples come from standard input, as they are read twice."""
    if any(str(source) == "-" for source in sources if not isinstance(source, ExampleTable)):
        raise UserError("the examples are read twice, which standard input cannot be", remedy="write them to a file")


def _check_written(out: Path | None, page: Path | None, sources: Sequence[Source], suffixes: Sequence[str]) -> None:
    """Raise an error, before anything is computed, if a file cannot be written.

    Raises:
        UserError: its suffix is not known, its directory does not exist, or it is an input.
    """
    files = [source for source in sources if not isinstance(source, ExampleTable)]
    for name, path, known in (("out", out, suffixes), ("page", page, (".html",))):
        if path is None:
            continue
        if path.suffix not in known:
            raise UserError("the suffix determines the format", file=path, remedy=f"use {' or '.join(known)}")
        check_library(path)
        check_file(path, name)
        refuse_input(path, files, name)


def _check_content(examples: Sequence[Any], others: Sequence[Record], suffix: str) -> None:
    """Raise an error, before anything is computed, if texts or words cannot be written in a format.

    Raises:
        UserError: a cell contains a tab or a line break, or a word does.
    """
    if others:
        write_records(suffix, [{**row.values, **other} for row, other in zip(examples, others, strict=True)])
    elif suffix != ".jsonl":
        for sentence in examples:
            write_columns(sentence, sentence.tags)


def _result(kind: str, examples: Sequence[Any], ranking: Ranking, notes: list[str]) -> Audit:
    """Return what the audit found, for people."""
    order = sorted(range(len(examples)), key=lambda number: ranking.examples[number].rank)
    suspects = [_suspect(examples, ranking, number) for number in order if ranking.examples[number].is_suspect]
    return Audit(
        kind,
        len(examples),
        suspects,
        sum(bool(example.wrong) for example in ranking.examples),
        sum(example.equal is not None for example in ranking.examples),
        ranking.noise,
        ranking.agreement,
        ranking.by_label,
        notes,
    )


def _suspect(examples: Sequence[Any], ranking: Ranking, number: int) -> Suspect:
    example, audited = examples[number], ranking.examples[number]
    if isinstance(example, TaggedSentence):
        text, words = example.text, example.words
        places = audited.wrong or [at for at, tag in enumerate(audited.given) if tag != "O"]
        given, suggested = (
            ", ".join(f"{words[at]} {tags[at]}" for at in places) or NO_LABEL
            for tags in (audited.given, audited.suggested)
        )
    else:
        text = "\t".join(texts_of(example))
        given, suggested = (", ".join(labels) or NO_LABEL for labels in (audited.given, audited.suggested))
    equal = None if audited.equal is None else examples[audited.equal]
    return Suspect(
        audited.rank,
        example.file,
        example.line,
        text,
        given,
        suggested if audited.wrong else "",
        audited.probability,
        f"{equal.file}:{equal.line}" if equal else "",
    )
