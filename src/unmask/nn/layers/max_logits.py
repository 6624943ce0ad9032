"""The largest logit of each token of the vocabulary in a text, without storing the logits of all tokens of the text.

The logits of 4,096 tokens over a vocabulary of 30,522 take 500 MB in float32, and their gradient as much. Here only
`CHUNK` of them exist at any time, and the gradient reaches, for each text and each token of the vocabulary, only the
position with the largest logit: it is a sparse matrix with as many values as there are gradients that are not zero,
few where texts are represented sparsely.

Late interaction is made of them: how similar a query is to a document, given a vector for each token of both. Khattab
and Zaharia 2020 (ColBERT), section 3.3, MaxSim: the sum over the vectors of the query of the largest product with a
vector of the document. Input and output are ragged: vectors one after the other, and how many each text has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.data.tokenizers.words import spans
from unmask.nn.layers.linear import fill_up, product
from unmask.nn.layers.vocabulary import CHUNK
from unmask.support.capabilities import cpu_or_gpu
from unmask.support.transfer import to_device


def max_logits(rows: Tensor, decoder: Tensor, bias: Tensor, offsets: Sequence[int]) -> Tensor:
    """Return the maximum of rows decoder^T + bias over the rows of each text, (texts, vocabulary) float32.

    Args:
        rows: (tokens, width).
        decoder: (vocabulary, width).
        bias: (vocabulary,).
        offsets: where the texts begin among the rows, and the number of rows.
    """
    largest: Tensor = _MaxLogits.apply(rows, decoder, bias, offsets, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return largest


class _MaxLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, decoder: Tensor, bias: Tensor, offsets: Sequence[int], learning: bool
    ) -> Tensor:
        texts, vocabulary = len(offsets) - 1, len(decoder)
        largest = torch.empty(texts, vocabulary, device=rows.device)
        chosen = torch.empty(texts if learning else 0, vocabulary, dtype=torch.int32, device=rows.device)
        for first, last in _chunks(offsets, max(1, CHUNK[cpu_or_gpu(rows.device)] // vocabulary)):
            start, end = offsets[first], offsets[last]
            logits = product(fill_up(rows[start:end]), decoder, bias)[
                : end - start
            ]  # (tokens of the chunk, vocabulary)
            for text in range(first, last):
                own = logits[offsets[text] - start : offsets[text + 1] - start]
                if learning:
                    values, indices = own.max(0)
                    largest[text], chosen[text] = values, indices + offsets[text]
                else:
                    largest[text] = own.amax(0)
        if learning:
            ctx.save_for_backward(rows, decoder, chosen)
            ctx.offsets = offsets
        return largest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, decoder, chosen = ctx.saved_tensors
        if not rows.is_cpu:
            of_rows, of_decoder = densely(grads[0], chosen, rows, decoder, ctx.offsets)
            return of_rows, of_decoder, grads[0].sum(0).to(decoder.dtype), None, None
        text, token = grads[0].nonzero(as_tuple=True)
        values = grads[0][text, token]
        row, shape = chosen[text, token].long(), (len(rows), len(decoder))
        by_row = torch.sparse_coo_tensor(
            torch.stack([row, token]), values, shape, check_invariants=False
        )  # of the logits
        of_rows = torch.sparse.mm(by_row, decoder.float())
        of_decoder = torch.sparse.mm(by_row.t(), rows.float())
        return of_rows.to(rows.dtype), of_decoder.to(decoder.dtype), grads[0].sum(0).to(decoder.dtype), None, None


def densely(
    grad: Tensor, chosen: Tensor, rows: Tensor, decoder: Tensor, offsets: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and decoder by products of whole matrices: a GPU is waited for to find few values.

    Shape:
        grad: (texts, vocabulary), of the maxima; chosen: (texts, vocabulary), the rows that they are from; rows:
        (tokens, width); decoder: (vocabulary, width).
    """
    of_rows, of_decoder = torch.empty_like(rows), torch.zeros_like(decoder, dtype=torch.float32)
    for first, last in _chunks(offsets, max(1, CHUNK[cpu_or_gpu(rows.device)] // len(decoder))):
        start, end = offsets[first], offsets[last]
        of_logits = grad.new_zeros(end - start, len(decoder))  # (tokens of the chunk, vocabulary)
        of_logits.scatter_(0, chosen[first:last].long() - start, grad[first:last])
        of_logits = of_logits.to(rows.dtype)
        of_rows[start:end] = of_logits @ decoder
        of_decoder += of_logits.t() @ rows[start:end]
    return of_rows, of_decoder.to(decoder.dtype)


def _chunks(offsets: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """Return the first and the end of the texts of each chunk: of at most `tokens` tokens, or one longer text."""
    starts = [0]
    for text in range(1, len(offsets) - 1):
        if offsets[text + 1] - offsets[starts[-1]] > tokens:
            starts.append(text)
    return [*pairwise([*starts, len(offsets) - 1])]


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
