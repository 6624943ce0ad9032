"""Attention in panels equals that in float64, for any lengths and threads; a sequence does not depend on others."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch.nn.functional import scaled_dot_product_attention

from unmask.nn.layers.rotary import Rotation
from unmask.support import panels

from .test_panels import dtype, pytestmark, threads  # noqa: F401

HEADS = 3
ATOL = 2e-5
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2**-8}
"""Largest relative error by which outputs are rounded."""


def offsets_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def exact(qkv, offsets, heads=HEADS, rotation=None, before=None, after=None):
    """Return the outputs in float64, one sequence at a time."""
    outputs = torch.zeros(len(qkv), qkv.shape[1] // 3, dtype=torch.float64)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        parts = qkv[start:stop].double().view(stop - start, 3, heads, qkv.shape[1] // (3 * heads)).permute(1, 2, 0, 3)
        query, key, value = parts
        if rotation is not None and stop > start:
            tables = rotation.tables(stop - start, query.shape[-1], query)
            query, key = (rotation.rotate(x, *tables) for x in (query, key))
        distances = torch.arange(stop - start) - torch.arange(stop - start)[:, None]
        attended = torch.ones_like(distances, dtype=torch.bool)
        attended &= distances >= -(len(qkv) if before is None else before)
        attended &= distances <= (len(qkv) if after is None else after)
        outputs[start:stop] = scaled_dot_product_attention(query, key, value, attended).transpose(0, 1).flatten(1)
    return outputs


def compute(qkv, offsets, heads=HEADS, rotation=None, **seen):
    if rotation is None:
        return panels.attend(qkv, offsets, heads, **seen)
    longest, size = int(offsets.diff().max()), qkv.shape[1] // (3 * heads)
    tables = rotation.tables(longest, size, torch.empty(0))
    return panels.attend(qkv, offsets, heads, tables, adjacent=rotation.interleaved, **seen)


def drawn(dtype, rows, size=32, heads=HEADS):  # noqa: F811
    return torch.randn(rows, 3 * heads * size, generator=torch.Generator().manual_seed(0)).to(dtype)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 8, 15, 16, 17, 35, 36, 37, 48, 100]), min_size=1, max_size=6),
    size=st.sampled_from([16, 32, 48, 64]),
    heads=st.integers(1, 3),
    rotation=st.sampled_from([None, Rotation(), Rotation(interleaved=True)]),
    more=st.integers(0, 3),
    before=st.sampled_from([None, 0, 1, 15, 16, 30, 10**12]),
    after=st.sampled_from([None, 0, 1, 15, 16, 30, 10**12]),
)
def test_outputs_are_those_in_float64(dtype, lengths, size, heads, rotation, more, **seen):  # noqa: F811
    offsets = offsets_of(lengths)
    qkv = 2 * drawn(dtype, sum(lengths) + more, size, heads)
    before = qkv.clone()
    found = compute(qkv, offsets, heads, rotation, **seen)
    assert found.dtype == dtype and qkv.equal(before), "inputs are not modified"
    assert not found[sum(lengths) :].any()
    expected = exact(qkv, offsets, heads, rotation, **seen)
    torch.testing.assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=ATOL)


@pytest.mark.parametrize("window", [None, 64, 500])
def test_a_long_sequence_is_computed_in_parts(dtype, window):  # noqa: F811
    qkv, offsets, seen = drawn(dtype, 1300), offsets_of([1300]), {"before": window, "after": window}
    expected = exact(qkv, offsets, **seen)
    torch.testing.assert_close(compute(qkv, offsets, **seen).double(), expected, rtol=ROUNDING[dtype], atol=ATOL)


def test_threads_change_nothing(dtype, threads):  # noqa: F811
    qkv, offsets = drawn(dtype, 400), offsets_of([1, 99, 300])
    threads(1)
    expected = compute(qkv, offsets)
    threads(3)
    assert compute(qkv, offsets).equal(expected)


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
            found, expected = compute(changed, offsets), exact(changed, offsets)
            assert found.isnan().equal(expected.isnan()) or value == float("inf")
            assert found[:20].isfinite().all() and found[:, 32:].isfinite().all()
            assert not found[20:, :32].isfinite().all()


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e15])
def test_scores_of_any_size_have_probabilities(dtype, scale):  # noqa: F811
    qkv, offsets = drawn(dtype, 30), offsets_of([30])
    qkv[:, : HEADS * 32] *= scale
    expected = exact(qkv, offsets)
    torch.testing.assert_close(compute(qkv, offsets).double(), expected, rtol=ROUNDING[dtype], atol=4 * ATOL)


def test_wrong_arguments_are_refused(dtype):  # noqa: F811
    qkv, offsets = drawn(dtype, 30), offsets_of([10, 20])
    for matrix, heads in ((qkv.double(), HEADS), (qkv[:, :-1], HEADS), (qkv.t(), HEADS), (qkv[0], HEADS), (qkv, 4)):
        with pytest.raises(ValueError, match="a matrix of queries, keys and values"):
            panels.attend(matrix, offsets, heads)
    for wrong in (offsets.long(), offsets[None], offsets.repeat(2)[::2], offsets[:0]):
        with pytest.raises(ValueError, match="offsets are needed"):
            panels.attend(qkv, wrong, HEADS)
    for wrong in ([0, 31], [0, 20, 10], [-1, 30], [0, 2**31 - 1]):
        with pytest.raises(ValueError, match="ascend"):
            panels.attend(qkv, torch.tensor(wrong, dtype=torch.int32), HEADS)
    for seen in ({"before": -1}, {"after": -1}):
        with pytest.raises(ValueError, match="at least 0"):
            panels.attend(qkv, offsets, HEADS, **seen)
    table = torch.zeros(20, 16)
    for wrong in (table.double(), table[:, :8], table[:19], table.t()):
        with pytest.raises(ValueError, match="table"):
            panels.attend(qkv, offsets, HEADS, (wrong, wrong))


def test_the_comparison_notices_a_planted_fault(dtype):  # noqa: F811
    qkv = drawn(dtype, 30)
    found = compute(qkv, offsets_of([30]))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found.double(), exact(qkv, offsets_of([10, 20])), rtol=ROUNDING[dtype], atol=ATOL)
