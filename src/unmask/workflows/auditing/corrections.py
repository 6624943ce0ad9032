"""What labels are corrected in after an audit: a file with the examples in the order of their ranks, and a page.

Input: examples, and what the audit says about them. Output: the content of a file that `finetune` reads as it is.
| suffix | rows | corrected in |
|---|---|---|
| `.tsv`, `.csv`, `.jsonl`, `.parquet`, `.xlsx` | texts by rank, with the other columns of their file | `label` |
| `.conll`, `.txt`, `.tsv` (words) | words in the order of their file | the last column |
| `.jsonl` (words) | sentences by rank | `tags` |

Texts and labels are in the columns text, text_b and label, whatever they were called. Columns of the input that would
be read as one of these, or are named as a result, are preceded by `input_`, as often as it takes to have a name of
their own.

The page is one HTML file that needs no server: it contains its style, its script and the records of an audit, the first
to look at first, and loads nothing. One clicks the right labels, and the page writes the corrected records as JSON
Lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import chain
from typing import Any

import msgspec

from unmask.data.labelled.columns import LABELS, PAIRS, PROBABILITY, VOTE, Wanted
from unmask.data.labelled.columns import TEXTS as TEXT_NAMES
from unmask.data.labelled.labelled_file import TEXTS, Row, read_rows
from unmask.data.labelled.negatives import NAMED
from unmask.data.labelled.table import Source
from unmask.data.labelled.tagged_file import DOCUMENT, write_columns
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.support.errors import counted
from unmask.support.html_page import html_page
from unmask.tasks.prediction_tables import TABLES, free_name, write_rows
from unmask.tasks.rows import RowTask
from unmask.workflows.auditing.suspects import Audited, Ranking

RESULTS = ("given", "suggested", "probability", "rank", "source", "equal_to")
"""Columns that are added."""
NONE = "_"
"""What columns of words have in place of nothing."""
_READ = {*chain.from_iterable(PAIRS), *TEXT_NAMES, *LABELS, *RESULTS}
Record = dict[str, Any]
FILES = resources.files("unmask.workflows.auditing") / "page"
PLAYGROUND = resources.files("unmask.serving") / "page"
SHARED = ("dom.js", "examples.js")
"""Modules of the playground that the page contains, in the order in which they refer to each other."""


def other_columns(
    task: RowTask, sources: Sequence[Source], rows: Sequence[Row], *, columns: Mapping[str, str], kind: str | None
) -> list[Record]:
    """Return the columns of rows beside texts and labels, read again from where the rows are from.

    Args:
        task: the task that the rows were read for.
        sources: where the rows are from.
        rows: the rows.
        columns, kind: as in `read_rows`.
    """
    texts = {name: header for name, header in columns.items() if name in TEXTS}
    read = {(row.file, row.line): row for row in read_rows(sources, columns=texts, kind=kind, gold=False)}
    wanted = Wanted.of(columns, task.fields)
    cells: list[Mapping[str, Any]] = [getattr(read[row.file, row.line], "source", {}) for row in rows]
    renamed = _renamed(dict.fromkeys(chain.from_iterable(cells)))
    used: dict[tuple[str, ...], set[str]] = {}
    others = []
    for row, source in zip(rows, cells, strict=True):
        names = tuple(source)
        if names not in used:
            used[names] = _used(wanted, names, row)
        others.append({renamed[name]: value for name, value in source.items() if name not in used[names]})
    return others


def text_records(
    rows: Sequence[Row], others: Sequence[Record], audited: Sequence[Audited], *, several: bool
) -> list[Record]:
    """Return texts as records, the first to look at first.

    Args:
        rows: the texts with their labels.
        others: the other columns of each.
        audited: what the audit says about each.
        several: whether a text may have several labels, which are then a list.
    """
    records = []
    for row, other, example in sorted(zip(rows, others, audited, strict=True), key=lambda each: each[2].rank):
        given, suggested = (list(labels) if several else labels[0] for labels in (example.given, example.suggested))
        texts = {name: row.values[name] for name in TEXTS if name in row.values}
        results = _results(rows, row, example, given, suggested)
        records.append({**texts, "label": given, **other, **results})
    return records


def sentence_records(sentences: Sequence[TaggedSentence], audited: Sequence[Audited]) -> list[Record]:
    """Return sentences as records, the first to look at first."""
    records = []
    for sentence, example in sorted(zip(sentences, audited, strict=True), key=lambda pair: pair[1].rank):
        given, suggested = list(example.given), list(example.suggested)
        results = _results(sentences, sentence, example, given, suggested)
        records.append({"words": sentence.words, "tags": given, **results})
    return records


def write_records(suffix: str, records: Sequence[Record]) -> bytes:
    """Return the file of records; in tables, lists are written in JSON.

    Raises:
        UserError: the format is TSV, and a cell contains a tab or a line break.
    """
    if suffix in TABLES:
        records = [{name: _cell(value) for name, value in record.items()} for record in records]
    return write_rows(suffix, records)


def write_words(sentences: Sequence[TaggedSentence], audited: Sequence[Audited]) -> bytes:
    """Return words in columns, in the order of their file: word, suggested tag, probability, rank of its sentence, tag.

    Raises:
        UserError: a word cannot be written in a column.
    """
    lines: list[str] = []
    document: tuple[str, int | None] = ("", None)
    for sentence, example in zip(sentences, audited, strict=True):
        if sentence.document is not None and (sentence.file, sentence.document) != document:
            lines.append("\t".join([DOCUMENT, NONE, NONE, NONE, "O"]) + "\n\n")
        document = sentence.file, sentence.document
        probability = NONE if example.probability is None else f"{example.probability:.4f}"
        cells = [
            "\t".join([other if number in example.wrong else NONE, probability, str(example.rank), tag])
            for number, (tag, other) in enumerate(zip(example.given, example.suggested, strict=True))
        ]
        lines.append(write_columns(sentence, cells))
    return "".join(lines).encode()


def audit_page(kind: str, ranking: Ranking, records: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the page.

    Args:
        kind: the task.
        ranking: the audit.
        records: all examples in the order of their ranks; see `corrections.text_records` and `sentence_records`.
        name: name of the file that it writes.
    """
    style = (FILES / "audit.css").read_text(encoding="utf8")
    suspects = sum(example.is_suspect for example in ranking.examples)
    field = "tags" if kind == "token-classification" else "label"
    # each as JSON without its labels, which begin as `given`: JavaScript would round large numbers in other columns
    rest = [msgspec.json.encode({key: record[key] for key in record if key != field}).decode() for record in records]
    content = {"kind": kind, "labels": ranking.labels, "suspects": suspects, "name": name, "records": rest}
    data = msgspec.json.encode(content).decode().replace("<", "\\u003c")  # ends no element
    title = "Labels to look at"
    about = (
        f"{counted(suspects, 'example')} of {len(records):,}. The classifier agrees with {100 * ranking.agreement:.1f} "
        f"% of all labels; the estimated share of wrong ones is {100 * ranking.noise:.1f} %."
    )
    body = f"""<header>
<h1>{title}</h1>
<p>{escape(about)} Choose the right label of each; one that is right stays as it is.</p>
<div class="bar"><span id="count" role="status"></span><button id="save" type="button">Save the file</button></div>
</header>
<main id="examples"></main>
<script type="application/json" id="data">{data}</script>"""
    return html_page(title, style, body, script=_script())


