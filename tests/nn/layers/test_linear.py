"""Linear layers with oneDNN: outputs and gradients equal torch's."""

import re
from pathlib import Path

import pytest
import torch

from unmask.nn.layers import linear
from unmask.nn.layers.linear import Linear
from unmask.support import panels


@pytest.fixture(autouse=True)
def through_onednn(with_onednn):
    """Compute as on a CPU where oneDNN is faster."""


def results(layer, x, grad):
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    return y, *torch.autograd.grad(y, (x, *layer.parameters()), grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("bias", [True, False], ids=["with bias", "without bias"])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_outputs_and_gradients_equal_torchs(tokens, bias, dtype):
    ours = Linear(48, 31, bias=bias).to(dtype)
    theirs = torch.nn.Linear(48, 31, bias=bias).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x, grad = torch.randn(tokens, 48).to(dtype), torch.randn(tokens, 31).to(dtype)
    for one, other in zip(results(ours, x, grad), results(theirs, x, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-9)


def test_the_comparison_notices_a_planted_fault(monkeypatch):
    right = linear.product
    monkeypatch.setattr(linear, "product", lambda x, weight, bias=None: right(x, weight, bias) * 1.001)
    with pytest.raises(AssertionError):
        test_outputs_and_gradients_equal_torchs(7, True, torch.float32)


def test_what_needs_no_gradient_gets_none():
    layer, x = Linear(8, 8), torch.randn(3, 8)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad.tolist() == [3.0] * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_a_reordered_matrix_gives_the_same_products(rows, dtype, monkeypatch):
    x, weight, other = (torch.randn(*shape).to(dtype) for shape in ((rows, 48), (31, 48), (rows, 31)))
    expected = x.double() @ weight.double().t()
    close = {"rtol": 0.02, "atol": 0.1} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-4}
    for _ in range(2):  # the second time without oneDNN
        given = linear.packed(weight)
        torch.testing.assert_close(linear.product(x, given).double(), expected, **close)
        torch.testing.assert_close(linear.product_plus(x, given, other).double(), expected + other.double(), **close)
        monkeypatch.setattr(linear, "onednn_multiplies", lambda dtype: False)
    assert given is weight


def test_without_onednn_outputs_and_gradients_are_the_same(monkeypatch):
    layer, x, grad = Linear(48, 31), torch.randn(7, 48), torch.randn(7, 31)
    expected = results(layer, x, grad)
    monkeypatch.setattr(linear, "onednn_multiplies", lambda dtype: False)
    for one, other in zip(results(layer, x, grad), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "filled"), [(0, 0), (1, 1), (31, 31), (33, 34), (64, 64), (300, 304), (2049, 2176)])
def test_matrices_are_filled_up_to_few_numbers_of_rows(rows, filled):
    x = torch.randn(rows, 8).bfloat16()
    longer = linear.fill_up(x)
    assert len(longer) == (filled if linear.onednn_multiplies(x.dtype) else rows)
    assert torch.equal(longer[:rows], x)
    assert not longer[rows:].any()


def test_where_products_need_no_kernels_nothing_is_filled_up(monkeypatch):
    x = torch.randn(33, 8)
    assert len(linear.fill_up(x)) == (34 if linear.onednn_multiplies(x.dtype) else 33)
    monkeypatch.setattr(linear, "onednn_multiplies", lambda dtype: False)
    assert linear.fill_up(x) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_for_inference_a_layer_keeps_its_matrix_packed_until_it_changes(dtype):
    layer, few, many = Linear(48, 31).to(dtype), torch.randn(7, 48).to(dtype), torch.randn(300, 48).to(dtype)
    layer.keeps_packed = True
    for _ in range(2):
        with torch.no_grad():
            for x in (many, few, few):
                expected = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
                torch.testing.assert_close(layer(x).double(), expected, rtol=0.02, atol=0.02)
            kept = layer._kept
            assert kept is not None and layer._packed() is kept[1]
            layer.weight.mul_(2)
    assert layer(few).requires_grad


