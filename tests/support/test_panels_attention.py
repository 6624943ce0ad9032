"""Attention in panels and its gradient equal those in float64, for any lengths and threads."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from unmask.nn.layers.rotary import Rotation
from unmask.support import panels
from unmask.support.panels import Attention

from .test_panels import dtype, pytestmark, threads  # noqa: F401

HEADS = 3
ATOL = 2e-5
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2**-8}
"""Largest relative error by which probabilities and outputs are rounded."""
OF_GRADIENTS = {torch.float32: 1e-6, torch.bfloat16: 2**-6}
"""The same in proportion to the largest gradient: of the sums of many products of what is rounded."""
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 8, 15, 16, 17, 35, 36, 37, 48, 100]), min_size=1, max_size=6)
ROTATIONS = st.sampled_from([None, Rotation(), Rotation(interleaved=True)])
REACH = st.sampled_from([None, 0, 1, 15, 16, 30, 10**12])
SEQUENCES = {
    "lengths": LENGTHS,
    "size": st.sampled_from([16, 32, 48, 64]),
    "heads": st.integers(1, 3),
    "rotation": ROTATIONS,
    "more": st.integers(0, 3),
    "before": REACH,
    "after": REACH,
}


def offsets_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def exact(qkv, offsets, heads=HEADS, rotation=None, before=None, after=None, kept=None, rounded=torch.float64):
    """Return the outputs in float64, one sequence at a time, and the same if all values were positive.

    `kept` are the factors of the probabilities, (heads, rows, rows); rotated queries and keys are `rounded` to a type.
    """
    outputs, sizes = [], []
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        size = qkv.shape[1] // (3 * heads)
        query, key, value = qkv[start:stop].double().view(stop - start, 3, heads, size).permute(1, 2, 0, 3)
        if rotation is not None and stop > start:
            tables = rotation.tables(stop - start, size, query)
            query, key = (rotation.rotate(x, *tables).to(rounded).double() for x in (query, key))
        distances = torch.arange(stop - start) - torch.arange(stop - start)[:, None]
        attended = distances >= -(len(qkv) if before is None else before)
        attended &= distances <= (len(qkv) if after is None else after)
        scores = (query @ key.transpose(1, 2) / size**0.5).masked_fill(~attended, -math.inf)
        probabilities = scores.softmax(2) * (1 if kept is None else kept[:, start:stop, start:stop])
        outputs.append((probabilities @ value).transpose(0, 1).flatten(1))
        sizes.append((probabilities @ value.abs()).transpose(0, 1).flatten(1))
    return torch.cat(outputs), torch.cat(sizes)


def attention_of(qkv, offsets, heads=HEADS, rotation=None, **options):
    if rotation is None:
        return Attention(offsets, heads, **options)
    tables = rotation.tables(int(offsets.diff().max()), qkv.shape[1] // (3 * heads), torch.empty(0))
    return Attention(offsets, heads, tables, rotation.interleaved, **options)


def compute(qkv, offsets, *arguments, **options):
    return panels.attend(qkv, attention_of(qkv, offsets, *arguments, **options))


def gradient(qkv, grad, attention):
    sums = torch.empty(len(qkv), attention.heads, 2)
    y = panels.attend(qkv, attention, sums)
    return panels.attend_back(grad, qkv, y, attention, sums)


def check(found, expected, dtype, factor=1, atol=ATOL):  # noqa: F811
    """Check outputs, rows of no sequence included, against those of `exact`."""
    outputs, sizes = expected
    assert not found[len(outputs) :].any()
    error = (found[: len(outputs)].double() - outputs).abs()
    assert (error <= atol + factor * ROUNDING[dtype] * (sizes + outputs.abs())).all(), float(error.max())


def drawn(dtype, rows, size=32, heads=HEADS, parts=3, seed=0):  # noqa: F811
    return torch.randn(rows, parts * heads * size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def kept_of(attention, rows, size=32):
    """Return the factors that dropout has for the probabilities, (heads, rows, rows), read from outputs.

    Scores are all 0, so that probabilities are equal, and the values of each call are those of an identity matrix.
    """
    kept = torch.zeros(attention.heads, rows, rows)
    for first in range(0, rows, size):
        qkv = torch.zeros(rows, 3, attention.heads, size)
        columns = range(first, min(first + size, rows))
        for column in columns:
            qkv[column, 2, :, column - first] = 1
        y = panels.attend(qkv.flatten(1), attention).view(rows, attention.heads, size)
        kept[:, :, list(columns)] = y.transpose(0, 1)[:, :, : len(columns)]
    lengths = attention.offsets.diff()
    return kept * lengths.repeat_interleave(lengths)[:, None]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(**SEQUENCES)
def test_outputs_are_those_in_float64(dtype, lengths, size, heads, rotation, more, **seen):  # noqa: F811
    offsets = offsets_of(lengths)
    qkv = 2 * drawn(dtype, sum(lengths) + more, size, heads)
    before = qkv.clone()
    found = compute(qkv, offsets, heads, rotation, **seen)
    assert found.dtype == dtype and qkv.equal(before), "inputs are not modified"
    # a few rotated numbers are rounded the other way, as they are rotated in float32
    factor = 1 if rotation is None else 2
    check(found, exact(qkv, offsets, heads, rotation, rounded=dtype, **seen), dtype, factor)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(**SEQUENCES, dropout=st.sampled_from([0.0, 0.1, 0.9]))
def test_gradients_are_those_in_float64(dtype, lengths, size, heads, rotation, more, dropout, **seen):  # noqa: F811
    offsets, rows = offsets_of(lengths), sum(lengths)
    qkv, grad = drawn(dtype, rows + more, size, heads), drawn(dtype, rows + more, size, heads, parts=1, seed=1)
    attention = attention_of(qkv, offsets, heads, rotation, dropout=dropout, seed=7, **seen)
    before = qkv.clone(), grad.clone()
    found = gradient(qkv, grad, attention)
    assert found.dtype == dtype and qkv.equal(before[0]) and grad.equal(before[1]), "inputs are not modified"
    assert not found[rows:].any()
    leaf = qkv[:rows].double().requires_grad_()
    kept = kept_of(attention._replace(tables=None, before=None, after=None), rows) if dropout else None
    exact(leaf, offsets, heads, rotation, kept=kept, **seen)[0].backward(grad[:rows].double())
    error, largest = (found[:rows].double() - leaf.grad).abs(), leaf.grad.abs().max() if rows else 0
    assert (error <= ATOL + OF_GRADIENTS[dtype] * largest).all(), float(error.max())


def test_dropout_sets_a_share_of_the_probabilities_to_zero():
    attention = Attention(offsets_of([256]), HEADS, dropout=0.1, seed=3)
    kept = kept_of(attention, 256)
    torch.testing.assert_close(kept[kept != 0], torch.full([int((kept != 0).sum())], 1 / 0.9))
    dropped = (kept == 0).float()
    share, number = dropped.mean().item(), dropped.numel()
    assert abs(share - 0.1) < 4 * (0.1 * 0.9 / number) ** 0.5
    for dim in (0, 1, 2):  # neighbours are dropped independently of each other
        both = (dropped.narrow(dim, 1, dropped.shape[dim] - 1) * dropped.narrow(dim, 0, dropped.shape[dim] - 1)).mean()
        assert abs(both - share**2) < 4 * (share**2 / number) ** 0.5
    for dim in (1, 2):  # rows and columns are dropped from as often as by chance
        counts = dropped.sum(dim)
        expected = 0.1 * 0.9 * dropped.shape[dim]
        assert 0.7 * expected < counts.var() < 1.3 * expected
    assert kept_of(attention, 256).equal(kept)
    assert not kept_of(attention._replace(seed=4), 256).equal(kept)


def test_a_window_drops_what_would_be_dropped_without_it():
    attention = Attention(offsets_of([100]), HEADS, dropout=0.3, seed=3)
    whole, qkv = kept_of(attention, 100), drawn(torch.float32, 100)
    found = panels.attend(qkv, attention._replace(before=20, after=3))
    check(found, exact(qkv, attention.offsets, before=20, after=3, kept=whole), torch.float32)


@pytest.mark.parametrize("window", [None, 64, 500])
def test_a_long_sequence_is_computed_in_parts(dtype, window):  # noqa: F811
    qkv, offsets, seen = drawn(dtype, 1300), offsets_of([1300]), {"before": window, "after": window}
    check(compute(qkv, offsets, **seen), exact(qkv, offsets, **seen), dtype)


def test_threads_change_nothing(dtype, threads):  # noqa: F811
    qkv, offsets = drawn(dtype, 400), offsets_of([1, 99, 300])
    attention, grad = attention_of(qkv, offsets, dropout=0.1, seed=1), drawn(dtype, 400, parts=1)
    threads(1)
    expected = panels.attend(qkv, attention), gradient(qkv, grad, attention)
    threads(3)
    assert panels.attend(qkv, attention).equal(expected[0])
    assert gradient(qkv, grad, attention).equal(expected[1])


def test_a_sequence_does_not_depend_on_the_others(dtype):  # noqa: F811
    qkv, lengths = drawn(dtype, 400), [1, 99, 300]
    whole = compute(qkv, offsets_of(lengths)).split(lengths)
    for part, length, expected in zip(qkv.split(lengths), lengths, whole, strict=True):
        assert compute(part.contiguous(), offsets_of([length])).equal(expected)


def test_what_is_not_a_number_stays_in_its_sequence_and_head(dtype):  # noqa: F811
    qkv, offsets = drawn(dtype, 60), offsets_of([20, 40])
    for column in (0, HEADS * 32, 2 * HEADS * 32):  # of a query, a key and a value of the first head
        for value in (float("nan"), float("inf")):
            changed = qkv.clone()
            changed[25, column] = value
            found, (expected, _) = compute(changed, offsets), exact(changed, offsets)
            assert found.isnan().equal(expected.isnan()) or value == float("inf")
            of_qkv = gradient(changed, drawn(dtype, 60, parts=1), attention_of(changed, offsets))
            for x in (found, *of_qkv.split(HEADS * 32, 1)):
                assert x[:20].isfinite().all() and x[:, 32:].isfinite().all()
            assert not found[20:, :32].isfinite().all() and not of_qkv[20:].isfinite().all()


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e15])
def test_scores_of_any_size_have_probabilities(dtype, scale):  # noqa: F811
    qkv, offsets = drawn(dtype, 30), offsets_of([30])
    qkv[:, : HEADS * 32] *= scale
    check(compute(qkv, offsets), exact(qkv, offsets), dtype, atol=4 * ATOL)
    assert gradient(qkv, drawn(dtype, 30, parts=1), attention_of(qkv, offsets)).isfinite().all()


def test_wrong_arguments_are_refused(dtype):  # noqa: F811
    qkv, offsets = drawn(dtype, 30), offsets_of([10, 20])
    for matrix, heads in ((qkv.double(), HEADS), (qkv[:, :-1], HEADS), (qkv.t(), HEADS), (qkv[0], HEADS), (qkv, 4)):
        with pytest.raises(ValueError, match="a matrix of queries, keys and values"):
            panels.attend(matrix, Attention(offsets, heads))
    for wrong in (offsets.long(), offsets[None], offsets.repeat(2)[::2], offsets[:0]):
        with pytest.raises(ValueError, match="offsets are needed"):
            panels.attend(qkv, Attention(wrong, HEADS))
    for wrong in ([0, 31], [0, 20, 10], [-1, 30], [0, 2**31 - 1]):
        with pytest.raises(ValueError, match="ascend"):
            panels.attend(qkv, Attention(torch.tensor(wrong, dtype=torch.int32), HEADS))
    for seen in ({"before": -1}, {"after": -1}):
        with pytest.raises(ValueError, match="at least 0"):
            panels.attend(qkv, Attention(offsets, HEADS, **seen))
    for random in ({"dropout": 1.0}, {"dropout": -0.1}, {"dropout": math.nan}, {"seed": -1}):
        with pytest.raises(ValueError, match="the share of probabilities"):
            panels.attend(qkv, Attention(offsets, HEADS, **random))
    table = torch.zeros(20, 16)
    for wrong in (table.double(), table[:, :8], table[:19], table.t()):
        with pytest.raises(ValueError, match="table"):
            panels.attend(qkv, Attention(offsets, HEADS, (wrong, wrong)))
    sums, y = torch.zeros(30, HEADS, 2), torch.zeros(30, HEADS * 32, dtype=dtype)
    for wrong in (sums.double(), sums[:29], sums.flatten(1), sums.flip(0).mT.contiguous().mT):
        with pytest.raises(ValueError, match="two sums are needed"):
            panels.attend(qkv, Attention(offsets, HEADS), wrong)
    for wrong in (y.double(), y[:29], y[:, 1:], y.t().contiguous().t()):
        with pytest.raises(ValueError, match="outputs"):
            panels.attend_back(y, qkv, wrong, Attention(offsets, HEADS), sums)
        if wrong.is_contiguous():
            with pytest.raises(ValueError, match="outputs"):
                panels.attend_back(wrong, qkv, y, Attention(offsets, HEADS), sums)


def test_the_comparison_notices_a_planted_fault(dtype):  # noqa: F811
    qkv = drawn(dtype, 30)
    found = compute(qkv, offsets_of([30]))
    with pytest.raises(AssertionError):
        check(found, exact(qkv, offsets_of([10, 20])), dtype)
