"""Groups cover all sequences in order, pad little, and have one direction; queries are grouped as their sequences."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from unmask.batches.batch import TARGETS, collate

from .conftest import LENGTHS, make_samples


@settings(deadline=None, max_examples=60)
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


def test_groups_have_one_direction():
    batch = collate([replace(sample, backward=index % 2 == 1) for index, sample in enumerate(make_samples([6] * 4))])
    assert [(group.sequences, group.backward) for group in batch.tokens.groups] == [(2, False), (2, True)]


@settings(deadline=None, max_examples=30)
@given(LENGTHS)
def test_queries_are_grouped_as_their_sequences(sizes):
    samples = [
        sample.add(order=np.arange(len(sample)), positions={TARGETS: sample.positions["masked"]})
        for sample in make_samples(sizes)
    ]
    tokens = collate(samples).tokens
    assert tokens.order.equal(tokens.position_ids)
    assert tokens.queries.equal(collate(samples).positions["masked"])
    at = 0
    for group, asking in zip(tokens.groups, tokens.query_groups, strict=True):
        own = tokens.queries[asking.start : asking.stop]
        assert (asking.start, asking.sequences) == (at, group.sequences)
        assert ((own >= group.start) & (own < group.stop)).all()
        if asking.index is not None:
            assert asking.slots[asking.index].tolist() == list(range(asking.start, asking.stop))
            assert int(asking.real.sum()) == len(own)
        at = asking.stop
    assert at == len(tokens.queries)
    moved = tokens.map(lambda value: value + 1)
    assert moved.queries.equal(tokens.queries + 1) and moved.order.equal(tokens.order + 1)
