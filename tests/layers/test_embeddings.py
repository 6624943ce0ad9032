"""Rows of a table, and gradients that add up however often a row occurs."""

import pytest
import torch
from torch.nn.functional import embedding

from unmask.layers.embeddings import look_up


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_and_gradients_are_those_of_torch(dtype):
    table = torch.randn(50, 8).to(dtype).requires_grad_()
    exact = table.detach().double().requires_grad_()
    ids, weights = torch.randint(40, (100,)), torch.randn(100, 8).to(dtype)
    rows = look_up(table, ids)
    assert rows.equal(embedding(ids, table))
    (ours,) = torch.autograd.grad((rows * weights).sum(), table)
    (theirs,) = torch.autograd.grad((embedding(ids, exact) * weights.double()).sum(), exact)
    assert ours.dtype == dtype
    assert ours.is_sparse == (dtype == torch.bfloat16)
    ours = ours.to_dense()
    torch.testing.assert_close(ours.double(), theirs, rtol=0.004 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
    assert not ours[40:].any()


def test_a_row_that_occurs_often_gets_its_whole_gradient_in_bf16():
    """torch's own sum ends at 256, where 256 + 1 is rounded to 256."""
    table = torch.zeros(3, 4, dtype=torch.bfloat16, requires_grad=True)
    (gradient,) = torch.autograd.grad(look_up(table, torch.ones(4096, dtype=torch.int64)).sum(), table)
    assert gradient.to_dense().tolist() == [[0.0] * 4, [4096.0] * 4, [0.0] * 4]
