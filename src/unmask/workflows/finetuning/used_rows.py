"""Fine-tuning of only the token embeddings that occur in the examples.

Of the tens of thousands of rows in the table, the examples of a task use a few thousand. The others never have a
gradient: weight decay scales them all by the same factor, and nothing else changes them. Without them a short step is
faster and needs less memory, and the result is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from unmask.data.batches.batch import Sample

Reindex = Callable[[Sample], Sample]
"""Replaces the token ids of a sample by those of a reduced table."""


@contextmanager
def only_used_rows(tables: Sequence[nn.Embedding], parts: Sequence[Sequence[Sample]]) -> Iterator[Reindex]:
    """Reduce tables of token embeddings to the rows of the samples' tokens; restore the others at the end.

    Within the context the first table has one more row, of ones, which weight decay turns into the factor by which it
    scales the rows that are left out. The optimizer must therefore treat each row by itself: AdamW does, LAMB does not.

    Args:
        tables: the table that is trained, and those of models that read the same samples and are not trained; each
            (vocabulary, its width), modified in place. Their rows are used for nothing but looking up tokens.
        parts: samples to train on and to evaluate on.

    Yields:
        A function that gives a sample the ids of the reduced tables.
    """
    table, *others = tables
    whole, frozen = table.weight.detach(), [other.weight for other in others]
    ids = np.concatenate([sample.ids for part in parts for sample in part])
    used = np.flatnonzero(np.bincount(ids, minlength=len(whole)))
    rows = torch.from_numpy(used).to(whole.device)
    table.weight = nn.Parameter(torch.cat([whole[rows], torch.ones_like(whole[:1])]))
    table.num_embeddings = len(table.weight)
    for other in others:
        other.weight = nn.Parameter(other.weight[rows], requires_grad=False)
    index = np.zeros(len(whole), np.int64)
    index[used] = np.arange(len(used))
    yield lambda sample: sample.add(ids=index[sample.ids])
    trained = table.weight.detach()
    table.weight = nn.Parameter((whole * trained[-1]).index_copy_(0, rows, trained[:-1]))
    table.num_embeddings = len(whole)
    for other, weight in zip(others, frozen, strict=True):
        other.weight = weight
