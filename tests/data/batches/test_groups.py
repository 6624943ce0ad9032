"""Groups cover all sequences in order, pad little, have one direction, and are packed where that costs less.

Queries are grouped as their sequences.
"""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import TARGETS, collate
from unmask.data.batches.groups import GROUP_COST, ROW, ROW_STEP, _first_fit
from unmask.data.batches.tokens import Reading

from .conftest import LENGTHS, make_samples

PHRASES = [2, 3, 5, 5, 8, 9, 13, 13, 20, 26, 34, 44] * 3


@given(LENGTHS)
def test_groups_cover_all_tokens_in_order(sizes):
    tokens = collate(make_samples(sizes)).tokens
    at, sequences = 0, 0
    for group in tokens.groups:
        size = group.stop - group.start
        assert group.start == at
        inside = sorted(sizes)[sequences : sequences + group.sequences]
        assert sum(inside) == size
        assert max(inside) == group.longest
        if group.index is None:
            assert group.slots is group.real is None
            assert set(inside) == {group.longest}
        else:
            real = [row * group.longest + slot for row, length in enumerate(inside) for slot in range(length)]
            assert group.index.tolist() == real
            assert group.real.flatten().nonzero().flatten().tolist() == real
            assert group.real.shape == (group.sequences, group.longest)
            assert group.slots[group.index].tolist() == list(range(group.start, group.stop))
            assert set(group.slots.tolist()) <= set(range(len(tokens.ids)))
        padded = group.sequences * group.longest
        assert padded - size <= max(padded / 8, 512)
        at, sequences = group.stop, sequences + group.sequences
    assert (at, sequences) == (sum(sizes), len(sizes))


def alternating(samples):
    return [replace(sample, reading=Reading(backward=index % 2 == 1)) for index, sample in enumerate(samples)]


def test_groups_have_one_direction():
    batch = collate(alternating(make_samples([6] * 4)))
    assert [(group.sequences, group.backward) for group in batch.tokens.groups] == [(2, False), (2, True)]
    assert collate(make_samples(PHRASES)).tokens.packed is not None
    directed = alternating(make_samples(PHRASES))
    assert collate(directed).tokens.packed is None


def cost(*groups):
    """Return the attention scores of a head, with what each group costs besides."""
    return sum(group.sequences * group.longest**2 + GROUP_COST for group in groups)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60))
def test_a_row_holds_whole_sequences_if_that_costs_less_than_groups(sizes):
    tokens = collate(make_samples(sizes)).tokens
    if tokens.packed is None:
        row = max(ROW, -(-max(sizes) // ROW_STEP) * ROW_STEP)
        most = 2 * sum(sizes) // row + 1  # all rows but one are at least half full
        assert cost(*tokens.groups) <= most * row**2 + GROUP_COST
        return
    packed, lengths = tokens.packed, sorted(sizes)
    assert cost(packed) < cost(*tokens.groups)
    assert packed.longest == ROW or (packed.longest % ROW_STEP == 0 and packed.longest - max(sizes) < ROW_STEP)
    assert packed.owner.shape == packed.real.shape == (packed.sequences, packed.longest)
    assert packed.owner.ge(0).equal(packed.real)
    assert packed.slots[packed.index].tolist() == list(range(sum(sizes)))
    owners = packed.owner.flatten()
    starts = tokens.offsets.tolist()
    for sequence, length in enumerate(lengths):
        slots = owners.eq(sequence).nonzero().flatten().tolist()
        assert slots == list(range(slots[0], slots[0] + length)), "its tokens are neighbours"
        assert slots[0] // packed.longest == slots[-1] // packed.longest, "in one row"
        assert packed.index[starts[sequence] : starts[sequence + 1]].tolist() == slots


def test_sequences_are_packed_where_many_groups_would_be_small():
    packed = collate(make_samples(PHRASES)).tokens.packed
    assert packed.sequences * packed.longest < 1.2 * sum(PHRASES)
    for sizes in ([13] * 30, [128] * 32, [60] * 200 + [64] * 200, [700, 20]):
        assert collate(make_samples(sizes)).tokens.packed is None, sizes


@given(LENGTHS)
def test_queries_are_grouped_as_their_sequences(sizes):
    samples = [
        sample.changed(reading=Reading(order=np.arange(len(sample)))).add(
            positions={TARGETS: sample.positions["masked"]}
        )
        for sample in make_samples(sizes)
    ]
    tokens = collate(samples).tokens
    assert tokens.reading.order.equal(tokens.position_ids)
    assert tokens.reading.queries.equal(collate(samples).positions["masked"])
    at = 0
    for group, asking in zip(tokens.groups, tokens.reading.query_groups, strict=True):
        own = tokens.reading.queries[asking.start : asking.stop]
        assert (asking.start, asking.sequences) == (at, group.sequences)
        assert ((own >= group.start) & (own < group.stop)).all()
        if asking.index is not None:
            assert asking.slots[asking.index].tolist() == list(range(asking.start, asking.stop))
            assert int(asking.real.sum()) == len(own)
        at = asking.stop
    assert at == len(tokens.reading.queries)
    moved = tokens.map(lambda value: value + 1)
    assert moved.reading.queries.equal(tokens.reading.queries + 1) and moved.reading.order.equal(
        tokens.reading.order + 1
    )


@given(LENGTHS)
def test_each_sequence_is_in_the_first_row_with_enough_slots(sizes):
    capacity, rows, expected = max(sizes), [], {}
    for sequence in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        row = next((row for row, used in enumerate(rows) if used + sizes[sequence] <= capacity), len(rows))
        rows += [0] * (row == len(rows))
        expected[sequence] = row * capacity + rows[row]
        rows[row] += sizes[sequence]
    found = _first_fit(np.array(sizes), capacity)
    assert dict(enumerate(found.tolist())) == expected
