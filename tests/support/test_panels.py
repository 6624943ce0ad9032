"""Products in panels equal those in float64, whatever the shapes and threads; a row does not depend on the others."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.nn.functional import gelu, layer_norm, linear

from unmask.support import panels
from unmask.support.panels import Norm, Product, pack

pytestmark = pytest.mark.skipif(not panels.registers(), reason="there was no compiler, or the processor has no AVX2")


@pytest.fixture(params=[256, 512], autouse=True)
def registers(request, monkeypatch):
    """Computes with registers of each size that this processor has."""
    if request.param > panels.registers():
        pytest.skip(f"the processor has no registers of {request.param} bits")
    monkeypatch.setattr(panels, "registers", lambda: request.param)


@pytest.fixture
def threads():
    """Set the number of threads, for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def drawn(rows, width, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, width), (outputs, width), (outputs,), (rows, outputs)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def exact(x, weight, bias=None, onto=None):
    y = x.double() @ weight.double().t()
    return sum((part.double() for part in (bias, onto) if part is not None), y)


@given(
    rows=st.integers(0, 70),
    width=st.sampled_from([1, 7, 384, 385, 900, 40_000]),
    count=st.integers(1, 4),
    has_bias=st.booleans(),
    has_onto=st.booleans(),
)
def test_products_are_those_in_float64(rows, width, count, has_bias, has_onto):
    x, weight, bias, onto = drawn(min(rows, 8) if width > 900 else rows, width, panels.WIDE * count)
    more = {"bias": bias if has_bias else None, "onto": onto if has_onto else None}
    found = panels.multiply(x, Product(pack(weight), more["bias"]), more["onto"])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact(x, weight, **more), rtol=0, atol=1e-6 * (4 + width**0.5) * 4)


def test_gelu_is_that_of_torch():
    x, weight = torch.linspace(-14, 14, 100_001)[:, None], torch.ones(16, 1)
    found = panels.multiply(x, Product(pack(weight), gelu=True))[:, 3].double()
    expected = gelu(x[:, 0].double())
    assert ((found - expected).abs() <= 3e-7 * (1 + expected.abs())).all()
    edges = torch.tensor([[0.0], [-0.0], [1e38], [-1e38], [float("inf")], [float("nan")]])
    found = panels.multiply(edges, Product(pack(weight), gelu=True))[:, 0]
    expected = torch.tensor(
        [0.0, 0.0, 1e38, 0.0, float("inf"), float("nan")]
    )  # torch's own of inf differs by processor
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_size_of_registers_changes_nothing(monkeypatch):
    x, weight, bias, onto = drawn(77, 1000, 48)
    product = Product(pack(weight), bias, True, Norm(weight[:, 0].contiguous(), bias, 1e-5))
    found = panels.multiply(x, product, onto)
    monkeypatch.setattr(panels, "registers", lambda: 256)
    assert torch.equal(panels.multiply(x, product, onto), found)


@pytest.mark.parametrize("rows", [1, 13, 200])
def test_threads_change_nothing(rows, threads):
    x, weight, bias, onto = drawn(rows, 384, 1536)
    product = Product(pack(weight), bias, True, Norm(weight[:, 0].contiguous(), bias, 1e-5))
    expected = panels.multiply(x, product, onto)
    threads(3)
    assert torch.equal(panels.multiply(x, product, onto), expected)


def test_a_row_does_not_depend_on_the_others():
    x, weight, bias, _ = drawn(300, 700, 32)
    product = Product(pack(weight), bias)
    whole = panels.multiply(x, product)
    for start, stop in ((0, 1), (1, 3), (3, 100), (7, 300)):
        assert torch.equal(panels.multiply(x[start:stop], product), whole[start:stop])


def test_strides_of_matrices_do_not_matter():
    x, weight, bias, onto = drawn(9, 48, 32)
    found = panels.multiply(x.t().contiguous().t(), Product(pack(weight), bias), onto.t().contiguous().t())
    torch.testing.assert_close(found.double(), exact(x, weight, bias, onto), rtol=0, atol=1e-4)


def test_what_is_not_a_number_stays_so():
    x, weight, _, _ = drawn(3, 48, 16)
    x[1, 5] = float("nan")
    x[2, 0] = float("inf")
    found = panels.multiply(x, Product(pack(weight)))
    assert found[0].isfinite().all() and found[1].isnan().all() and found[2].isinf().all()


@pytest.mark.parametrize("shift", [True, False], ids=["with bias", "without bias"])
@pytest.mark.parametrize("rows", [1, 26])
def test_norms_and_a_transformation_are_those_of_torch(rows, shift):
    x, weight, bias, onto = drawn(rows, 48, 32)
    inner, more, _, _ = drawn(48, 32, 48, seed=1)
    scale, other = weight[:, 1].contiguous(), weight[:, 2].contiguous()
    first = Product(pack(weight), bias, norm=Norm(scale, other if shift else None, 1e-3))
    y = layer_norm(exact(x, weight, bias, onto), (32,), scale.double(), other.double() if shift else None, 1e-3)
    torch.testing.assert_close(panels.multiply(x, first, onto).double(), y, rtol=0, atol=1e-5)
    up, down = Product(pack(inner), more[:, 0].contiguous(), gelu=True), Product(pack(inner.t().contiguous()), bias)
    hidden = gelu(exact(y, inner.double(), more[:, 0]))
    expected = exact(hidden, inner.t(), bias, y)
    found = panels.transform(x, onto, first, up, down)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scale", [1e37, 1e25, 1e19, 1.0])
def test_a_variance_that_overflows_is_not_a_number(scale):
    x, weight, bias, _ = drawn(1, 16, 32)
    for activation in (False, True):
        outputs = linear(scale * x, weight, bias)
        expected = layer_norm(gelu(outputs) if activation else outputs, (32,), bias, bias)
        found = panels.multiply(scale * x, Product(pack(weight), bias, activation, Norm(bias, bias, 1e-5)))
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_wrong_arguments_are_refused():
    x, weight, bias, onto = drawn(9, 48, 32)
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
        with pytest.raises(ValueError, match="float32 on the CPU"):
            panels.multiply(matrix, product, added)
    for wrong in (weight, packed.double(), packed[:, :, :8], packed.transpose(0, 1), packed[None]):
        with pytest.raises(ValueError, match="a weight in panels is needed"):
            panels.multiply(x, Product(wrong))
    with pytest.raises(ValueError, match="a matrix is needed"):
        panels.multiply(x[0], Product(packed))
    assert not panels.fits(weight[:17]) and not panels.fits(weight.double()) and not panels.fits(weight[:0])


def test_the_comparison_notices_a_planted_fault():
    x, weight, _, _ = drawn(9, 48, 32)
    packed = pack(weight)
    packed[1, 47, 15] += 0.01
    with pytest.raises(AssertionError):
        torch.testing.assert_close(panels.multiply(x, Product(packed)).double(), exact(x, weight), rtol=0, atol=1e-4)
