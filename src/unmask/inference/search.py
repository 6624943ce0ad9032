"""Search of documents for queries, exactly: by vectors, sparse vectors, the vectors of tokens, and by BM25.

Input: vectors or texts of queries and of documents. Output: for each query the numbers of the best documents and their
scores. The vectors of documents come in blocks, each of which is compared with all queries and then forgotten, so that
the memory needed does not depend on their number.

BM25 is that of bm25s (Lù 2024), with Lucene's formula, k1 = 1.5 and b = 0.75. Its words are runs of letters and digits
in lower case, without stemming or stop words; scripts that are written without spaces are read as overlapping pairs of
characters, as by Lucene's CJKAnalyzer. Combining marks belong to the letters before them (Unicode's UAX #29).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from types import ModuleType
from typing import cast

import numpy as np
import torch
from torch import Tensor

from unmask.data.labelled.labelled_file import Row
from unmask.families.checkpoints.sentence_modules import DOT, supported
from unmask.inference.backend import finite
from unmask.inference.predictor import Predictor
from unmask.nn.layers.vocabulary import max_sim, select
from unmask.support.choices import PromptName
from unmask.support.errors import ShareNote, UserError
from unmask.support.messages import argument
from unmask.support.scripts import UNSPACED, mark_class
from unmask.tasks.regression import ScoreTask
from unmask.tasks.rows import as_rows
from unmask.tasks.sparse import SparseVector

BLOCK = 8192
"""Number of documents that are embedded and compared at once."""
TOKEN_BLOCK = 1024
"""Number of documents whose vectors of tokens are computed and compared at once."""
QUERIES = 1024
"""Number of queries that are compared with a block of documents at once."""


@dataclass(frozen=True)
class SparseRows:
    """Rows of which only some values are stored, those that are not 0, such as sparse vectors over a vocabulary.

    Attributes:
        offsets: where the values of each row begin, and their number, (rows + 1,) int64.
        columns: the column of each value, (values,) int64, in increasing order in a row.
        values: (values,) float32.
        width: number of columns.
    """

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    width: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def dense(self, rows: slice) -> Tensor:
        """Return some of the rows with all columns, (rows, width)."""
        first, last, _ = rows.indices(len(self))
        made, starts = torch.zeros(last - first, self.width), self.offsets[first : last + 1]
        inside = slice(starts[0], starts[-1])
        numbers = np.repeat(np.arange(last - first), np.diff(starts))
        made[torch.from_numpy(numbers), torch.from_numpy(self.columns[inside])] = torch.from_numpy(self.values[inside])
        return made

    def tensor(self) -> Tensor:
        """Return the rows as a sparse tensor of torch, (rows, width)."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        indices, size = torch.from_numpy(np.stack([rows, self.columns])), (len(self), self.width)
        values = torch.from_numpy(self.values)
        return torch.sparse_coo_tensor(indices, values, size, check_invariants=False, is_coalesced=True)


def embed_side(predictor: Predictor, texts: Sequence[str], name: PromptName, notes: list[str]) -> np.ndarray:
    """Return the vectors of queries or of documents as they are compared, (texts, width) float32.

    Their products are the cosines, unless the model states that products of the vectors as they are should be compared
    (`similarity_fn_name` of sentence-transformers).

    Args:
        predictor: the model.
        texts: the texts.
        name: what they are.
        notes: receives notes that count texts.

    Raises:
        UserError: the model makes no vectors, or they are not numbers.
    """
    normalize = None if supported(predictor.model.pooling).similarity == DOT else True
    vectors, own_notes = predictor.vectors(texts, prompt_name=name, normalize=normalize)
    notes += own_notes
    return finite(vectors)


def embed_blocks(predictor: Predictor, texts: Iterator[str], notes: list[str]) -> Iterator[np.ndarray]:
    """Yield the vectors of documents in blocks, (documents, width) float32 each.

    Args:
        predictor: the model.
        texts: the documents; no more than `BLOCK` are in memory.
        notes: receives notes that count documents, to be added by `summed`.

    Raises:
        UserError: the model makes no vectors, or they are not numbers.
    """
    while block := list(islice(texts, BLOCK)):
        notes.append(ShareNote(0, len(block), ""))
        yield embed_side(predictor, block, "document", notes)


