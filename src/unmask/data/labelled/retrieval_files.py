"""Collections for search in BEIR's layout, and runs of trec_eval: what a system ranks for each query.

Input: a directory with corpus.jsonl (`_id` or `id`, `text`, maybe `title`), queries.jsonl, and the judgments
in qrels/SPLIT.tsv: a header, then `query-id`, `corpus-id`, `score` (Thakur et al. 2021), or without a header the four
columns of trec_eval, divided by spaces: query, iteration, document, score. Files may be compressed. A run has six
columns, divided by spaces: query, `Q0`, document, rank, score, name of the system. Output: a `Collection`,
whose documents are read from the file whenever they are needed, so that it does not have to fit into memory; and
rankings, by the numbers of documents.

Only judged queries are searched. The text of a document is its title and its text, with a space in between, that of a
query is without a title, as in BEIR.
A document with the id and the text of a query, with or without its title (as in ArguAna and Quora), is the query
itself, and is not ranked for it, unless it is judged relevant. BEIR leaves out all documents with the id of the query,
whatever their texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unmask.data.labelled.json_file import Place
from unmask.data.text.files import COMPRESSED, decode_line, display_name, read_text_lines, split_part
from unmask.metrics.retrieval import in_order
from unmask.support.durable import replace_file
from unmask.support.errors import ShareNote, UserError, counted

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
LAYOUT = f"a collection is a directory with {CORPUS}, {QUERIES} and {QRELS}/*.tsv"
IDS = ("_id", "id")
"""Keys of the id of a document or query, of which the first that is there is read; BEIR's own is `_id`."""
HEADER = ("query-id", "corpus-id", "score")
TREC = 4
"""Number of columns of trec_eval's judgments."""
GRADE = r"-?[0-9]{1,9}"
SPLIT = "test"
"""Split that is read if none is named."""
ABSENT = -1
"""Number of a document that a collection lacks."""


class Record(NamedTuple):
    """A document or a query: its line, its id, its title, if any, and the text after it."""

    line: int
    name: str
    title: str
    body: str

    @property
    def text(self) -> str:
        """The title and the text."""
        return f"{self.title} {self.body}".strip()


class Judgments(NamedTuple):
    """The judged documents of a query: their numbers (or `ABSENT`) and their grades, (judged,) int64 each."""

    documents: np.ndarray
    grades: np.ndarray


class Ranking(NamedTuple):
    """The documents that a system ranks for a query: their numbers, (documents,) int64, and scores, float32.

    They are in the order in which trec_eval reads them, the best first.
    """

    documents: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Collection:
    """Documents, queries, and judgments of which documents are relevant for a query.

    Attributes:
        corpus: the file of the documents.
        judgments_file: the file of the judgments.
        ids: the id of each document, in the order of the file.
        query_ids, queries: the ids and the texts of the queries with a relevant document.
        judgments: those of each query.
        identical: for each query the number of the document that is the query itself; `ABSENT`: none.
        notes: what was left out, one line each.
    """

    corpus: Path
    judgments_file: Path
    ids: Sequence[str]
    query_ids: Sequence[str]
    queries: Sequence[str]
    judgments: Sequence[Judgments]
    identical: Sequence[int]
    notes: tuple[str, ...]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each document by its id."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def positions(self) -> np.ndarray:
        """The position of each document's id among all sorted ids, (documents,)."""
        positions = np.empty(len(self.ids), np.int64)
        positions[sorted(range(len(self.ids)), key=self.ids.__getitem__)] = np.arange(len(self.ids))
        return positions

    def texts(self) -> Iterator[str]:
        """Yield the text of each document, in the order of `ids`."""
        return (record.text for record in _records(self.corpus))

    def texts_of(self, documents: set[int]) -> dict[int, str]:
        """Return the texts of some documents by their numbers."""
        return {number: text for number, text in enumerate(self.texts()) if number in documents}

    def rank(self, query: int, documents: np.ndarray, scores: np.ndarray) -> Ranking:
        """Return documents that a system found for a query as a ranking, without the query itself.

        Args:
            query: number of the query.
            documents: numbers of the documents, each once.
            scores: their scores, the higher, the better.
        """
        others = documents != self.identical[query]
        documents, scores = documents[others].astype(np.int64), scores[others].astype(np.float32)
        order = in_order(scores, self.positions[documents])
        return Ranking(documents[order], scores[order])

    def graded(self, query: int, ranking: Ranking) -> np.ndarray:
        """Return the grade of each ranked document, 0 for those without a judgment, (documents,)."""
        known = dict(zip(*(column.tolist() for column in self.judgments[query]), strict=True))
        return np.array([known.get(document, 0) for document in ranking.documents.tolist()], np.int64)


