"""Losses and largest logits over the vocabulary without storing all logits: they are computed in chunks.

**Losses**, with the gradient in the same pass, are the cross-entropy with gold tokens, and the divergence from the
predictions of a teacher. The logits of 1,000 masked tokens over a vocabulary of 30,522 take 122 MB in float32, three
times that with softmax and gradient. Here only `CHUNK` of them exist at any time: a chunk's probabilities determine its
gradient (probabilities minus those that they should be), so its contributions to the gradients of rows, decoder and
bias are computed at once and kept instead.

**Largest logits** are those of each token of the vocabulary in a text. The logits of 4,096 tokens over a vocabulary of
30,522 take 500 MB in float32, and their gradient as much. The gradient reaches, for each text and each token of the
vocabulary, only the position with the largest logit: it is a sparse matrix with as many values as there are gradients
that are not zero, few where texts are represented sparsely.

Late interaction is made of them: how similar a query is to a document, given a vector for each token of both. Khattab
and Zaharia 2020 (ColBERT), section 3.3, MaxSim: the sum over the vectors of the query of the largest product with a
vector of the document. Input and output are ragged: vectors one after the other, and how many each text has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from unmask.data.tokenizers.words import spans
from unmask.nn.layers.linear import fill_up, product
from unmask.support.capabilities import cpu_or_gpu
from unmask.support.transfer import to_device

CHUNK = {"cpu": 1 << 23, "gpu": 1 << 27}
"""Maximum number of logits at a time: 256 rows of 30,522, and 4,096 rows on a GPU, which small products underuse."""

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By their size in bytes, the integers that have the order of floating-point numbers which are not negative."""

WIDER = {torch.float16: torch.float32}
"""By the dtype of logits, that of their probabilities, where the same does not reach down to those of rare tokens."""

BLOCK = 128
"""Number of ids whose probabilities are summed first when an id is drawn."""


