"""Evaluation of search on a collection: of models that make vectors, of BM25, of a run of another system, of rerankers.

Input: a collection in BEIR's layout. Output: metrics as trec_eval defines them, with intervals over queries, the time
that a query takes, and a run file. A reranker orders the best documents of a first stage, which is one of the others.
The rankings of two systems can be fused.

Vectors are compared exactly. The documents are read and embedded in blocks, so that neither their texts nor their
vectors need to fit into memory. Times are of a single measurement, for all queries together, and those of vectors
include the encoding of the queries; the time before the first query, of embedding or indexing the documents, is another
number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.labelled.retrieval_files import Collection, Ranking, check_run, read_collection, read_run, write_run
from unmask.inference.predictor import Predictor
from unmask.inference.search import (
    Bm25,
    Nearest,
    NearestSparse,
    NearestTokens,
    check_vectors,
    embed_blocks,
    embed_side,
    embed_sparse,
    embed_sparse_blocks,
    embed_token_blocks,
    score_pairs,
)
from unmask.inference.stream import summed
from unmask.metrics.intervals import Measure, differences, intervals, measure_all
from unmask.metrics.retrieval import measure_queries, query_metrics
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument

BM25 = "bm25"
"""Name of BM25 in place of a model."""
DEPTH = 1000
"""Number of documents that are ranked for each query, as in BEIR."""
RERANKED = 100
"""Number of documents that are reranked for each query."""
DEPTHS = (10, 20, 50, 100, 200, 500)
"""Smaller numbers of documents for which quality and time of a reranker are told, too."""
FUSED = 60
"""The constant of reciprocal rank fusion (Cormack et al. 2009, section 3)."""


@dataclass(frozen=True)
class Ranked:
    """What a system ranks for the queries of a collection.

    Attributes:
        rankings: one for each query.
        seconds: the time of all queries; None: unknown, as the rankings are those of a file.
        indexing: the time before the first query.
        notes: messages for the user.
        by_depth: of a reranker, metrics and milliseconds per query by the number of documents that are reranked.
    """

    rankings: Sequence[Ranking]
    seconds: float | None = None
    indexing: float = 0.0
    notes: tuple[str, ...] = ()
    by_depth: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def evaluate_retrieval(
    model: str | Path,
    data: str | Path,
    *,
    load: Callable[[str | Path], Predictor],
    against: str | Path | None = None,
    first_stage: str | Path | None = None,
    fuse_with: str | Path | None = None,
    depth: int | None = None,
    run_file: str | Path | None = None,
    dimensions: int | None = None,
) -> dict[str, Any]:
    """Evaluate a system on a collection; whatever can be checked is checked before anything is computed.

    Args:
        model: a model, `BM25`, or a run file. A cross-encoder reranks the first stage, and so does a model of late
            interaction, if there is one.
        data: the collection; see `read_collection`.
        load: opens a model.
        against: a second system, evaluated on the same queries.
        first_stage: likewise, but no cross-encoder.
        fuse_with: a system whose rankings are fused with those of `model`; see `fuse`.
        depth: number of documents that are ranked for each query; None: `DEPTH`, or `RERANKED`.
        run_file: run file to write.
        dimensions: number of first dimensions of vectors of texts that are compared; None: all.

    Returns:
        `{task, metrics, intervals, examples, documents, milliseconds_per_query, indexing_seconds, notes}`, with the
        metrics of `query_metrics` times 100; of a reranker, `by_depth` (see `Ranked`); with `against`, the `metrics`
        of the second system and the `differences` of `intervals.differences`.

    Raises:
        UserError: the collection is malformed, a model neither makes vectors nor reranks, a first stage is missing, it
            or `dimensions` has no effect, or an id cannot be in a run.
    """
    check_count("depth", depth)
    collection = read_collection(data)
    if run_file is not None:
        check_run(Path(run_file), collection)
    count = len(collection.queries)

    systems = [str(system) for system in (model, fuse_with, against) if system is not None]
    models = _open(load, systems, first_stage, dimensions)
    ranked_by = partial(_rank, collection, models, depth=depth)
    first = None if first_stage is None else ranked_by(first_stage, first=None)
    ranked = ranked_by(model, first=first)
    second = None if fuse_with is None else ranked_by(fuse_with, first=first)
    other = None if against is None else ranked_by(against, first=first)
    if second is not None:
        ranked = fuse(collection, ranked, second, depth or DEPTH)
    measure = measure_rankings(collection, ranked.rankings)
    notes = [*collection.notes, *ranked.notes]
    result: dict[str, Any] = {
        "task": "reranking" if ranked.by_depth else "retrieval",
        "metrics": measure_all(measure, count),
        "intervals": intervals(measure, count),
        "examples": count,
        "documents": len(collection.ids),
        **_times(ranked, count, notes),
    }
    if run_file is not None:
        write_run(Path(run_file), collection, ranked.rankings, Path(model).name)
        notes.append(f"{sum(len(ranking.documents) for ranking in ranked.rankings):,} ranked documents: {run_file}")
    if ranked.by_depth:
        result["by_depth"] = ranked.by_depth
    if other is not None:
        other_measure = measure_rankings(collection, other.rankings)
        result["against"] = {
            "model": str(against),
            "metrics": measure_all(other_measure, count),
            "differences": differences(measure, other_measure, count),
        }
    return result | {"notes": [*map(str, notes)]}


def _open(
    load: Callable[[str | Path], Predictor],
    systems: Sequence[str],
    first_stage: str | Path | None,
    dimensions: int | None,
) -> dict[str, Predictor]:
    """Return the models among `systems` and the first stage of their rerankers, by their names.

    The other arguments are those of `evaluate_retrieval`.
    """
    every = dict.fromkeys([*systems, *([] if first_stage is None else [str(first_stage)])])
    models = {name: load(name) for name in every if name != BM25 and not is_run(name)}
    tasks = {name: predictor.model.task for name, predictor in models.items()}
    readers = {name for name, task in tasks.items() if task is not None and task.reranks}
    if readers and (first_stage is None or str(first_stage) in readers):
        raise UserError(
            "a cross-encoder orders documents that another system has found",
            remedy=f"pass {argument('first_stage', BM25)}, a run file, or a model that makes vectors",
        )
    late = {name for name, task in tasks.items() if task is not None and task.vectors.tokens is not None}
    if not {*systems} & (readers | late):
        refuse_idle(": no model reranks what it finds", first_stage=first_stage)
    sparse = {name for name, task in tasks.items() if task is not None and task.vectors.sparse}
    embedders = models.keys() - readers - late - sparse
    for name in embedders:
        check_vectors(models[name])
    if not embedders:
        refuse_idle(": no model makes vectors of texts", dimensions=dimensions)
    return models | {name: models[name].with_dimensions(dimensions) for name in embedders}


def _rank(
    collection: Collection,
    models: Mapping[str, Predictor],
    system: str | Path,
    *,
    depth: int | None,
    first: Ranked | None,
) -> Ranked:
    """Return what a system, which may be one of `models`, ranks; see `evaluate_retrieval`."""
    if is_run(system):
        rankings, notes = read_run(system, collection)
        return Ranked([cut(ranking, depth) for ranking in rankings], notes=tuple(notes))
    if str(system) == BM25:
        return rank_by_bm25(collection, depth or DEPTH)
    predictor = models[str(system)]
    task = predictor.model.task
    if task is not None and task.vectors.sparse:
        return rank_by_sparse_vectors(predictor, collection, depth or DEPTH)
    if task is not None and task.vectors.tokens is not None:
        if first is None:
            return rank_by_token_vectors(predictor, collection, depth or DEPTH)
        return rerank(partial(score_by_tokens, predictor, {}), collection, first, depth or RERANKED)
    if first is not None and task is not None and task.reranks:
        return rerank(partial(score_by_reading, predictor), collection, first, depth or RERANKED)
    return rank_by_vectors(predictor, collection, depth or DEPTH)


def is_run(system: str | Path) -> bool:
    """Return whether a system is a run file."""
    return Path(system).is_file()


def rank_by_bm25(collection: Collection, depth: int) -> Ranked:
    """Rank documents by BM25."""
    start = time.perf_counter()
    index = Bm25(collection.texts())
    middle = time.perf_counter()
    results = list(index.search(collection.queries, depth + 1))
    return _ranked(collection, results, depth, time.perf_counter() - middle, middle - start, ())


def rank_by_vectors(predictor: Predictor, collection: Collection, depth: int) -> Ranked:
    """Rank documents by the cosines of their vectors, or their products if the model states this; see `embed_side`.

    Raises:
        UserError: the model makes no vectors, or they are not numbers.
    """
    all_notes, query_notes, document_notes = [*check_vectors(predictor)], list[str](), list[str]()
    start = time.perf_counter()
    queries = embed_side(predictor, collection.queries, "query", query_notes)
    encoding = time.perf_counter() - start
    all_notes += [f"queries: {note}" for note in query_notes]
    nearest, start = Nearest(queries, depth + 1), time.perf_counter()
    for vectors in embed_blocks(predictor, collection.texts(), document_notes):
        nearest.add(vectors)
    indexing = time.perf_counter() - start - nearest.seconds
    all_notes += [f"documents: {note}" for note in summed(document_notes)]
    seconds = encoding + nearest.seconds
    return _ranked(collection, list(nearest.results()), depth, seconds, indexing, tuple(all_notes))


def rank_by_sparse_vectors(predictor: Predictor, collection: Collection, depth: int) -> Ranked:
    """Rank documents by the products of their sparse vectors with those of queries, exactly.

    Raises:
        UserError: the vectors are not numbers.
    """
    start, query_notes, document_notes = time.perf_counter(), list[str](), list[str]()
    queries = embed_sparse(predictor, collection.queries, query_notes)
    encoding, nearest, start = time.perf_counter() - start, NearestSparse(queries, depth + 1), time.perf_counter()
    terms = 0
    for vectors in embed_sparse_blocks(predictor, collection.texts(), document_notes):
        terms += len(vectors.values)
        nearest.add(vectors)
    indexing = time.perf_counter() - start - nearest.seconds
    notes = [f"queries: {note}" for note in summed(query_notes)]
    notes += [f"documents: {note}" for note in summed(document_notes)]
    means = len(queries.values) / len(queries), terms / len(collection.ids)
    notes.append(f"tokens with a weight: {means[0]:,.0f} of a query, {means[1]:,.0f} of a document")
    return _ranked(collection, list(nearest.results()), depth, encoding + nearest.seconds, indexing, tuple(notes))


def rank_by_token_vectors(predictor: Predictor, collection: Collection, depth: int) -> Ranked:
    """Rank documents by late interaction with queries, exactly.

    Raises:
        UserError: the vectors are not numbers.
    """
    start, query_notes, document_notes = time.perf_counter(), list[str](), list[str]()
    queries = predictor.embed_tokens(collection.queries, prompt_name="query", notes=query_notes)
    encoding, nearest, start = time.perf_counter() - start, NearestTokens(queries, depth + 1), time.perf_counter()
    count = 0
    for vectors in embed_token_blocks(predictor, collection.texts(), document_notes):
        count += sum(map(len, vectors))
        nearest.add(vectors)
    indexing = time.perf_counter() - start - nearest.seconds
    notes = [f"queries: {note}" for note in query_notes] + [f"documents: {note}" for note in summed(document_notes)]
    means = sum(map(len, queries)) / len(queries), count / len(collection.ids)
    notes.append(f"vectors: {means[0]:,.0f} of a query, {means[1]:,.0f} of a document")
    return _ranked(collection, list(nearest.results()), depth, encoding + nearest.seconds, indexing, tuple(notes))


Pairs = Sequence[tuple[int, int]]
"""Numbers of a query and of a document of a collection."""


@dataclass
class PairScores:
    """The scores of queries with documents.

    Attributes:
        scores: those of each pair.
        seconds: the time of the queries.
        indexing: the time of the documents, if their vectors can be computed before the first query.
        notes: messages for the user; those that count texts are `ShareNote`s.
    """

    scores: Sequence[float]
    seconds: float
    indexing: float = 0.0
    notes: Sequence[str] = ()


def score_by_reading(
    predictor: Predictor, collection: Collection, texts: Mapping[int, str], pairs: Pairs
) -> PairScores:
    """Return the scores that a cross-encoder gives to pairs, given the texts of documents by their numbers."""
    start, notes = time.perf_counter(), list[str]()
    scores = score_pairs(predictor, ((collection.queries[query], texts[of]) for query, of in pairs), notes)
    return PairScores(scores, time.perf_counter() - start, notes=notes)


def score_by_tokens(
    predictor: Predictor,
    queries: dict[int, np.ndarray],
    collection: Collection,
    texts: Mapping[int, str],
    pairs: Pairs,
) -> PairScores:
    """Return the scores of pairs by late interaction, likewise; the vectors of documents are known before a query.

    `queries` are the vectors of queries, (tokens, width) each, that were computed before; receives further ones.
    """
    start, notes, document_notes = time.perf_counter(), list[str](), list[str]()
    if asked := sorted({query for query, _ in pairs} - queries.keys()):
        encoded = predictor.embed_tokens([collection.queries[of] for of in asked], prompt_name="query", notes=notes)
        queries |= zip(asked, encoded, strict=True)
    scores, seconds, indexing = np.empty(len(pairs), np.float32), time.perf_counter() - start, 0.0
    places: dict[int, list[int]] = {}
    for place, (_, document) in enumerate(pairs):
        places.setdefault(document, []).append(place)
    start, remaining = time.perf_counter(), iter(places.values())
    for block in embed_token_blocks(predictor, (texts[document] for document in places), document_notes):
        indexing += time.perf_counter() - start
        start = time.perf_counter()
        for tokens in block:  # (tokens, width)
            for place in next(remaining):
                scores[place] = (queries[pairs[place][0]] @ tokens.T).max(1).sum()
        seconds += time.perf_counter() - start
        start = time.perf_counter()
    notes = [f"queries: {note}" for note in notes]
    return PairScores(scores.tolist(), seconds, indexing, [*notes, *document_notes])


def rerank(
    score: Callable[[Collection, Mapping[int, str], Pairs], PairScores],
    collection: Collection,
    first: Ranked,
    depth: int,
) -> Ranked:
    """Order the first documents of rankings by the scores that another system gives to each with the query.

    Those of the lowest ranks come last, in steps of `DEPTHS`: so the metrics and the time of each number of documents
    are known, where the others keep their order.
    """
    texts = collection.texts_of({document for of in first.rankings for document in of.documents[:depth].tolist()})
    rankings = [cut(ranking, depth) for ranking in first.rankings]
    seconds, indexing, notes = first.seconds or 0.0, first.indexing, list[str]()
    by_depth = {"first stage": _described(collection, rankings, first.seconds)}
    scores: list[list[float]] = [[] for _ in rankings]
    for start, end in pairwise((0, *(number for number in DEPTHS if number < depth), depth)):
        pairs = [
            (query, document)
            for query, ranking in enumerate(rankings)
            for document in ranking.documents[start:end].tolist()
        ]
        scored = score(collection, texts, pairs)
        seconds, indexing = seconds + scored.seconds, indexing + scored.indexing
        notes += scored.notes
        for (query, _), value in zip(pairs, scored.scores, strict=True):
            scores[query].append(value)
        reranked = [
            collection.rank(query, ranking.documents[:end], np.array(scores[query], np.float32))
            for query, ranking in enumerate(rankings)
        ]
        whole = [
            Ranking(np.concatenate([best.documents, ranking.documents[end:]]), ranking.scores)
            for best, ranking in zip(reranked, rankings, strict=True)
        ]
        by_depth[f"{end} reranked"] = _described(collection, whole, seconds)
    if first.seconds is None:
        notes.append("milliseconds per query are those of reranking alone, as the first stage is a run file")
    return Ranked(reranked, seconds, indexing, (*first.notes, *summed(notes)), by_depth)


def fuse(collection: Collection, one: Ranked, other: Ranked, depth: int) -> Ranked:
    """Rank the documents of two systems by the sum of 1 / (`FUSED` + rank): reciprocal rank fusion.

    A document that a system does not rank gets nothing from it. The systems' scores, whose scales differ, are not read.
    """
    rankings = []
    for query, both in enumerate(zip(one.rankings, other.rankings, strict=True)):
        documents, places = np.unique(np.concatenate([of.documents for of in both]), return_inverse=True)
        shares = np.concatenate([1 / (FUSED + 1 + np.arange(len(of.documents))) for of in both])
        scores = np.bincount(places, shares, len(documents)).astype(np.float32)
        rankings.append(cut(collection.rank(query, documents, scores), depth))
    unknown = one.seconds is None or other.seconds is None
    seconds = None if unknown else (one.seconds or 0.0) + (other.seconds or 0.0)
    return Ranked(rankings, seconds, one.indexing + other.indexing, (*one.notes, *other.notes))


def _described(collection: Collection, rankings: Sequence[Ranking], seconds: float | None) -> dict[str, float]:
    """Return the metrics of rankings, with the milliseconds per query, if they are known."""
    count = len(rankings)
    times = {} if seconds is None else {"milliseconds_per_query": 1000 * seconds / count}
    return measure_all(measure_rankings(collection, rankings), count) | times


def measure_rankings(collection: Collection, rankings: Sequence[Ranking]) -> Measure:
    """Return the metrics of rankings, one for each query."""
    return measure_queries(
        [
            query_metrics(collection.graded(query, ranking), collection.judgments[query].grades)
            for query, ranking in enumerate(rankings)
        ]
    )


def _ranked(
    collection: Collection,
    results: Sequence[tuple[np.ndarray, np.ndarray]],
    depth: int,
    seconds: float,
    indexing: float,
    notes: tuple[str, ...],
) -> Ranked:
    """Return results of `depth` + 1 documents, among which may be the query itself, as rankings."""
    rankings = [cut(collection.rank(query, *found), depth) for query, found in enumerate(results)]
    return Ranked(rankings, seconds, indexing, notes)


def cut(ranking: Ranking, depth: int | None) -> Ranking:
    """Return the first documents of a ranking; None: all."""
    return Ranking(ranking.documents[:depth], ranking.scores[:depth])


def _times(ranked: Ranked, count: int, notes: list[str]) -> dict[str, Any]:
    if ranked.seconds is None:
        return {}
    milliseconds = 1000 * ranked.seconds / count
    notes.append(f"{milliseconds:.3g} ms per query, after {ranked.indexing:.3g} s for the documents")
    return {"milliseconds_per_query": milliseconds, "indexing_seconds": ranked.indexing}