def find_collection(path: object) -> Path | None:
    """Return the directory of a collection that a path names, `DIRECTORY` or `DIRECTORY#SPLIT`; None: it is none."""
    if not isinstance(path, str | Path):
        return None
    directory, _ = split_part(path)
    return directory if directory.is_dir() and _named(directory, CORPUS) else None


def collection_files(path: str | Path) -> list[Path]:
    """Return the files of a collection, those of all its splits."""
    directory, _ = split_part(path)
    named = (_named(directory, name) for name in (CORPUS, QUERIES))
    return [*filter(None, named), *(directory / QRELS).glob("*")]


def no_collection(path: str | Path) -> UserError:
    """Return the error that a path names no collection."""
    directory, _ = split_part(path)
    what = "is no collection for search" if directory.exists() else "does not exist"
    return UserError(what, file=directory, remedy=LAYOUT)


def read_collection(path: str | Path) -> Collection:
    """Read a collection; the documents themselves are only counted and compared.

    Args:
        path: the directory, or `DIRECTORY#SPLIT` for the judgments in qrels/SPLIT.tsv; by default those of `SPLIT`, or
            the only ones.

    Raises:
        UserError: a file is missing or malformed; an id is missing, or is twice; a query is empty; or no document is
            relevant.
    """
    directory, split = split_part(path)
    corpus, queries = (_find(directory, name) for name in (CORPUS, QUERIES))
    judgments_file = _qrels(directory, split)
    texts = {record.name: (record.line, record.body.strip()) for record in _unique(queries)}
    judged = _judgments(judgments_file, texts, queries)
    ids, identical, notes = _scan(corpus, {name: texts[name][1] for name in judged})
    numbers = {name: number for number, name in enumerate(ids)}
    judgments = {name: _numbered(documents, numbers) for name, documents in judged.items()}
    searched = [name for name in judged if (judgments[name].grades > 0).any()]
    if not searched:
        raise UserError("no document is relevant for a query: there is no score above 0", file=judgments_file)
    absent = [(line, name) for of in judged.values() for name, (_, line) in of.items() if name not in numbers]
    if not any((judgments[name].documents[judgments[name].grades > 0] != ABSENT).any() for name in searched):
        line, name = absent[0]
        raise UserError(
            f"there is no document '{name}' in {corpus.name}, nor any other relevant one",
            file=judgments_file,
            line=line,
            remedy="are these the judgments of another collection?",
        )
    if absent:  # as in ArguAna; trec_eval counts them as not found, too
        first = f"{judgments_file.name}:{absent[0][0]}"
        what = f"judged documents are not in {corpus.name} and are counted as not found ({first})"
        notes.append(ShareNote(len(absent), sum(map(len, judged.values())), what))
    if without := len(judged) - len(searched):
        notes.append(ShareNote(without, len(judged), "judged queries have no relevant document and are not searched"))
    if others := len(texts) - len(judged):
        notes.append(ShareNote(others, len(texts), f"queries have no judgments in {judgments_file.name}"))
    identical = {name: number for name, number in identical.items() if not judged[name].get(name, (0, 0))[0] > 0}
    if itself := sum(name in identical for name in searched):
        notes.append(
            ShareNote(
                itself,
                len(searched),
                "queries are among the documents, too, and are omitted from the ranking for the same query",
            )
        )
    for name in searched:
        line, text = texts[name]
        if not text.strip():
            raise UserError(
                f"the query '{name}' is empty", file=queries, line=line, remedy="remove it and its judgments"
            )
    return Collection(
        corpus,
        judgments_file,
        ids,
        searched,
        [texts[name][1] for name in searched],
        [judgments[name] for name in searched],
        [identical.get(name, ABSENT) for name in searched],
        tuple(notes),
    )


