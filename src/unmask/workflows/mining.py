"""Hard negatives: for each query, documents that a model finds similar to it, though they do not belong to it.

Input: a model that makes vectors; pairs of texts that belong together, with further texts to search if there are any,
or a collection (`data.labelled.retrieval_files`), whose relevant documents are the positives. Output: triplets or
tuples, for `finetune embedding`, maybe with the scores that a cross-encoder gives to their texts, or graded pairs, for
`finetune ranking`.

The documents are searched exactly, in blocks, as in `inference.search`. Many that are most similar to a query are in
truth relevant, only nobody has said so. A document is therefore left out if its cosine is above that of the positive,
lowered by the margin: score > positive - margin * |positive| (Moreira et al. 2024, "NV-Retriever", TopK-PercPos). Of
those that remain, the most similar ones can be left out, too (`skip`). Both are as in `mine_hard_negatives` of
sentence-transformers, where they are called `relative_margin` and `range_min`: of several positives of a query, the
least similar one counts. Texts that equal the query or one of its positives, and empty ones, are never negatives.

A cross-encoder whose head is new learns nothing from hard negatives alone: its loss stays where it is. Texts at random
are negatives too, from which it learns first; in a step of pairs, those of the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.labelled.columns import MATCHES, Fields, as_columns
from unmask.data.labelled.labelled_file import Row, is_plain, read_rows
from unmask.data.labelled.negatives import SCORES
from unmask.data.labelled.retrieval_files import ABSENT, find_collection, read_collection
from unmask.data.labelled.table import Data, ExampleTable, Source, as_sources
from unmask.data.text.files import display_name
from unmask.inference.load import open_predictor
from unmask.inference.predictor import Predictor
from unmask.inference.search import Nearest, check_reranks, check_vectors, embed_blocks, embed_side, score_pairs
from unmask.inference.stream import check_out, summed
from unmask.support.choices import ColumnNames, Device, MinedRows, Precision, TextFormat, check_choice
from unmask.support.durable import only_writer, replace_file
from unmask.support.errors import ShareNote, UserError, check_count, counted, refuse_idle
from unmask.support.messages import argument
from unmask.tasks.prediction_tables import TABLES, check_cells, check_library, write_rows
from unmask.tasks.rows import texts_of
from unmask.tasks.text_pairs import without_labels
from unmask.tasks.unlabelled import describe_damaged, read_unlabeled
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display

MinedExample = dict[str, Any]
"""The texts of a row, its grade, or its scores (a list), by the names of their columns."""
MORE = 10
"""Number of candidates for each negative, as some are left out."""
SPARE = 4
"""Number of further texts that are drawn, as some are no negatives."""


@dataclass(frozen=True)
class Searched:
    """What negatives are mined from.

    Attributes:
        queries: the queries, each once.
        positives: numbers of the documents that belong to each query.
        identical: for each query the number of the document that is the query itself (see `Collection`), or `ABSENT`.
        texts: returns the texts of all documents.
        number: number of these.
    """

    queries: Sequence[str]
    positives: Sequence[Sequence[int]]
    identical: Sequence[int]
    texts: Callable[[], Iterator[str]]
    number: int


def mine(
    model: str | Path,
    data: Data,
    *,
    out: str | Path | None,
    corpus: Data = (),
    rows: MinedRows = "triplets",
    negatives: int = 3,
    margin: float = 0.05,
    skip: int = 0,
    easy: int | None = None,
    teacher: str | Path | None = None,
    columns: ColumnNames | None = None,
    format: TextFormat | None = None,
    encoding: str | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: Precision = "float32",
    quiet: bool = False,
) -> list[MinedExample]:
    """Mine hard negatives: texts that a model finds similar to a query, though they do not belong to it.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, that makes vectors of texts.
        data: pairs of texts that belong together: .tsv, .csv or .jsonl files, in Python also examples in memory; or a
            directory in BEIR's layout, such as DIRECTORY#train.
        out: file to write the rows to: .jsonl, .csv, .tsv, .parquet or .xlsx; in Python None: they are only returned.
        corpus: further texts that may be negatives, with a column of texts, or .txt; the second texts of all pairs are
            searched in any case.
        rows: triplets of anchor, positive and negative, or tuples of anchor, positive and all negatives (negative_1,
            negative_2, …), for finetune embedding; or graded, pairs of query and passage with the grade 1 or 0, for
            finetune ranking.
        negatives: number of negatives for each query.
        margin: share of the positive's cosine by which that of a negative has to be lower, 0 to 1.
        skip: number of the most similar of these that are left out, too, as they may belong to the query.
        easy: with graded rows, number of texts at random that are negatives of each query too; by default 1.
        teacher: with tuples, a cross-encoder; its scores of the positive and of each negative are written beside them
            (teacher_scores), and finetune embedding, sparse and late-interaction learn from them.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        quiet: print only results and errors.

    Returns:
        The rows, by the names of their columns.

    Raises:
        UserError: the data is malformed, the model makes no vectors, the teacher is no cross-encoder, or no negative is
            found.
    """
    check_choice("rows", rows, MinedRows)
    _check_numbers(negatives, margin, skip, easy or 0)
    if rows != "graded":
        reason = f"without {argument('rows', 'graded')}: the texts of the other rows of a step are negatives"
        refuse_idle(reason, easy=easy is not None)
    if rows != "tuples":
        refuse_idle(
            f"without {argument('rows', 'tuples')}, with which its scores are written", teacher=teacher is not None
        )
    path = None if out is None else Path(out)
    sources, more = as_sources(data, encoding), as_sources(corpus, encoding)
    if path is not None:
        _check_suffix(path)
        check_out(path, [source for source in (*sources, *more) if not isinstance(source, ExampleTable)])
    display, notes = Display(quiet=quiet), list[str]()
    searched = _read(sources, more, as_columns(columns), format, encoding, notes)
    if path is not None:  # any text may be written
        check_cells(path.suffix, chain(searched.queries, searched.texts()))
    machine = choose_machine(device, precision)
    predictor = open_predictor(model, machine, display, allow_pickle=allow_pickle)
    reader = None if teacher is None else open_predictor(teacher, machine, display, allow_pickle=allow_pickle)
    if reader is not None:
        check_reranks(reader)
    with only_writer(path):
        mined = find_negatives(predictor, searched, negatives, margin, skip, notes)
        if not any(mined):
            raise UserError(
                "no negative was found",
                file=display_name(sources[0]),
                remedy=f"give more texts ({argument('corpus')}), or lower {argument('margin')} or {argument('skip')}",
            )
        if rows == "tuples" and not any(len(of) == negatives for of in mined):
            raise UserError(
                f"no query has {counted(negatives, 'negative')}",
                file=display_name(sources[0]),
                remedy=f"lower {argument('negatives')}, or pass {argument('rows', 'triplets')}",
            )
        if rows == "graded":
            drawn = draw_easy(searched, mined, 1 if easy is None else easy)
            mined = [[*hard, *random] for hard, random in zip(mined, drawn, strict=True)]
        table = _rows(searched, mined, rows, negatives)
        if reader is not None:
            add_scores(reader, table, notes)
        if path is not None:
            replace_file(path, write_rows(path.suffix, table))
    if path is not None:
        notes.append(f"{counted(len(table), 'row')}: {path}")
    display.say(*notes)
    return table


def find_negatives(
    predictor: Predictor, searched: Searched, number: int, margin: float, skip: int, notes: list[str]
) -> list[list[int]]:
    """Return the numbers of the negatives of each query, the most similar first; see the module.

    Args:
        predictor: the model.
        searched: queries, their positives, and documents.
        number: maximum number of negatives of a query.
        margin: see `mine`.
        skip: see `mine`.
        notes: receives notes.

    Raises:
        UserError: the model makes no vectors, or they are not numbers.
    """
    notes += check_vectors(predictor)
    own_notes = list[str]()
    queries = embed_side(predictor, searched.queries, "query", own_notes)
    most = max(map(len, searched.positives))
    nearest = Nearest(queries, skip + MORE * number + most)
    pairs = np.array([(of, query) for query, positives in enumerate(searched.positives) for of in positives])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]  # (pairs, 2): document and query
    scores, start, document_notes = np.empty(len(pairs), np.float32), 0, list[str]()
    for block in embed_blocks(predictor, searched.texts(), document_notes):
        nearest.add(block)
        inside = slice(*np.searchsorted(pairs[:, 0], (start, start + len(block))))
        documents, numbers = pairs[inside].T
        scores[inside] = (block[documents - start] * queries[numbers]).sum(1)
        start += len(block)
    notes += [f"queries: {note}" for note in own_notes]
    notes += [f"documents: {note}" for note in summed(document_notes)]
    least = np.full(len(queries), np.inf, np.float32)  # the score of the least similar positive
    np.minimum.at(least, pairs[:, 1], scores)
    highest = least - margin * np.abs(least)  # (queries,)
    candidates = [[*zip(*(column.tolist() for column in best), strict=True)] for best in nearest.results()]
    texts = _texts(searched, {document for best in candidates for document, _ in best} | set(pairs[:, 0].tolist()))
    mined, above, total = list[list[int]](), 0, 0
    for query, (best, positives) in enumerate(zip(candidates, searched.positives, strict=True)):
        foreign = {*_foreign(searched, query, [document for document, _ in best], positives, texts)}
        others = [(document, score) for document, score in best if document in foreign]
        below = _distinct([document for document, score in others if score <= highest[query]], texts)
        above, total = above + sum(score > highest[query] for _, score in others), total + len(others)
        mined.append(below[skip : skip + number])
    if above:
        notes.append(ShareNote(above, total, "candidates are nearly as similar as the positive, and were left out"))
    if short := sum(len(numbers) < number for numbers in mined):
        notes.append(ShareNote(short, len(mined), f"queries have fewer than {counted(number, 'negative')}"))
    return mined


def draw_easy(searched: Searched, mined: Sequence[Sequence[int]], number: int) -> list[list[int]]:
    """Return the numbers of documents at random, for each query that has negatives, of which none belongs to it.

    Args:
        searched: queries, their positives, and documents.
        mined: the negatives of each query, which are not drawn.
        number: maximum number for a query, of `SPARE` more that are tried.
    """
    tried = np.random.default_rng(0).integers(searched.number, size=(len(mined), number + SPARE)).tolist()
    texts = _texts(searched, set(chain(*tried, *mined, *searched.positives)))
    drawn = list[list[int]]()
    for query, (candidates, hard, positives) in enumerate(zip(tried, mined, searched.positives, strict=True)):
        foreign = _foreign(searched, query, candidates, (*hard, *positives), texts)
        drawn.append(_distinct(foreign, texts)[:number] if hard else [])
    return drawn


def add_scores(teacher: Predictor, tuples: Sequence[MinedExample], notes: list[str]) -> None:
    """Add the scores of a cross-encoder to tuples: a list, of the positive and of each negative."""
    passages = [[text for name, text in row.items() if name != "anchor"] for row in tuples]
    pairs = [(row["anchor"], text) for row, texts in zip(tuples, passages, strict=True) for text in texts]
    own_notes = list[str]()
    scores = iter(score_pairs(teacher, pairs, own_notes))
    notes += [f"teacher: {note}" for note in summed(own_notes)]
    for row, texts in zip(tuples, passages, strict=True):
        row[SCORES] = [next(scores) for _ in texts]


def _check_numbers(negatives: int, margin: float, skip: int, easy: int) -> None:
    check_count("negatives", negatives, 1, 1000)
    check_count("skip", skip, 0, 10_000)
    check_count("easy", easy, 0, 1000)
    if not 0 <= margin <= 1:
        raise UserError(f"{argument('margin', margin)}: not a number from 0 to 1")


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".jsonl", *TABLES):
        raise UserError(
            f"rows are not written as {path.suffix or 'a file without a suffix'}",
            file=path,
            remedy=f"use {', '.join(('.jsonl', *TABLES))}",
        )
    check_library(path)


def _read(
    sources: Sequence[Source],
    corpus: Sequence[Source],
    columns: Mapping[str, str],
    format: TextFormat | None,
    encoding: str | None,
    notes: list[str],
) -> Searched:
    """Return what is searched; see `mine`."""
    if any(map(find_collection, sources)):
        name = display_name(sources[0])
        if len(sources) > 1:
            raise UserError("a collection is mined alone", file=name, remedy="give nothing else")
        refuse_idle(f"on the collection {name}", corpus=corpus, columns=columns, format=format, encoding=encoding)
        collection = read_collection(str(sources[0]))
        notes += collection.notes
        judged = zip(collection.queries, collection.judgments, collection.identical, strict=True)
        relevant = [
            (query, of.documents[(of.grades > 0) & (of.documents != ABSENT)].tolist(), itself)
            for query, of, itself in judged
        ]
        relevant = [row for row in relevant if row[1]]
        return Searched(
            [query for query, _, _ in relevant],
            [numbers for _, numbers, _ in relevant],
            [itself for _, _, itself in relevant],
            collection.texts,
            len(collection.ids),
        )
    pairs = _pairs(sources, columns, format, notes)
    if not pairs or "text_b" not in pairs[0].values:
        raise UserError(
            "there are no pairs of texts",
            file=display_name(sources[0]) if sources else None,
            remedy=f"give the second text: a column text_b, or {argument('columns')} text_b=NAME",
        )
    documents: dict[str, int] = {}
    queries: dict[str, dict[int, None]] = {}
    for row in pairs:
        number = documents.setdefault(row.values["text_b"], len(documents))
        queries.setdefault(row.values["text"], {})[number] = None
    for row in read_unlabeled(corpus, columns={}, kind=None, notes=notes) if corpus else ():
        if "text_b" in row.values:
            raise UserError("the texts of the corpus are pairs", file=row.file, line=row.line, remedy="name one column")
        documents.setdefault(row.values["text"], len(documents))
    positives = [[*numbers] for numbers in queries.values()]
    return Searched([*queries], positives, [ABSENT] * len(queries), lambda: iter(documents), len(documents))


def _pairs(
    sources: Sequence[Source], columns: Mapping[str, str], format: TextFormat | None, notes: list[str]
) -> list[Row]:
    """Return the pairs that belong together.

    Raises:
        UserError: their labels differ; see `without_labels`.
    """
    if any(is_plain(source, format) for source in sources):  # single texts
        return read_unlabeled(sources, columns=columns, kind=format, notes=notes)
    rows = read_rows(sources, columns=columns, kind=format, fields=Fields(MATCHES, optional=True), notes=notes)
    notes += describe_damaged(rows, texts_of)
    return without_labels(rows)


def _texts(searched: Searched, numbers: set[int]) -> dict[int, str]:
    return {number: text for number, text in enumerate(searched.texts()) if number in numbers}


def _foreign(
    searched: Searched, query: int, documents: Sequence[int], known: Sequence[int], texts: Mapping[int, str]
) -> list[int]:
    """Return the documents that have a text, are not the query itself, and equal neither it nor a `known` one."""
    excluded = {searched.queries[query], *(texts[document] for document in known)}
    return [
        document
        for document in documents
        if document != searched.identical[query] and texts[document].strip() and texts[document] not in excluded
    ]


def _distinct(documents: Sequence[int], texts: Mapping[int, str]) -> list[int]:
    """Return documents without those that have the text of an earlier one."""
    first: dict[str, int] = {}
    for number in documents:
        first.setdefault(texts[number], number)
    return [*first.values()]


def _rows(searched: Searched, mined: Sequence[Sequence[int]], rows: MinedRows, number: int) -> list[MinedExample]:
    """Return the rows; a query without negatives has none, nor has one with fewer than `number` a tuple."""
    least = number if rows == "tuples" else 1  # a table has the same columns in every row
    used = [query for query, negatives in enumerate(mined) if len(negatives) >= least]
    texts = _texts(searched, {number for query in used for number in (*searched.positives[query], *mined[query])})
    if rows == "triplets":
        return [
            {"anchor": searched.queries[query], "positive": texts[positive], "negative": texts[negative]}
            for query in used
            for positive in searched.positives[query]
            for negative in mined[query]
        ]
    if rows == "tuples":
        return [
            {
                "anchor": searched.queries[query],
                "positive": texts[positive],
                **{f"negative_{place}": texts[negative] for place, negative in enumerate(mined[query], 1)},
            }
            for query in used
            for positive in searched.positives[query]
        ]
    return [
        {"query": searched.queries[query], "passage": texts[number], "grade": grade}
        for query in used
        for grade, numbers in ((1, searched.positives[query]), (0, mined[query]))
        for number in numbers
    ]
