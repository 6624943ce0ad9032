"""Late interaction: how similar a query is to a document, given a vector for each token of both.

Khattab and Zaharia 2020 (ColBERT), section 3.3, MaxSim: the sum over the vectors of the query of the largest product
with a vector of the document. Input and output are ragged: vectors one after the other, and how many each text has. The
products are computed in chunks, and the gradient reaches the largest ones alone (max_logits.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from unmask.data.tokenizers.words import spans
from unmask.nn.layers.max_logits import max_logits
from unmask.support.transfer import to_device


def max_sim(queries: Tensor, query_sizes: Sequence[int], documents: Tensor, document_sizes: Sequence[int]) -> Tensor:
    """Return the similarity of each query with each document, (queries, documents) float32.

    Args:
        queries: the vectors of all queries, (vectors, width).
        query_sizes: how many vectors each query has.
        documents: those of all documents, (vectors, width).
        document_sizes: how many each document has, at least one.
    """
    offsets = [0, *accumulate(document_sizes)]
    largest = max_logits(documents, queries, queries.new_zeros(len(queries)), offsets).T  # (query vectors, documents)
    sums = largest.new_zeros(len(query_sizes), len(document_sizes))
    owners = torch.arange(len(query_sizes)).repeat_interleave(torch.tensor(query_sizes, dtype=torch.int64))
    return sums.index_add(0, to_device(owners, queries.device), largest)  # by the query of each vector


def select(vectors: Tensor, sizes: Sequence[int], chosen: Sequence[int] | np.ndarray) -> tuple[Tensor, list[int]]:
    """Return the vectors of some texts, one after the other, and how many each has.

    Args:
        vectors: those of all texts, (vectors, width).
        sizes: how many each text has.
        chosen: numbers of texts, in any order.
    """
    lengths = np.array(sizes, np.int64)
    numbers = np.array(chosen, np.int64)
    rows = torch.from_numpy(spans((np.cumsum(lengths) - lengths)[numbers], lengths[numbers]))
    return vectors.index_select(0, to_device(rows, vectors.device)), lengths[numbers].tolist()