def _named(directory: Path, name: str) -> Path | None:
    files = (directory / f"{name}{suffix}" for suffix in ("", *COMPRESSED))
    return next((file for file in files if file.is_file()), None)


def _find(directory: Path, name: str) -> Path:
    """Return a file of a collection, compressed or not."""
    if file := _named(directory, name):
        return file
    raise UserError(f"there is no {name}", file=directory, remedy=LAYOUT)


def _qrels(directory: Path, split: str) -> Path:
    """Return the file of the judgments of a split."""
    files = {
        file.name.removesuffix(ending): file
        for ending in (*(f".tsv{suffix}" for suffix in COMPRESSED), ".tsv")  # the last one counts, as in `_named`
        for file in sorted((directory / QRELS).glob(f"*{ending}"))
    }
    if not files:
        raise UserError("there are no judgments", file=directory / QRELS, remedy="add them, as qrels/test.tsv")
    name = split or (SPLIT if SPLIT in files else next(iter(files)))
    if name not in files or (not split and SPLIT not in files and len(files) > 1):
        which = f"there is no split '{split}'" if split else "which of the splits is meant?"
        raise UserError(
            which, file=directory / QRELS, remedy=f"name one of {', '.join(f'{directory}#{name}' for name in files)}"
        )
    return files[name]


def _records(path: Path) -> Iterator[Record]:
    """Yield the records of a file."""
    name = display_name(path)
    for number, line in read_text_lines(path):
        if not line.strip():
            continue
        record, place = decode_line(line, name, number), Place(f"{name}:{number}", form="BEIR's")
        key = next((record[key] for key in IDS if key in record), None)
        if isinstance(key, bool) or not isinstance(key, str | int) or not (identifier := str(key).strip()):
            place.refuse(
                f"'_id' is missing, or is no text; keys: {', '.join(record)[:200]}", "give the id that judgments name"
            )
        title = place.take(record, "title", str) if record.get("title") is not None else ""
        yield Record(number, identifier, title, place.take(record, "text", str))


def _unique(path: Path) -> Iterator[Record]:
    """Yield the records, after checking that no id is twice."""
    lines: dict[str, int] = {}
    for record in _records(path):
        line, name = record.line, record.name
        if (first := lines.setdefault(name, line)) != line:
            raise UserError(
                f"the id '{name}' is also that of line {first}", file=path, line=line, remedy="remove one of them"
            )
        yield record
    if not lines:
        raise UserError("there are no records", file=path)


def _scan(corpus: Path, queries: Mapping[str, str]) -> tuple[list[str], dict[str, int], list[str]]:
    """Return the ids of the documents, the numbers of those that are queries, by these, and notes."""
    ids, identical, hashes, empty = list[str](), dict[str, int](), set[int](), 0
    for record in _unique(corpus):
        text = record.text
        if (query := queries.get(record.name)) and query in (text, record.body.strip()):
            identical[record.name] = len(ids)
        ids.append(record.name)
        hashes.add(hash(text))
        empty += not text
    notes: list[str] = []
    if repeated := len(ids) - len(hashes):
        notes.append(ShareNote(repeated, len(ids), "documents have the text of an earlier one"))
    if empty:
        notes.append(ShareNote(empty, len(ids), "documents are empty"))
    return ids, identical, notes