def vocabulary_loss(rows: Tensor, decoder: Tensor, bias: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of softmax(rows decoder^T + bias) in float32, and the number of correct answers.

    The answer is the first of the highest logits.

    Shape:
        rows: (targets, width); decoder: (vocabulary, width); bias: (vocabulary,); gold: (targets,) int64.
    """
    loss, correct, _ = _VocabularyLoss.apply(rows, decoder, bias, gold, None, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return loss, correct


def vocabulary_loss_and_draw(
    rows: Tensor, decoder: Tensor, bias: Tensor, gold: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `vocabulary_loss`, and an id drawn from each row's probabilities; see `draw`.

    Shape:
        as there; uniform: (targets,) float32 in [0, 1); the ids are (targets,) int64.
    """
    loss, correct, drawn = _VocabularyLoss.apply(rows, decoder, bias, gold, uniform, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return loss, correct, drawn


SoftTargets = Callable[[slice, Tensor], Tensor]
"""Maps a chunk of the rows, and their log-probabilities, to those that they should have: (chunk, vocabulary) each."""


def soft_vocabulary_loss(
    rows: Tensor, decoder: Tensor, bias: Tensor, targets: SoftTargets, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return KL(targets || softmax((rows decoder^T + bias) / temperature)), summed, and the number of equal answers.

    Both are computed in float32; an answer is the first of the most probable ids.

    Shape:
        as in `vocabulary_loss`.
    """
    learning = torch.is_grad_enabled()
    loss, agreed = _SoftVocabularyLoss.apply(rows, decoder, bias, targets, temperature, learning)  # type: ignore[no-untyped-call]
    return loss, agreed


def log_probabilities(rows: Tensor, decoder: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
    """Return the natural logarithm of each gold token's probability, (targets,) float32; for inference.

    Shape:
        as in `vocabulary_loss`.
    """
    values, size = (
        rows.new_empty(len(gold), dtype=torch.float32),
        max(1, CHUNK[cpu_or_gpu(rows.device)] // len(decoder)),
    )
    for start in range(0, len(gold), size):
        column = gold[start : start + size]
        logits = product(fill_up(rows[start : start + size]), decoder, bias)[: len(column)]  # (chunk, vocabulary)
        values[start : start + size] = -cross_entropy(logits.float(), column, reduction="none")
    return values


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, decoder: Tensor, bias: Tensor, gold: Tensor, uniform: Tensor | None, learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        loss = torch.zeros((), device=rows.device)
        correct = torch.zeros((), dtype=torch.int64, device=rows.device)
        drawn = torch.empty(0 if uniform is None else len(gold), dtype=torch.int64, device=rows.device)
        count, rows = len(rows), fill_up(rows)
        if learning:
            grads = torch.empty_like(rows), torch.zeros_like(decoder), torch.zeros_like(bias, dtype=torch.float32)
        size = max(1, CHUNK[cpu_or_gpu(rows.device)] // len(decoder))
        for start in range(0, count, size):
            chunk, column = rows[start : start + size], gold[start : start + size, None]  # (chunk, width), (real, 1)
            real = len(column)
            logits = product(chunk, decoder, bias)  # (chunk, vocabulary)
            correct += count_correct(logits[:real], column.squeeze(1))
            probabilities = logits.softmax(1, dtype=WIDER.get(logits.dtype))
            reached = probabilities[:real].gather(1, column)
            if uniform is not None:
                drawn[start : start + size] = draw(probabilities[:real], uniform[start : start + size])
            loss -= reached.float().clamp(min=torch.finfo(torch.float32).tiny).log().sum()
            if learning:
                probabilities, reached = probabilities.to(logits.dtype), reached.to(logits.dtype)
                gold_indices = torch.arange(real, device=gold.device) * len(decoder) + column.squeeze(1)
                # scatter_ is slow on a CPU
                probabilities.view(-1).index_copy_(0, gold_indices, (reached - 1).squeeze(1))
                probabilities[real:] = 0
                torch.mm(probabilities, decoder, out=grads[0][start : start + size])
                grads[1].addmm_(probabilities.t(), chunk)
                grads[2].add_((probabilities.new_ones(1, len(chunk)) @ probabilities).squeeze(0))  # faster than a sum
        if learning:
            ctx.save_for_backward(grads[0][:count], *grads[1:])
        ctx.mark_non_differentiable(correct, drawn)
        return loss, correct, drawn

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_scaled(ctx.saved_tensors, grads[0]), None, None, None


class _SoftVocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, decoder: Tensor, bias: Tensor, targets: SoftTargets, temperature: float, learning: bool
    ) -> tuple[Tensor, Tensor]:
        loss = torch.zeros((), device=rows.device)
        agreed = torch.zeros((), dtype=torch.int64, device=rows.device)
        if learning:
            grads = torch.empty_like(rows), torch.zeros_like(decoder), torch.zeros_like(bias, dtype=torch.float32)
        size = max(1, CHUNK[cpu_or_gpu(rows.device)] // len(decoder))
        for start in range(0, len(rows), size):
            chunk = slice(start, start + size)
            chunk_rows, real = fill_up(rows[chunk]), len(rows[chunk])
            predicted = (product(chunk_rows, decoder, bias)[:real].float() / temperature).log_softmax(
                1
            )  # (chunk, vocabulary)
            target = targets(chunk, predicted)  # (chunk, vocabulary)
            agreed += count_correct(predicted, target.argmax(1))
            probabilities = target.exp()
            loss += (probabilities * target.sub_(predicted)).sum()
            if learning:
                difference = fill_up(predicted.exp_().sub_(probabilities).div_(temperature).to(rows.dtype))
                grads[0][chunk] = torch.mm(difference, decoder)[:real]
                grads[1].addmm_(difference.t(), chunk_rows)
                grads[2].add_((difference.new_ones(1, len(difference)) @ difference).squeeze(0))
        if learning:
            ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(agreed)
        return loss, agreed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_scaled(ctx.saved_tensors, grads[0]), None, None, None


def _scaled(gradients: tuple[Tensor, Tensor, Tensor], scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of rows, decoder and bias of a loss that is scaled."""
    rows, decoder, bias = gradients
    return rows * scale.to(rows.dtype), decoder * scale.to(rows.dtype), (bias * scale).to(rows.dtype)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Draw an id from each row of probabilities, by inverting their cumulative sum.

    The cumulative sum is computed over blocks of `BLOCK` ids and then within the selected block, since a cumulative sum
    takes longer than a softmax. Rows are drawn independently; ids with probability 0 are never drawn.

    Shape:
        probabilities: (targets, vocabulary), whose rows need not sum to exactly 1; uniform: (targets,) in [0, 1);
        returns (targets,).
    """
    size = probabilities.shape[1]
    whole = size - size % BLOCK
    blocks = probabilities[:, :whole].view(len(probabilities), size // BLOCK, BLOCK).sum(2, dtype=torch.float32)
    remainder = probabilities[:, whole:].sum(1, keepdim=True, dtype=torch.float32)
    sums = torch.cat([blocks, remainder], 1).cumsum(1)  # (targets, blocks)
    wanted = uniform[:, None] * sums[:, -1:]  # (targets, 1)
    block = _first_above(sums, wanted)
    wanted -= sums.gather(1, (block - 1).clamp_(min=0)) * (block > 0)
    ids = block * BLOCK + torch.arange(BLOCK, device=block.device)  # (targets, BLOCK)
    inside = probabilities.gather(1, ids.clamp(max=size - 1)).float() * (ids < size)
    drawn = block * BLOCK + _first_above(inside.cumsum(1), wanted)
    return drawn.squeeze(1).clamp_(max=size - 1)  # if a run diverges, sums are NaN


def _first_above(sums: Tensor, wanted: Tensor) -> Tensor:
    """Return the index at which a cumulative sum first exceeds a number, or, if due to rounding it does not, its end.

    Shape:
        sums: (targets, any number); wanted: (targets, 1), not negative; returns (targets, 1).
    """
    below = torch.nextafter(sums[:, -1:], sums.new_zeros(()))
    return torch.searchsorted(sums, torch.minimum(wanted, below), right=True).clamp_(max=sums.shape[1] - 1)


def count_correct(logits: Tensor, gold: Tensor) -> Tensor:
    """Return how often the first of the highest logits is the gold one.

    On a CPU argmax, which also finds the first, takes several times as long as a softmax.

    Shape:
        logits: (targets, classes); gold: (targets,) int64; returns a scalar.
    """
    if not logits.is_cpu:
        return (logits.argmax(1) == gold).sum()
    highest = _highest(logits)
    reached = (logits.gather(1, gold[:, None]) >= highest).squeeze(1).nonzero().squeeze(1)  # rows
    row, column = (logits[reached] == highest[reached]).nonzero().unbind(1)  # in order
    return (column[row.diff(prepend=row.new_full((1,), -1)) > 0] == gold[reached]).sum()


def _highest(logits: Tensor) -> Tensor:
    """Return the highest logit of each row, (targets, 1), compared as integers, which is several times as fast."""
    highest = logits.view(INTEGERS[logits.element_size()]).amax(1, keepdim=True)
    return highest.view(logits.dtype) if bool((highest >= 0).all()) else logits.amax(1, keepdim=True)


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
