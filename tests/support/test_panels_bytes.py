"""Products in int8 are those of whole numbers, by numpy, and close to those in float64, with what follows them."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch.nn.functional import gelu, layer_norm

from unmask.support import panels
from unmask.support.panels import Attention, Norm, Product, pack_bytes

from . import test_panels_layer
from .test_panels import drawn, threads  # noqa: F401
from .test_panels_attention import offsets_of
from .test_panels_layer import KINDS, LENGTHS, WIDTH, layer_of, weights_of
from .test_panels_layer import exact as exact_layer

pytestmark = pytest.mark.skipif(not panels.multiplies(torch.int8), reason="the processor has no VNNI of AVX-512")
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8}
"""Largest relative error by which outputs are rounded."""


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request):
    """Return the type of the numbers before and after products."""
    if not panels.multiplies(request.param):
        pytest.skip("the processor does not multiply such numbers")
    return request.param


def by_numpy(x, weight, bias=None, onto=None):
    """Return a product of whole numbers, whose sums are of 64 bits."""
    x, weight = x.float().numpy(), weight.float().numpy()
    scales = np.abs(weight).max(1) / np.float32(127)
    weights = np.rint(weight / np.maximum(scales, np.finfo(np.float32).tiny)[:, None]).astype(np.int64)
    low = np.minimum(x.min(1), 0) / np.float32(255)
    step = np.maximum(x.max(1), 0) / np.float32(255) - low
    inverse = np.where(step >= np.finfo(np.float32).tiny, 1 / np.where(step == 0, np.float32(1), step), np.float32(0))
    zero = np.rint(np.float32(-255) * low * inverse).astype(np.int64)
    rows = np.clip(np.rint(x * inverse[:, None]).astype(np.int64) + zero[:, None], 0, 255) - zero[:, None]
    y = (rows @ weights.T) * scales.astype(np.float64) * step.astype(np.float64)[:, None]
    return sum((part.double() for part in (bias, onto) if part is not None), torch.from_numpy(y))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(0, 70),
    width=st.sampled_from([16, 48, 384, 400, 1536, 2**16]),
    count=st.integers(1, 4),
    shift=st.sampled_from([0.0, 3.0, -40.0]),
    size=st.sampled_from([1e-30, 1.0, 1e30]),
    more=st.tuples(st.booleans(), st.booleans()),
)
def test_products_are_those_of_whole_numbers(dtype, rows, width, count, shift, size, more):
    x, weight, bias, onto = drawn(dtype, min(rows, 3) if width > 2000 else rows, width, panels.WIDE * count)
    x, bias, onto = (x + shift) * size, (size * bias if more[0] else None), (size * onto if more[1] else None)
    found, expected = panels.multiply(x, Product(pack_bytes(weight), bias), onto), by_numpy(x, weight, bias, onto)
    assert found.dtype == dtype
    scale = expected.abs().amax(1, keepdim=True) if rows else 0  # terms may cancel out
    assert ((found - expected).abs() <= ROUNDING[dtype] * scale).all()


@pytest.mark.parametrize("skew", [0.0, 2.0])
def test_products_are_close_to_those_in_float64(dtype, skew):
    x, weight, _, _ = drawn(dtype, 60, 384, 64)
    x = torch.where(x > 0, x * (1 + skew), x)
    found, exact = panels.multiply(x, Product(pack_bytes(weight))).double(), x.double() @ weight.double().t()
    assert (found - exact).norm() <= 0.012 * exact.norm()


def test_zeros_and_what_is_tiny_are_zero(dtype):
    x, weight, bias, _ = drawn(dtype, 4, 48, 32)
    x[0], x[1] = 0, x[1] * 1e-37
    weight[3] = 0
    found = panels.multiply(x, Product(pack_bytes(weight), bias))
    assert found[0].equal(bias) and found[:, 3].equal(bias[3].expand(4))
    torch.testing.assert_close(found[1], bias)
    assert found[2:].isfinite().all()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_is_none_in_its_row_or_column_alone(dtype, number):
    x, weight, _, _ = drawn(dtype, 3, 48, 32)
    expected = panels.multiply(x, Product(pack_bytes(weight)))
    wrong = x.clone()
    wrong[1, 40] = number
    found = panels.multiply(wrong, Product(pack_bytes(weight)))
    assert not found[1].isfinite().any() and found[::2].equal(expected[::2])
    weight[5, 7] = number
    found = panels.multiply(x, Product(pack_bytes(weight)))
    others = [column for column in range(32) if column != 5]
    assert not found[:, 5].isfinite().any() and found[:, others].equal(expected[:, others])


def test_largest_numbers_do_not_overflow(dtype):
    x = torch.full((1, 2**16), 1.0, dtype=dtype)
    for sign in (1.0, -1.0):
        found = panels.multiply(sign * x, Product(pack_bytes(torch.ones(16, 2**16, dtype=dtype))))
        torch.testing.assert_close(found, sign * torch.full((1, 16), 2.0**16, dtype=dtype))
    top = torch.finfo(dtype).max / 2
    few = torch.tensor([[top, -top] * 8], dtype=dtype)
    assert panels.multiply(few, Product(pack_bytes(torch.eye(16, dtype=dtype)))).isfinite().all()


@pytest.mark.parametrize("rows", [1, 13, 200])
def test_threads_strides_and_other_rows_change_nothing(dtype, rows, threads):  # noqa: F811
    x, weight, bias, onto = drawn(dtype, rows, 384, 1536)
    product = Product(pack_bytes(weight), bias, True, Norm(weight[:, 0].contiguous(), bias, 1e-5))
    threads(1)
    expected = panels.multiply(x, product, onto)
    threads(3)
    assert panels.multiply(x.t().contiguous().t(), product, onto).equal(expected)
    assert panels.multiply(x[-1:], product, onto[-1:]).equal(expected[-1:])


def test_gelu_norms_and_gates_follow_as_of_other_products(dtype):
    x, weight, bias, onto = drawn(dtype, 26, 48, 64)
    y, norm, bound = by_numpy(x, weight, bias, onto), Norm(weight[:, 1].contiguous(), bias, 1e-3), 4 * ROUNDING[dtype]
    found = panels.multiply(x, Product(pack_bytes(weight), bias, gelu=True), onto).double()
    torch.testing.assert_close(found, gelu(y), rtol=bound, atol=bound)
    found = panels.multiply(x, Product(pack_bytes(weight), bias, norm=norm), onto).double()
    expected = layer_norm(y, (64,), norm.weight.double(), bias.double(), 1e-3)
    torch.testing.assert_close(found, expected, rtol=bound, atol=4 * bound)
    found = panels.multiply(x, Product(pack_bytes(weight), bias, gated=True)).double()
    inner, gate = by_numpy(x, weight, bias).split(32, 1)
    torch.testing.assert_close(found, gelu(inner) * gate, rtol=2 * bound, atol=40 * bound)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_close_to_its_formula_and_its_parts(dtype, kind, monkeypatch):
    options, offsets = KINDS[kind], offsets_of(LENGTHS)
    monkeypatch.setattr(test_panels_layer, "pack", pack_bytes)
    linears, norms = weights_of(dtype, options.get("gated", False))
    x, attention = drawn(dtype, sum(LENGTHS), WIDTH, 16)[0], Attention(offsets, 2)
    layer, before = layer_of(linears, norms, **options), x.clone()
    found, expected = panels.encode(x, [(layer, attention)]), exact_layer(x, offsets, linears, norms, **options)
    assert found.dtype == dtype and x.equal(before), "inputs are not modified"
    assert (found.double() - expected).norm() <= 0.03 * expected.norm()
    rows = torch.tensor([0, sum(LENGTHS) - 1, 0])
    for some in (rows, rows[:0]):
        assert panels.encode(x, [(layer, attention)], some).equal(found[some])
    twice = panels.encode(found, [(layer, attention)])
    assert panels.encode(x, [(layer, attention)] * 2).equal(twice)
    if layer.begin is None:
        read = panels.attend(panels.multiply(x, layer.qkv), attention)
        assert panels.transform(read, x, layer).equal(found)


def test_what_does_not_fit_is_refused(dtype):
    x, weight, bias, _ = drawn(dtype, 3, 48, 32)
    for wrong in (weight[:17], weight[:, :24], weight.double(), torch.empty(16, 2**16 + 16)):
        assert not panels.fits_bytes(wrong)
    assert panels.fits_bytes(weight)
    packed = pack_bytes(weight)
    for wrong in (packed[:, 1:], packed[:, :2], packed[:, :0], packed.float()):
        with pytest.raises(ValueError, match=r"panels|a matrix"):
            panels.multiply(x, Product(wrong.contiguous()))
    for wrong in (bias.double(), bias[:16], packed[0, 0]):
        with pytest.raises(ValueError, match="adjacent numbers"):
            panels.multiply(x, Product(packed, wrong))
    with pytest.raises(ValueError, match="a matrix is needed"):
        panels.multiply(x.double(), Product(packed))
    linears, norms = weights_of(dtype)
    qkv, out, up, _ = (Product(pack_bytes(weight), bias) for weight, bias in linears)
    with pytest.raises(ValueError, match="one type"):
        panels.Layer(qkv, out._replace(norm=norms[0]), up, Product(panels.pack(linears[3][0])))


def test_the_comparison_notices_a_planted_fault(dtype):
    x, weight, _, _ = drawn(dtype, 9, 48, 32)
    packed = pack_bytes(weight)
    packed[1, -1, -1] += -5 if packed[1, -1, -1] > 0 else 5
    found, expected = panels.multiply(x, Product(packed)), by_numpy(x, weight)
    assert ((found - expected).abs() > 2 * ROUNDING[dtype] * expected.abs().amax(1, keepdim=True)).any()