def _judgments(path: Path, queries: Mapping[str, object], file: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Return the grade of each judged document, with its line, by query."""
    judged: dict[str, dict[str, tuple[int, int]]] = {}
    divider: str | None = "\t"
    for number, line in read_text_lines(path):
        cells = [cell.strip() for cell in line.split(divider)]
        if number == 1:
            if tuple(cells) == HEADER:
                continue
            cells = line.split()
            if len(cells) != TREC or not re.fullmatch(GRADE, cells[-1]):
                raise UserError(
                    f"the header is not {', '.join(HEADER)}, divided by tabs",
                    file=path,
                    line=1,
                    remedy="add it, or give the four columns of trec_eval",
                )
            divider = None
        if not line.strip():
            continue
        if len(cells) != (expected := len(HEADER) if divider else TREC):
            how = "tabs" if divider else "spaces"
            raise UserError(
                f"{counted(len(cells), 'cell')}, not {expected}", file=path, line=number, remedy=f"divide them by {how}"
            )
        query, document, score = cells[0], *cells[-2:]
        if not re.fullmatch(GRADE, score):
            raise UserError(
                f"the score '{score}' is no whole number", file=path, line=number, remedy="round it, as trec_eval needs"
            )
        if query not in queries:
            raise UserError(
                f"there is no query '{query}' in {file.name}", file=path, line=number, remedy="remove the line"
            )
        graded = judged.setdefault(query, {})
        if document in graded:
            raise UserError(
                f"'{document}' is judged twice for the query '{query}', first in line {graded[document][1]}",
                file=path,
                line=number,
                remedy="remove one of them",
            )
        graded[document] = int(score), number
    if not judged:
        raise UserError("there are no judgments", file=path)
    return judged


def _numbered(graded: Mapping[str, tuple[int, int]], numbers: Mapping[str, int]) -> Judgments:
    documents = np.array([numbers.get(name, ABSENT) for name in graded], np.int64)
    return Judgments(documents, np.array([grade for grade, _ in graded.values()], np.int64))


def read_run(path: str | Path, collection: Collection) -> tuple[list[Ranking], list[str]]:
    """Read a run of trec_eval; its ranks are not read, as trec_eval does not either.

    Returns:
        A ranking for each query of the collection, empty if there is none in the run, and notes.

    Raises:
        UserError: a line is malformed, or names a document that is not in the collection or that is there twice; or no
            query of the collection is in the run.
    """
    queries = {name: number for number, name in enumerate(collection.query_ids)}
    scores: dict[int, dict[int, float]] = {}
    others: set[str] = set()
    for number, line in read_text_lines(path):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 6:
            raise UserError(
                f"{counted(len(cells), 'column')}, not the 6 of a run: query, Q0, document, rank, score, name",
                file=path,
                line=number,
            )
        query, _, document, _, score, _ = cells
        if query not in queries:
            others.add(query)
            continue
        if document not in collection.numbers:
            raise UserError(f"there is no document '{document}' in {collection.corpus}", file=path, line=number)
        value = _score(score, path, number)
        ranked = scores.setdefault(queries[query], {})
        if collection.numbers[document] in ranked:
            raise UserError(f"'{document}' is there twice for the query '{query}'", file=path, line=number)
        ranked[collection.numbers[document]] = value
    if not scores:
        raise UserError("the run has no query of the collection", file=path, remedy="is it of another one?")
    notes: list[str] = []
    if others:
        notes.append(f"{display_name(path)}: {len(others):,} of its queries are not searched")
    if missing := len(queries) - len(scores):
        notes.append(ShareNote(missing, len(queries), f"queries are not in {display_name(path)}, and are counted as 0"))
    rankings = []
    for number in range(len(queries)):
        values_by_document = scores.get(number, {})
        documents = np.fromiter(values_by_document, np.int64, len(values_by_document))
        values = np.fromiter(values_by_document.values(), np.float32, len(values_by_document))
        rankings.append(collection.rank(number, documents, values))
    return rankings, notes


def _score(text: str, path: str | Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise UserError(f"the score '{text}' is no number", file=path, line=line)
    return value


def check_run(path: Path, collection: Collection) -> None:
    """Check that all queries and documents can be named in a run.

    Raises:
        UserError: an id has a space, which divides the columns.
    """
    names = (*collection.query_ids, *collection.ids)
    if spaced := next((name for name in names if len(name.split()) != 1), None):
        raise UserError(f"the id '{spaced}' has a space, so that it cannot be in a run", file=path)


def write_run(path: Path, collection: Collection, rankings: Sequence[Ranking], name: str) -> None:
    """Write rankings as a run of trec_eval.

    Args:
        path: the file; it is replaced.
        collection: what was searched; see `check_run`.
        rankings: one for each query.
        name: name of the system.
    """
    tag = re.sub(r"\s+", "-", name) or "unmask"
    lines = (
        f"{query} Q0 {collection.ids[document]} {rank} {score!r} {tag}\n"
        for query, ranking in zip(collection.query_ids, rankings, strict=True)
        for rank, (document, score) in enumerate(zip(*(column.tolist() for column in ranking), strict=True), 1)
    )
    replace_file(path, "".join(lines).encode())
