"""Products in panels equal those in float64, whatever the shapes and threads; a row does not depend on the others."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch.nn.functional import gelu, layer_norm, linear

from unmask.support import panels
from unmask.support.panels import Norm, Product, pack

pytestmark = pytest.mark.skipif(not panels.registers(), reason="there was no compiler, or the processor has no AVX2")


NUMBERS = [
    (256, torch.float32, False),
    (512, torch.float32, False),
    (512, torch.bfloat16, False),
    (512, torch.bfloat16, True),
]
"""Sizes of registers, types of numbers, and whether there are tiles."""
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2**-8}
"""Largest relative error by which outputs are rounded; in float32 bounds are absolute."""


@pytest.fixture(
    params=NUMBERS, ids=lambda numbers: f"{numbers[1]}-{'tiles' if numbers[2] else numbers[0]}", autouse=True
)
def dtype(request, monkeypatch):
    """Compute with registers of each size and numbers of each type that this processor has; the type of the numbers."""
    size, dtype, tiles = request.param
    if size > panels.registers() or not panels.multiplies(dtype):
        pytest.skip(f"the processor has no registers of {size} bits for {dtype}")
    if tiles and not panels.has_tiles():
        pytest.skip("the processor has no tiles")
    monkeypatch.setattr(panels, "registers", lambda: size)
    monkeypatch.setattr(panels, "has_tiles", lambda: tiles)
    return dtype


@pytest.fixture
def threads():
    """Set the number of threads, for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def drawn(dtype, rows, width, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, width), (outputs, width), (outputs,), (rows, outputs)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]


def exact(x, weight, bias=None, onto=None):
    y = x.double() @ weight.double().t()
    return sum((part.double() for part in (bias, onto) if part is not None), y)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(0, 70),
    width=st.sampled_from([1, 7, 384, 385, 900, 40_000]),
    count=st.integers(1, 4),
    has_bias=st.booleans(),
    has_onto=st.booleans(),
)
def test_products_are_those_in_float64(dtype, rows, width, count, has_bias, has_onto):
    width += dtype == torch.bfloat16 and width % 2
    x, weight, bias, onto = drawn(dtype, min(rows, 8) if width > 900 else rows, width, panels.WIDE * count)
    more = {"bias": bias if has_bias else None, "onto": onto if has_onto else None}
    found = panels.multiply(x, Product(pack(weight), more["bias"]), more["onto"])
    assert found.dtype == dtype
    rounding, atol = ROUNDING[dtype], 1e-6 * (4 + width**0.5) * 4
    torch.testing.assert_close(found.double(), exact(x, weight, **more), rtol=rounding, atol=atol)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.sampled_from([1, 2, 31, 32, 33, 64, 100]), columns=st.sampled_from([16, 32, 48, 400]))