def _used(wanted: Wanted, names: Sequence[str], row: Row) -> set[str]:
    """Return the columns, of those of a row, from which its texts and labels were read."""
    numbered = wanted.numbered(row.file)
    if numbered is None and all(name.isdecimal() for name in names):  # a published format without a header
        return {names[index] for index in wanted.fields.headerless.indices.values()}
    selected = numbered or wanted.named(names, row.file, row.line)
    return {names[index] for index in (*selected.indices.values(), *selected.indicators.values())}


def _renamed(names: Iterable[str]) -> dict[str, str]:
    """Return what columns are named in a file of corrections: no two alike, and none as what is read from it."""
    renamed = {name: name for name in names}
    taken = set(renamed)
    for name in renamed:
        if _is_read(name):
            renamed[name] = free_name(f"input_{name}", "input_", taken)  # the input may be of an earlier audit
            taken.add(renamed[name])
    return renamed


def _is_read(name: str) -> bool:
    """Return whether a column would be read as a text or a label, or is named as a result."""
    name = name.strip()  # as readers do
    return name in _READ or name.startswith((PROBABILITY, VOTE)) or NAMED.fullmatch(name) is not None


def _results(examples: Sequence[Any], example: Any, audited: Audited, given: Any, suggested: Any) -> Record:
    """Return what is added to an example; see `RESULTS`."""
    equal = None if audited.equal is None else examples[audited.equal]
    return {
        "given": given,
        "suggested": suggested if audited.wrong else None,
        "probability": None if audited.probability is None else round(audited.probability, 4),
        "rank": audited.rank,
        "source": f"{example.file}:{example.line}",
        "equal_to": equal and f"{equal.file}:{equal.line}",
    }


def _cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def _script() -> str:
    """Return the script: a page without a server cannot import modules, so they are joined."""
    files = (*(PLAYGROUND / file for file in SHARED), FILES / "audit.js")
    joined = "\n".join(file.read_text(encoding="utf8") for file in files)
    return '"use strict";\n' + re.sub(r"^(import .*\n|export )", "", joined, flags=re.MULTILINE)
