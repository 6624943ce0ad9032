"""Candidate tokens of windows as a table, and back."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.tasks.passage_windows import Candidates

PASSAGES = {0: (5, [1, 2, 3]), 1: (4, []), 2: (9, [0, 4, 5, 7]), 3: (9, [8])}
"""Of each window its length and its candidates; the second one has none."""


@pytest.fixture
def batch():
    return collate(
        [
            Sample(key=(number,), ids=np.zeros(length, np.int64), positions={"passage": np.array(at, np.int64)})
            for number, (length, at) in PASSAGES.items()
        ]
    )


@pytest.mark.parametrize("windows", [None, 3])
def test_values_are_in_the_row_of_their_window_and_the_column_of_their_position(batch, windows):
    found = Candidates(batch, windows)
    assert [batch.keys[number] for number in found.sequence.tolist()] == [(0,), (2,), (3,)]
    values = torch.randn(8)
    table = found.table(values)
    assert table.shape == (3, 9)
    assert table.isfinite().sum() == 8
    assert torch.equal(table[0, 1:4], values[:3])
    assert torch.equal(table[1, [0, 4, 5, 7]], values[3:7])
    assert table[2, 8] == values[7]
    assert torch.equal(found.of_table(table), values)
    assert torch.equal(found.table(torch.randn(8, 2)).isfinite().all(2), table.isfinite())


def test_a_candidate_is_found_by_its_position(batch):
    found = Candidates(batch)
    assert found.find(torch.tensor([3, 5, 8])).tolist() == [2, 5, 7]
    assert found.position.tolist() == [1, 2, 3, 0, 4, 5, 7, 8]


def test_without_candidates_there_are_no_windows(batch):
    (alone,) = (Sample(key=(0,), ids=np.zeros(4, np.int64), positions={"passage": np.zeros(0, np.int64)}),)
    found = Candidates(collate([alone]))
    assert found.table(torch.zeros(0)).shape == (0, 4)
    assert len(found.sequence) == len(found.find(torch.zeros(0, dtype=torch.int64))) == 0
