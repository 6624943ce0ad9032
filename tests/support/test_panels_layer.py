"""A layer in one call equals its formula in float64, and its parts in calls of their own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from unmask.support import panels
from unmask.support.panels import Attention, Layer, Norm, Product, pack

from .test_panels import dtype, pytestmark, threads  # noqa: F401
from .test_panels_attention import exact as attend_exactly
from .test_panels_attention import offsets_of

HEADS, WIDTH, INNER = 2, 64, 96
BOUND = {torch.float32: 1e-6, torch.bfloat16: 2**-6}
"""Largest error in proportion to the largest output."""
LENGTHS = (1, 17, 40, 5)
KINDS = {
    "post-norm": {},
    "post-norm, without biases": {"unbiased": True},
    "post-norm, gated": {"gated": True},
    "pre-norm": {"pre_norm": True, "begins": True},
    "first pre-norm layer, gated": {"pre_norm": True, "gated": True},
    "last pre-norm layer, gated": {"pre_norm": True, "gated": True, "begins": True, "ends": True},
}


def weights_of(dtype, gated=False):  # noqa: F811
    """Return four weights and biases, and three norms."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    shapes = (3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER * (1 + gated), WIDTH), (WIDTH, INNER)
    linears = [((draw(*shape) / shape[1] ** 0.5), draw(shape[0])) for shape in shapes]
    return linears, [Norm(1 + 0.3 * draw(WIDTH), draw(WIDTH), 1e-5) for _ in range(3)]


def layer_of(linears, norms, *, unbiased=False, pre_norm=False, gated=False, begins=False, ends=False):
    begin, middle, last = (norm._replace(bias=None) for norm in norms) if unbiased else norms
    packed = [(pack(weight), None if unbiased else bias) for weight, bias in linears]
    return Layer(
        Product(*packed[0]),
        Product(*packed[1], norm=middle),
        Product(*packed[2], gelu=not gated, gated=gated),
        Product(*packed[3], norm=last if ends or not pre_norm else None),
        begin=begin if begins else None,
        pre_norm=pre_norm,
    )


def exact(x, offsets, linears, norms, *, unbiased=False, pre_norm=False, gated=False, begins=False, ends=False):
    def multiply(x, linear):
        return x @ linear[0].double().t() + (0 if unbiased else linear[1].double())

    def normalize(x, norm):
        return layer_norm(x, (WIDTH,), norm.weight.double(), None if unbiased else norm.bias.double(), norm.epsilon)

    x = x.double()
    qkv = multiply(normalize(x, norms[0]) if begins else x, linears[0])
    z = multiply(attend_exactly(qkv, offsets, HEADS)[0], linears[1]) + x
    unit = normalize(z, norms[1])
    up = multiply(unit, linears[2])
    between = gelu(up[:, :INNER]) * up[:, INNER:] if gated else gelu(up)
    y = multiply(between, linears[3]) + (z if pre_norm else unit)
    return normalize(y, norms[2]) if ends or not pre_norm else y


def drawn(dtype, rows):  # noqa: F811
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(1,), LENGTHS])
def test_a_layer_is_its_formula(dtype, lengths, kind):  # noqa: F811
    options, offsets, x = KINDS[kind], offsets_of(lengths), drawn(dtype, sum(lengths))
    linears, norms = weights_of(dtype, options.get("gated", False))
    layer, attention, before = layer_of(linears, norms, **options), Attention(offsets, HEADS), x.clone()
    expected, found = exact(x, offsets, linears, norms, **options), panels.encode(x, [(layer, attention)])
    assert found.dtype == dtype and x.equal(before), "inputs are not modified"
    assert (found.double() - expected).abs().max() <= BOUND[dtype] * expected.abs().max()
    rows = torch.tensor([0, sum(lengths) - 1, 0])
    for some in (rows, rows[:0]):
        assert panels.encode(x, [(layer, attention)], some).equal(found[some])
    if layer.begin is None:
        read = panels.attend(panels.multiply(x, layer.qkv), attention)
        assert panels.transform(read, x, layer).equal(found)


@pytest.mark.parametrize("reach", [{}, {"before": 3, "after": 1}, {"before": 0, "after": 0}, {"after": 0}], ids=str)
@pytest.mark.parametrize("kind", ["post-norm", "post-norm, without biases", "pre-norm"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 1.0])
def test_the_output_of_some_rows_is_that_among_all(dtype, share, kind, reach, threads):  # noqa: F811
    threads(2)
    offsets, generator = offsets_of((1, 17, 90, 5, 40)), torch.Generator().manual_seed(round(100 * share))
    x, layer = drawn(dtype, 153), layer_of(*weights_of(dtype), **KINDS[kind])
    attention = Attention(offsets, HEADS)._replace(**reach)
    rows = torch.randperm(153, generator=generator)[: max(1, round(share * 153))]
    assert panels.encode(x, [(layer, attention)], rows).equal(panels.encode(x, [(layer, attention)])[rows])