def embed_sparse(predictor: Predictor, texts: Sequence[str], notes: list[str]) -> SparseRows:
    """Return the sparse vectors of texts, computed in windows, so that few weights that are 0 are in memory at a time.

    Args:
        predictor: a model of sparse vectors (`Vectors.sparse`).
        texts: the texts.
        notes: receives notes that count texts, to be added by `summed`.

    Raises:
        UserError: the outputs of the model are not numbers.
    """
    sizes, columns, values = [0], [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for window in predictor.stream(iter(as_rows(texts)), notes):
        vectors: list[SparseVector] = window
        for vector in vectors:
            order = np.argsort(vector.ids)
            sizes.append(len(order))
            columns.append(np.array(vector.ids, np.int64)[order])
            values.append(np.fromiter(vector.weights.values(), np.float32, len(order))[order])
    width = predictor.model.tokenizer.size
    return SparseRows(np.cumsum(sizes), np.concatenate(columns), np.concatenate(values), width)


def embed_sparse_blocks(predictor: Predictor, texts: Iterator[str], notes: list[str]) -> Iterator[SparseRows]:
    """Yield the sparse vectors of documents in blocks; the arguments are those of `embed_blocks`."""
    while block := list(islice(texts, BLOCK)):
        yield embed_sparse(predictor, block, notes)


def embed_token_blocks(predictor: Predictor, texts: Iterator[str], notes: list[str]) -> Iterator[list[np.ndarray]]:
    """Yield the vectors of the tokens of documents in blocks, those of each document (tokens, width) float32.

    The arguments are those of `embed_blocks`; no more than `TOKEN_BLOCK` documents are in memory.
    """
    while block := list(islice(texts, TOKEN_BLOCK)):
        notes.append(ShareNote(0, len(block), ""))
        yield predictor.embed_tokens(block, notes=notes)


def check_reranks(predictor: Predictor) -> None:
    """Raise a UserError if a model is no cross-encoder."""
    if (task := predictor.model.task) is None or not task.reranks:
        raise UserError(
            f"{argument('teacher')} is no cross-encoder: it does not read two texts together and score them",
            remedy="name a cross-encoder, such as a model of the task ranking",
        )


def score_pairs(predictor: Predictor, pairs: Iterable[tuple[str, str]], notes: list[str] | None = None) -> list[float]:
    """Return the scores by which a cross-encoder ranks pairs of texts: probabilities would be equal in float32."""
    rows = (Row({"text": first, "text_b": second}, "", 0) for first, second in pairs)
    task = cast(ScoreTask, predictor.task)
    return [score for window in predictor.stream(rows, notes) for score in task.rankable(window).tolist()]


def check_vectors(predictor: Predictor) -> tuple[str, ...]:
    """Check that a model makes vectors of texts that can be compared; return notes.

    Raises:
        UserError: it was fine-tuned for another task, or its vectors are compared otherwise than by products.
    """
    task = predictor.model.task
    if task is not None and task.vectors.pooling is None:
        raise UserError(
            f"this model is for {task.title}, and makes no vectors for search",
            remedy="name a model that was trained on pairs, or an encoder",
        )
    pooling = supported(predictor.model.pooling)
    if not pooling.is_compared_by_products:
        raise UserError(
            f"the vectors of this model are compared by '{pooling.similarity}' (similarity_fn_name), which is not "
            "supported in searches",
            remedy="name a model whose vectors are compared by cosine or dot",
        )
    if pooling.similarity is None and not pooling.normalize:
        return ("the model does not state how its vectors are compared: by cosines, as sentence-transformers does",)
    return ()


class Best:
    """The documents with the highest scores for queries, among the blocks that were added.

    Args:
        queries: number of queries.
        depth: number of documents for each query.

    Attributes:
        seconds: the time of all comparisons.
    """

    def __init__(self, queries: int, depth: int) -> None:
        self._depth = depth
        self._scores = torch.empty(queries, 0)
        self._documents = torch.empty(queries, 0, dtype=torch.int64)
        self._number = 0
        self.seconds = 0.0

    def merge(self, count: int, scores: Callable[[slice], Tensor]) -> None:
        """Compare further documents with all queries.

        Args:
            count: number of documents.
            scores: returns the scores of these for some of the queries, (queries, documents) float32.
        """
        start = time.perf_counter()
        documents = torch.arange(self._number, self._number + count)
        parts = []
        for first in range(0, len(self._scores), QUERIES):
            part = slice(first, first + QUERIES)
            products = scores(part)
            candidates = torch.cat([self._scores[part], products], 1)
            numbers = torch.cat([self._documents[part], documents.expand(len(products), -1)], 1)
            best = candidates.topk(min(self._depth, candidates.shape[1]), dim=1)
            parts.append((best.values, numbers.gather(1, best.indices)))
        self._scores, self._documents = (torch.cat(tables) for tables in zip(*parts, strict=True))
        self._number += count
        self.seconds += time.perf_counter() - start

    def results(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the numbers of the best documents of each query, and their scores, (documents,) each."""
        return zip(self._documents.numpy(), self._scores.numpy(), strict=True)


class Nearest(Best):
    """The documents whose vectors are nearest to those of queries; see `Best`.

    Args:
        queries: vectors of the queries, (queries, width) float32.
        depth: number of documents for each query.
    """

    def __init__(self, queries: np.ndarray, depth: int) -> None:
        super().__init__(len(queries), depth)
        self._queries = torch.from_numpy(queries)

    def add(self, vectors: np.ndarray) -> None:
        """Compare further documents with all queries.

        Args:
            vectors: (documents, width) float32.
        """
        self.merge(len(vectors), lambda part: self._queries[part] @ torch.from_numpy(vectors).T)


class NearestSparse(Best):
    """The documents whose sparse vectors have the largest products with those of queries; see `Best`.

    Args:
        queries: the vectors of the queries.
        depth: number of documents for each query.
    """

    def __init__(self, queries: SparseRows, depth: int) -> None:
        super().__init__(len(queries), depth)
        self._queries = queries

    def add(self, vectors: SparseRows) -> None:
        """Compare further documents with all queries."""
        documents = vectors.tensor()  # (documents, vocabulary)
        self.merge(len(vectors), lambda part: torch.sparse.mm(documents, self._queries.dense(part).T).T)


class NearestTokens(Best):
    """The documents whose vectors of tokens are most similar to those of queries, by MaxSim; see `Best`.

    Args:
        queries: the vectors of the tokens of each query, (tokens, width) float32.
        depth: number of documents for each query.
    """

    def __init__(self, queries: Sequence[np.ndarray], depth: int) -> None:
        super().__init__(len(queries), depth)
        self._queries, self._sizes = torch.from_numpy(np.concatenate(queries)), [*map(len, queries)]

    def add(self, vectors: Sequence[np.ndarray]) -> None:
        """Compare further documents with all queries."""
        documents, sizes = torch.from_numpy(np.concatenate(vectors)), [*map(len, vectors)]

        def scores(part: slice) -> Tensor:
            numbers = np.arange(len(self._sizes))[part]
            with torch.inference_mode():
                return max_sim(*select(self._queries, self._sizes, numbers), documents, sizes)

        self.merge(len(sizes), scores)


class Bm25:
    """Documents that are searched by BM25; see the module.

    Args:
        texts: the documents.

    Raises:
        UserError: bm25s is not installed, or no document has a word.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        corpus = [split_words(text) for text in texts]
        if not any(corpus):
            raise UserError("no document has a word that BM25 could search")
        self._number = len(corpus)
        self._index = _bm25s().BM25(method="lucene", k1=1.5, b=0.75)
        self._index.index(corpus, show_progress=False)

    def search(self, queries: Sequence[str], depth: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the numbers of the best documents of each query, and their scores; none without a word of the query.

        Args:
            queries: texts.
            depth: maximum number of documents for each query.
        """
        for query in queries:
            words = split_words(query)
            scores = self._index.get_scores(words) if words else np.zeros(self._number, np.float32)  # (documents,)
            documents = np.flatnonzero(scores > 0)
            if len(documents) > depth:
                documents = documents[np.argpartition(-scores[documents], depth - 1)[:depth]]
            yield documents, scores[documents]


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of words, or runs of scripts without spaces; `\\w` lacks marks, such as vowels of Hindi."""
    letters = rf"[^\W{UNSPACED}]"
    return re.compile(rf"[{UNSPACED}]+|{letters}+(?:(?:{mark_class()})+{letters}*)*")


def split_words(text: str) -> list[str]:
    """Return the words of a text that BM25 compares."""
    words = []
    for run in _words().findall(text.replace("İ", "i").lower()):  # not i with a dot above, as Lucene's LowerCaseFilter
        if len(run) > 1 and re.match(f"[{UNSPACED}]", run):
            words += [first + second for first, second in pairwise(run)]
        else:
            words.append(run)
    return words


def _bm25s() -> ModuleType:
    try:
        import bm25s
    except ImportError as error:
        raise UserError("BM25 needs the package bm25s", remedy="pip install 'unmask[search]'") from error
    return bm25s
