"""The sum of embeddings, and gradients of table rows that are accurate however often a row occurs."""

import numpy as np
import pytest
import torch
from torch.nn.functional import embedding, layer_norm

from unmask.data.batches.batch import Sample, collate
from unmask.nn.layers.embeddings import Embeddings, look_up


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_and_gradients_equal_torchs(dtype):
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
    """torch's own sum saturates at 256, where 256 + 1 is rounded to 256."""
    table = torch.zeros(3, 4, dtype=torch.bfloat16, requires_grad=True)
    (gradient,) = torch.autograd.grad(look_up(table, torch.ones(4096, dtype=torch.int64)).sum(), table)
    assert gradient.to_dense().tolist() == [[0.0] * 4, [4096.0] * 4, [0.0] * 4]


def tokens_of(segments=True):
    rng = np.random.default_rng(0)
    samples = [
        Sample(key=(n,), ids=rng.integers(0, 50, n), segments=rng.integers(0, 2, n) if segments else None)
        for n in (3, 5)
    ]
    return collate(samples).tokens


def build(positions=10, segments=2, out=None, epsilon=1e-12, **settings):
    return Embeddings(50, positions, segments, 8, out, dropout=0.0, epsilon=epsilon, **settings)


@pytest.mark.parametrize("offset", [0, 2])
def test_three_embeddings_are_summed_and_normalized(offset):
    layer, tokens = build(offset=offset), tokens_of()
    summed = layer.words(tokens.ids) + layer.segments(tokens.segments) + layer.positions(tokens.position_ids + offset)
    torch.testing.assert_close(layer(tokens), layer_norm(summed, (8,), eps=1e-12))
    assert len(layer.positions.weight) == 10 + offset
    assert build(epsilon=None).norm is None
    assert build(biased=False).norm.bias is None


def test_tables_may_be_absent_or_have_one_segment():
    tokens = tokens_of(segments=False)
    layer = build(positions=0, segments=0, epsilon=None)
    assert set(layer.state_dict()) == {"words.weight"}
    assert layer(tokens).equal(layer.words(tokens.ids))
    layer = build(positions=0, segments=1, epsilon=None)
    assert layer(tokens).equal(layer.words(tokens.ids) + layer.segments.weight)


def test_narrow_embeddings_are_projected():
    layer, tokens = build(out=12), tokens_of()
    assert layer.embed(tokens).shape == (8, 8)
    assert layer(tokens).equal(layer.project(layer.embed(tokens)))


def test_two_segments_need_samples_with_segments():
    with pytest.raises(
        ValueError, match="a body with 2 segments needs samples with segments, but the layout gives none"
    ):
        build()(tokens_of(segments=False))