def test_matrices_are_arranged_as_torch_would(dtype, rows, columns):
    if dtype != torch.bfloat16:
        pytest.skip("in float32 torch arranges them")
    (matrix, weight, *_) = drawn(dtype, rows, columns, 48)
    expected = weight.reshape(3, 16, columns // 2, 2).transpose(1, 2).reshape(3, columns // 2, 32)
    assert torch.equal(pack(weight), expected)
    filled = torch.zeros(-(-rows // panels.DEEP) * panels.DEEP, columns, dtype=dtype)
    filled[:rows] = matrix
    assert torch.equal(panels.transpose(matrix), filled.t())
    assert torch.equal(panels.pack_columns(matrix), pack(filled.t().contiguous()))
    assert torch.equal(panels.transpose(matrix.t().contiguous().t()), filled.t())
    for wrong in (matrix[:, :15], matrix.float()):
        with pytest.raises(ValueError, match="whole panels"):
            panels.pack_columns(wrong)
    with pytest.raises(ValueError, match="whole panels"):
        pack(weight[:17])


def test_gelu_is_that_of_torch(dtype):
    def found(x):
        column = torch.stack([x, torch.zeros_like(x)], 1)
        return panels.multiply(column, Product(pack(torch.ones(16, 2, dtype=dtype)), gelu=True))[:, 3]

    x = torch.linspace(-14, 14, 100_001).to(dtype)
    expected = gelu(x.double())
    assert ((found(x) - expected).abs() <= 3e-7 * (1 + expected.abs()) + ROUNDING[dtype] * expected.abs()).all()
    edges = torch.tensor([0.0, -0.0, 1e38, -1e38, float("inf"), float("nan")]).to(dtype)
    none, infinite, unknown = 0.0, float("inf"), float("nan")  # torch's own of inf differs by processor
    expected = torch.tensor([none, none, 1e38, none, infinite, unknown]).to(dtype)
    torch.testing.assert_close(found(edges), expected, equal_nan=True)


def test_the_size_of_registers_changes_nothing(dtype, monkeypatch):
    x, weight, bias, onto = drawn(dtype, 77, 1000, 48)
    product = Product(pack(weight), bias, True, Norm(weight[:, 0].contiguous(), bias, 1e-5))
    found = panels.multiply(x, product, onto)
    monkeypatch.setattr(panels, "registers", lambda: 256)
    assert torch.equal(panels.multiply(x, product, onto), found)


@pytest.mark.parametrize("rows", [1, 13, 200])
def test_threads_change_nothing(dtype, rows, threads):
    x, weight, bias, onto = drawn(dtype, rows, 384, 1536)
    product = Product(pack(weight), bias, True, Norm(weight[:, 0].contiguous(), bias, 1e-5))
    expected = panels.multiply(x, product, onto)
    threads(3)
    assert torch.equal(panels.multiply(x, product, onto), expected)


def test_a_row_does_not_depend_on_the_others(dtype):
    x, weight, bias, _ = drawn(dtype, 300, 700, 32)
    product = Product(pack(weight), bias)
    whole = panels.multiply(x, product)
    for start, stop in ((0, 1), (1, 3), (3, 100), (7, 300)):
        assert torch.equal(panels.multiply(x[start:stop], product), whole[start:stop])


def test_strides_of_matrices_do_not_matter(dtype):
    x, weight, bias, onto = drawn(dtype, 9, 48, 32)
    found = panels.multiply(x.t().contiguous().t(), Product(pack(weight), bias), onto.t().contiguous().t())
    torch.testing.assert_close(found.double(), exact(x, weight, bias, onto), rtol=ROUNDING[dtype], atol=1e-4)


def test_what_is_not_a_number_stays_so(dtype):
    x, weight, _, _ = drawn(dtype, 3, 48, 16)
    x[1, 5] = float("nan")
    x[2, 0] = float("inf")
    found = panels.multiply(x, Product(pack(weight)))
    assert found[0].isfinite().all() and found[1].isnan().all() and found[2].isinf().all()


@pytest.mark.parametrize("shift", [True, False], ids=["with bias", "without bias"])
@pytest.mark.parametrize("rows", [1, 26])
def test_norms_are_those_of_torch(dtype, rows, shift):
    x, weight, bias, onto = drawn(dtype, rows, 48, 32)
    scale, other = weight[:, 1].contiguous(), weight[:, 2].contiguous()
    product = Product(pack(weight), bias, norm=Norm(scale, other if shift else None, 1e-3))
    y = layer_norm(exact(x, weight, bias, onto), (32,), scale.double(), other.double() if shift else None, 1e-3)
    bound = 4 * ROUNDING[dtype]  # in bf16 rows are rounded before they are normalized
    torch.testing.assert_close(panels.multiply(x, product, onto).double(), y, rtol=bound, atol=2 * bound or 1e-5)


def test_gates_are_of_whole_panels_without_gelu_or_norm_of_both_halves(dtype):
    x, weight, bias, _ = drawn(dtype, 3, 48, 48)
    norm = Norm(bias[:32].contiguous(), None, 1e-3)
    for outputs, more in ((48, {}), (32, {"gelu": True}), (32, {"norm": norm})):
        with pytest.raises(ValueError, match="a gate needs"):
            panels.multiply(x, Product(pack(weight[:outputs]), gated=True, **more))
    found = panels.multiply(x, Product(pack(weight[:32]), gated=True)).double()
    inner, gate = exact(x, weight[:32]).split(16, 1)
    torch.testing.assert_close(
        found, gelu(inner) * gate, rtol=4 * ROUNDING[dtype] or 1e-6, atol=100 * ROUNDING[dtype] or 1e-4
    )


@pytest.mark.parametrize("scale", [1e37, 1e25, 1e19, 1.0])
def test_a_variance_that_overflows_is_not_a_number(dtype, scale):
    x, weight, bias, _ = drawn(dtype, 1, 16, 32)
    for activation in (False, True):
        outputs = linear(scale * x, weight, bias)
        expected = layer_norm(gelu(outputs) if activation else outputs, (32,), bias, bias)
        found = panels.multiply(scale * x, Product(pack(weight), bias, activation, Norm(bias, bias, 1e-5)))
        bound = max(1e-4, 4 * ROUNDING[dtype])
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=bound, atol=bound)


def test_wrong_arguments_are_refused(dtype):
    x, weight, bias, onto = drawn(dtype, 9, 48, 32)
    packed = pack(weight)
    for matrix, product, added in (
        (x.double(), Product(packed), None),
        (x[:, :40], Product(packed), None),
        (x, Product(packed, bias[:16]), None),
        (x, Product(packed, bias.repeat(2)[::2]), None),
        (x, Product(packed, norm=Norm(bias.double(), None, 1e-5)), None),
        (x, Product(packed, norm=Norm(None, None, 1e-5)), None),
        (x, Product(packed), onto[:4]),
    ):
        with pytest.raises(ValueError, match=f"in {str(dtype).removeprefix('torch.')} on the CPU"):
            panels.multiply(matrix, product, added)
    for wrong in (weight, packed.double(), packed[:, :, :8], packed.transpose(0, 1), packed[None]):
        with pytest.raises(ValueError, match="a weight in panels is needed"):
            panels.multiply(x, Product(wrong))
    with pytest.raises(ValueError, match="a matrix is needed"):
        panels.multiply(x[0], Product(packed))
    assert not panels.fits(weight[:17]) and not panels.fits(weight.double()) and not panels.fits(weight[:0])


def test_the_comparison_notices_a_planted_fault(dtype):
    x, weight, _, _ = drawn(dtype, 9, 48, 32)
    packed = pack(weight)
    packed[1, -1, -1] += 0.01 if dtype == torch.float32 else 0.1
    found, expected = panels.multiply(x, Product(packed)).double(), exact(x, weight)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found, expected, rtol=ROUNDING[dtype], atol=1e-4)