ACTIVATIONS = [torch.nn.GELU(), torch.nn.GELU(approximate="tanh"), torch.nn.ReLU()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("packs", [False, True], ids=["as it is", "packed"])
@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with bias"])
def test_an_activation_is_applied_with_gradient_and_without(bias, packs, activation, dtype):
    layer, x = Linear(48, 31, bias=bias).to(dtype), torch.randn(33, 48).to(dtype)
    layer.keeps_packed = packs
    own = None if layer.bias is None else layer.bias.double()
    expected = activation(torch.nn.functional.linear(x.double(), layer.weight.double(), own))
    atol = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(layer(x, activation).double(), expected, rtol=0, atol=atol)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, activation).double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_computes_in_few_shapes_what_it_computes_in_all(dtype, monkeypatch):
    """Outputs and gradients are those of the rows that were given; products have the rows of a filled-up matrix."""
    layer, x = Linear(16, 24).to(dtype), torch.randn(333, 16).to(dtype).requires_grad_()
    seen, fill = [], linear.fill_up

    def spy(rows):
        seen.append(len(fill(rows)))
        return fill(rows)

    monkeypatch.setattr(linear, "fill_up", spy)
    y = layer(x)
    assert seen == [336 if linear.onednn_multiplies(dtype) else 333]
    assert y.shape == (333, 24)
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, [x, layer.weight, layer.bias], grad)
    expected = torch.autograd.grad(
        torch.nn.functional.linear(x, layer.weight, layer.bias), [x, *layer.parameters()], grad
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 if dtype == torch.float32 else 0.1, rtol=1e-2)


@pytest.mark.skipif(not panels.has_tiles(), reason="the processor has no tiles")
@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with bias"])
@pytest.mark.parametrize(("width", "outputs"), [(32, 96), (384, 32), (96, 416), (48, 32)])
@pytest.mark.parametrize("rows", [1, 2, 15, 31, 33, 100, linear.FEW, linear.FEW + 1])
def test_with_tiles_few_rows_have_the_products_and_gradients_of_float64(rows, width, outputs, bias, monkeypatch):
    monkeypatch.setattr(linear, "panels_multiply", panels.multiplies)
    layer = Linear(width, outputs, bias=bias).to(torch.bfloat16)
    x, grad = torch.randn(rows, width).bfloat16().requires_grad_(), torch.randn(rows, outputs).bfloat16()
    y = layer(x)
    assert ("InTiles" in y.grad_fn.name()) == (rows <= linear.FEW and width % 32 == 0)
    found = torch.autograd.grad(y, [x, *layer.parameters()], grad)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, *layer.parameters())]
    expected = torch.nn.functional.linear(*exact)
    torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=1e-5)
    for one, other in zip(found, torch.autograd.grad(expected, exact, grad.double()), strict=True):
        of_bias = one.ndim == 1  # summed by torch
        torch.testing.assert_close(one.double(), other, rtol=2**-8, atol=2**-6 * rows**0.5 if of_bias else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("outputs", [31, 32])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS], ids=str)
def test_for_inference_a_layer_computes_in_panels_where_they_are_faster(activation, outputs, dtype, monkeypatch):
    if not panels.multiplies(dtype):
        pytest.skip("there are no products in panels")
    monkeypatch.setattr(linear, "panels_multiply", lambda dtype: True)
    layer, x = Linear(48, outputs).to(dtype), torch.randn(7, 48).to(dtype)
    layer.keeps_packed = True
    expected = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    expected = expected if activation is None else activation(expected)
    atol = 1e-5 if dtype == torch.float32 else 0.02
    with torch.no_grad():
        torch.testing.assert_close(layer(x, activation).double(), expected, rtol=0, atol=atol)
        assert (layer.in_panels() is not None) == (outputs == 32)  # panels are full
        other = torch.randn(7, outputs).to(dtype)
        plus = linear.product_plus(x, linear.packed(layer.weight), other).double()
        torch.testing.assert_close(plus, x.double() @ layer.weight.double().t() + other, rtol=0, atol=atol)
    assert layer.in_panels() is None and layer(x).requires_grad


def test_private_operators_are_called_only_where_a_trial_of_them_succeeded():
    package = Path(linear.__file__).parents[2]
    for path in package.rglob("*.py"):
        if "torch.ops.mkldnn" in (text := path.read_text(encoding="utf8")):
            assert "onednn_multiplies(" in text, path


def test_all_private_operators_are_tried():
    package = Path(linear.__file__).parents[2]
    used, tried = (
        set(re.findall(r"mkldnn\.(_\w+(?:\.\w+)?)", path.read_text(encoding="utf8").replace("operators.", "mkldnn.")))
        for path in (package / "nn/layers/linear.py", package / "support/capabilities.py")
    )
    assert used and used <= tried
