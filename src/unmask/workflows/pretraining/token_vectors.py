"""Initial token embeddings from the statistics of the text, for a run from scratch.

Input: the documents of a corpus. Output: a vector per token, such that tokens with similar neighbors have similar
vectors: what a small encoder otherwise spends its first minutes on, from much more of the text than it reads in them.

The vectors are those of a truncated singular value decomposition of the positive pointwise mutual information of tokens
and their neighbors (Levy, Goldberg and Dagan 2015, "Improving distributional similarity with lessons learned from word
embeddings", sections 2.2 and 3), with the settings that they recommend: the frequencies of contexts to the power of
0.75 (context distribution smoothing), singular values to the power of 0.5, rows of equal length. A neighbor at a
distance of d tokens counts 1 / d, as for GloVe (Pennington et al. 2014, section 4.2). Differences: neighbors before and
after a token are different contexts, which tells more of its part of speech, and contexts are the most frequent tokens
alone, so that a large vocabulary fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.corpus.corpus import DocumentBlock, Documents

WINDOW = 2
"""Distance in tokens up to which two tokens of a document are neighbors."""
CONTEXTS = 4000
"""Maximum number of tokens that are contexts, on either side."""
MOST_COUNTS = 1 << 28
"""Maximum number of counts, which take 4 bytes each."""
SMOOTHING = 0.75
"""Exponent of the frequencies of contexts."""
WEIGHTING = 0.5
"""Exponent of the singular values."""
ENOUGH = 32_000_000
"""Number of tokens of the text that are counted: of more, blocks at equal distances."""
OVERSAMPLING, ITERATIONS = 16, 2
"""Of the randomized decomposition (Halko et al. 2011, algorithm 4.4)."""


@torch.no_grad()
def begin_embeddings(words: nn.Embedding, documents: Documents, frequencies: np.ndarray) -> int:
    """Begin token embeddings at the vectors of the text; return how many tokens have one.

    The others, such as special tokens, keep their initial rows. Vectors have the standard deviation of these.

    Args:
        words: the table of token embeddings, with its initial values; modified in place.
        documents: the text.
        frequencies: how often each token occurs, at least in a part of the text, (vocabulary,).

    Raises:
        UserError: a document is damaged (the message names the file).
    """
    table = words.weight
    counts = neighbor_counts(documents.blocks(ENOUGH), frequencies)
    information = mutual_information(counts.flatten(1))
    vectors = factor(information, table.shape[1])
    lengths = vectors.norm(dim=1)
    known = (information.any(1) & (lengths > 1e-6 * lengths.max())).nonzero().squeeze(1)
    vectors = vectors[known] / lengths[known, None] * vectors.shape[1] ** 0.5  # of standard deviation 1
    table[known.to(table.device), : vectors.shape[1]] = (vectors * table.std().cpu()).to(table)
    return len(known)


def neighbor_counts(blocks: Iterable[DocumentBlock], frequencies: np.ndarray) -> Tensor:
    """Count the neighbors of each token.

    Args:
        blocks: the text.
        frequencies: how often each token occurs, at least in a part of the text, (vocabulary,).

    Returns:
        Counts of the neighbors after each token, and of those before it, (vocabulary, 2, contexts) float32; contexts
        are tokens, the most frequent one first.
    """
    vocabulary = len(frequencies)
    contexts = min(vocabulary, CONTEXTS, max(1, MOST_COUNTS // (2 * vocabulary)))
    columns = np.full(vocabulary, -1)
    columns[np.argsort(-frequencies, kind="stable")[:contexts]] = np.arange(contexts)
    counts = torch.zeros(vocabulary * 2 * contexts)
    for block in blocks:
        ids = block.ids.astype(np.int64)
        document = np.repeat(np.arange(len(block.documents) - 1), np.diff(block.documents))
        for distance in range(1, WINDOW + 1):
            together = document[distance:] == document[:-distance]
            before, after = ids[:-distance][together], ids[distance:][together]
            for side, (tokens, neighbors) in enumerate(((before, columns[after]), (after, columns[before]))):
                cells = torch.from_numpy(((2 * tokens + side) * contexts + neighbors)[neighbors >= 0])
                counts.scatter_add_(0, cells, torch.tensor(1 / distance).expand(len(cells)))
    return counts.view(vocabulary, 2, contexts)


def mutual_information(counts: Tensor) -> Tensor:
    """Return the positive pointwise mutual information in nats; `counts`, both (tokens, contexts), is overwritten."""
    tokens, contexts = counts.sum(1, keepdim=True), counts.sum(0) ** SMOOTHING
    contexts /= contexts.sum().clamp_min(1e-12)
    # log of count / (count of the token * share of the context); where nothing was counted it is -inf, and becomes 0
    return counts.log_().sub_(tokens.clamp_min(1e-12).log()).sub_(contexts.clamp_min(1e-12).log()).clamp_min_(0)


def factor(matrix: Tensor, rank: int) -> Tensor:
    """Return the left singular vectors, times powers of the singular values, (rows, at most `rank`)."""
    rank = min(rank, *matrix.shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        left, values, _ = torch.svd_lowrank(matrix, min(rank + OVERSAMPLING, *matrix.shape), niter=ITERATIONS)
    return left[:, :rank] * values[:rank] ** WEIGHTING
