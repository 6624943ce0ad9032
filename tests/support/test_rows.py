"""Functions of rows and their gradients equal those in float64, for any shapes, types and threads."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.nn.functional import gelu, layer_norm

from unmask.support import rows

pytestmark = pytest.mark.skipif(not rows.fits(torch.zeros(1, 16)), reason="there was no compiler")
TYPES = st.sampled_from(rows.TYPES)
ATOL = {torch.float32: 1e-5, torch.bfloat16: 1e-5}
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
SHAPE = {"count": st.sampled_from([0, 1, 2, 63, 64, 65, 200]), "width": st.sampled_from([16, 48, 384])}


def drawn(dtype, *shape, seed=0, scale=1.0):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def check(found, expected, factor=1.0):
    """Check what is rounded once, up to a factor, against what is exact."""
    assert found.shape == expected.shape
    error = (found.double() - expected).abs()
    bound = ATOL[found.dtype] + ROUNDING[found.dtype] * expected.abs()
    assert (error <= factor * bound).all(), float((error / bound).max())


def kept_of(count, width, dropout, seed):
    """Return the factors of dropout, (count, width), read from a sum with 0."""
    ones, zeros = torch.ones(count, width), torch.zeros(count, width)
    return rows.norm(ones, ones[0] if count else torch.ones(width), None, 1.0, zeros, dropout, seed)[1]


@given(dtype=TYPES, **SHAPE, biased=st.booleans(), onto=st.booleans(), dropout=st.sampled_from([0.0, 0.1, 0.9]))
def test_norms_and_their_gradients_are_those_in_float64(dtype, count, width, biased, onto, dropout):
    x, other, grad = (drawn(dtype, count, width, seed=seed) for seed in range(3))
    weight, bias = drawn(dtype, width, seed=3), drawn(dtype, width, seed=4) if biased else None
    random = (dropout, 5) if onto else (0.0, 0)
    y, z, statistics = rows.norm(x, weight, bias, 1e-5, other if onto else None, *random)
    kept = kept_of(count, width, *random) if random[0] else torch.ones(count, width)
    check(z, x.double() * kept + other.double() if onto else x.double())
    leaves = [leaf.double().requires_grad_() for leaf in (z, weight, torch.zeros(width) if bias is None else bias)]
    exact = layer_norm(leaves[0], (width,), *leaves[1:], 1e-5)
    check(y, exact.detach(), factor=2)
    exact.backward(grad.double())
    of_z, of_x, sums = rows.norm_back(grad, z, statistics, weight, *random)
    largest = leaves[0].grad.abs().max() if count else 0
    assert ((of_z.double() - leaves[0].grad).abs() <= ROUNDING[dtype] * largest + 1e-5).all()
    assert of_x.equal((of_z.float() * kept).to(dtype))
    for found, leaf in zip(sums, leaves[1:], strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), leaf.grad, rtol=1e-4, atol=1e-4)


@given(dtype=TYPES, **SHAPE, gated=st.booleans(), scale=st.sampled_from([0.1, 3.0, 30.0]))
def test_gelu_and_its_gradient_are_those_in_float64(dtype, count, width, gated, scale):
    x, grad = drawn(dtype, count, width * (1 + gated), scale=scale), drawn(dtype, count, width, seed=1)
    leaf = x.double().requires_grad_()
    inner, gate = leaf.chunk(2, 1) if gated else (leaf, 1)
    exact = gelu(inner) * gate
    exact.backward(grad.double())
    size = max(1.0, scale)
    for found, expected in ((rows.gelu(x, gated=gated), exact), (rows.gelu_back(grad, x, gated=gated), leaf.grad)):
        assert found.dtype == dtype
        check(found, expected.detach(), factor=size)


def test_gradients_of_many_rows_of_one_sign_are_added_up_exactly():
    """torch's sum in bf16 stops at 256."""
    x, weight = drawn(torch.bfloat16, 20_000, 16), torch.ones(16).bfloat16()
    _, z, statistics = rows.norm(x, weight, None, 1e-5)
    _, _, (_, of_bias) = rows.norm_back(torch.ones_like(x), z, statistics, weight)
    assert of_bias.equal(torch.full((16,), 20_000.0))


def test_threads_change_nothing():
    before = torch.get_num_threads()
    x, onto, grad = (drawn(torch.float32, 1000, 64, seed=seed) for seed in range(3))
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            y, z, statistics = rows.norm(x, grad[0], grad[1], 1e-5, onto, 0.3, 1)
            found.append([y, z, statistics, *rows.norm_back(grad, z, statistics, grad[0], 0.3, 1), rows.gelu(x)])
    finally:
        torch.set_num_threads(before)
    assert all(one.equal(other) for one, other in zip(*found, strict=True))


def test_dropout_has_its_rate_in_rows_and_columns():
    kept = kept_of(1000, 512, 0.1, 1)
    dropped = (kept == 0).double()
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 1 / 0.9))
    assert abs(dropped.mean() - 0.1) < 4 * (0.09 / dropped.numel()) ** 0.5
    for dim in (0, 1):
        variance = 0.09 * dropped.shape[dim]
        assert 0.8 * variance < dropped.sum(dim).var() < 1.2 * variance
    assert not kept_of(1000, 512, 0.1, 2).equal(kept)


def test_what_is_not_a_number_remains():
    for dtype in rows.TYPES:
        x = drawn(dtype, 3, 16)
        x[1, 2] = float("nan")
        y, z, _ = rows.norm(x, torch.ones(16, dtype=dtype), None, 1e-5, torch.zeros_like(x))
        assert y.isnan().any(1).tolist() == [False, True, False] and z.isnan().equal(x.isnan())
        assert rows.gelu(x).isnan().equal(x.isnan())
        assert rows.gelu_back(torch.ones_like(x), x).isnan().equal(x.isnan())


def test_wrong_arguments_are_refused():
    x, weight = torch.zeros(4, 32), torch.ones(32)
    for wrong in (x.double(), x[:, :31], x[0]):
        assert not rows.fits(wrong)
        with pytest.raises(ValueError, match="a matrix is needed"):
            rows.gelu(wrong)
    assert not rows.fits(torch.zeros(4, 16), parts=2)
    with pytest.raises(ValueError, match="multiple of 32"):
        rows.gelu(torch.zeros(4, 16), gated=True)
    for wrong in (weight.double(), weight[:16], torch.ones(64)[::2], weight[None]):
        with pytest.raises(ValueError, match="adjacent numbers"):
            rows.norm(x, wrong, None, 1e-5)
    with pytest.raises(ValueError, match="adjacent numbers"):
        rows.norm(x, weight, None, 1e-5, x[:3])
    with pytest.raises(ValueError, match="dropout needs"):
        rows.norm(x, weight, None, 1e-5, dropout=0.1)
    for random in ((1.0, 0), (-0.1, 0), (float("nan"), 0), (0.1, -1)):
        with pytest.raises(ValueError, match="the share of numbers"):
            rows.norm(x, weight, None, 1e-5, x, *random)
    _, z, statistics = rows.norm(x, weight, None, 1e-5)
    with pytest.raises(ValueError, match="statistics"):
        rows.norm_back(x, z, statistics[:3], weight)
    with pytest.raises(ValueError, match="adjacent numbers"):
        rows.norm_back(x[:3], z, statistics, weight)
    with pytest.raises(ValueError, match="adjacent numbers"):
        rows.gelu_back(x, torch.zeros(4, 32), gated=True)