def test_calls_at_the_same_time_do_not_disturb_each_other(dtype, threads):  # noqa: F811
    threads(3)
    layers = [(layer_of(*weights_of(dtype)), Attention(offsets_of((90, 40, 100)), HEADS))] * 4
    inputs = [drawn(dtype, 230) * (1 + number) for number in range(6)]
    expected = [panels.encode(x, layers) for x in inputs]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            found = pool.map(lambda x: panels.encode(x, layers), inputs)
            assert all(map(torch.equal, found, expected))


def test_threads_and_other_sequences_change_nothing(dtype, threads):  # noqa: F811
    linears, norms = weights_of(dtype)
    layer, x = layer_of(linears, norms), drawn(dtype, sum(LENGTHS))
    threads(1)
    expected = panels.encode(x, [(layer, Attention(offsets_of(LENGTHS), HEADS))])
    threads(3)
    assert panels.encode(x, [(layer, Attention(offsets_of(LENGTHS), HEADS))]).equal(expected)
    for part, whole in zip(x.split(LENGTHS), expected.split(LENGTHS), strict=True):
        assert panels.encode(part, [(layer, Attention(offsets_of([len(part)]), HEADS))]).equal(whole)


@pytest.mark.parametrize("count", [2, 3, 66])
def test_layers_in_one_call_are_those_in_calls_of_their_own(dtype, count):  # noqa: F811
    x, attention, rows = drawn(dtype, sum(LENGTHS)), Attention(offsets_of(LENGTHS), HEADS), torch.tensor([3, 0])
    different = attention._replace(before=2, after=0)
    layers = [(layer_of(*weights_of(dtype)), different if number % 3 else attention) for number in range(count)]
    expected, before = x, x.clone()
    for layer in layers:
        expected = panels.encode(expected, [layer])
    assert panels.encode(x, layers).equal(expected) and x.equal(before)
    assert panels.encode(x, layers, rows).equal(expected[rows])
    assert not panels.encode(x, [(layer, attention) for layer, _ in layers]).equal(expected)


def test_layers_of_different_numbers_are_refused(dtype):  # noqa: F811
    layers = [(layer_of(*weights_of(dtype)), Attention(offsets_of([3]), HEADS)) for _ in range(2)]
    for other in {torch.float32, torch.bfloat16} - {dtype}:
        if panels.multiplies(other):
            with pytest.raises(ValueError, match="one type"):
                panels.encode(drawn(dtype, 3), [*layers, (layer_of(*weights_of(other)), layers[0][1])])


def test_products_that_are_no_layer_are_refused(dtype):  # noqa: F811
    linears, norms = weights_of(dtype)
    qkv, out, up, down = (Product(pack(weight), bias) for weight, bias in linears)
    out, up, norm = out._replace(norm=norms[0]), up._replace(gelu=True), norms[0]
    for wrong in ((out, out, up, down), (qkv, qkv, up, down), (qkv, out, down, down), (qkv, out, up, up)):
        with pytest.raises(ValueError, match=r"widths|alone"):
            Layer(*wrong)
    for wrong in (
        (qkv._replace(gelu=True), out, up, down),
        (qkv, out._replace(norm=None), up, down),
        (qkv, out, up._replace(norm=Norm(linears[2][1], None, 1.0)), down),
        (qkv, out, up, down._replace(gelu=True)),
    ):
        with pytest.raises(ValueError, match="alone"):
            Layer(*wrong)
    others = {torch.float32, torch.bfloat16} - {dtype}
    for wrong in (pack(linears[3][0].to(other)) for other in others if panels.multiplies(other)):
        with pytest.raises(ValueError, match="one type"):
            Layer(qkv, out, up, Product(wrong))
    for change in ({"norm": Norm(norm.weight[:16], None, 1.0)}, {"bias": linears[2][1]}):
        with pytest.raises(ValueError, match="adjacent numbers"):
            Layer(qkv, out._replace(**{"norm": norm, **change}), up, down)
    with pytest.raises(ValueError, match="adjacent numbers"):
        Layer(qkv, out, up, down, begin=Norm(norm.weight.double(), None, 1.0))


def test_wrong_arguments_are_refused(dtype):  # noqa: F811
    linears, norms = weights_of(dtype)
    layer, x, attention = layer_of(linears, norms), drawn(dtype, 3), Attention(offsets_of([3]), HEADS)
    for wrong in (x.double(), x[:, :16], x[0]):
        with pytest.raises(ValueError, match="a matrix 64 wide"):
            panels.encode(wrong, [(layer, attention)])
    for wrong in (torch.tensor([0], dtype=torch.int32), torch.tensor([[0]])):
        with pytest.raises(ValueError, match="numbers of rows"):
            panels.encode(x, [(layer, attention)], wrong)
    for wrong in (3, -1):
        with pytest.raises(IndexError, match="not there"):
            panels.encode(x, [(layer, attention)], torch.tensor([0, wrong]))
    for wrong in (Attention(offsets_of([4]), HEADS), Attention(offsets_of([3]), 8)):
        with pytest.raises(ValueError, match=r"ascend|full panels"):
            panels.encode(x, [(layer, wrong)])
