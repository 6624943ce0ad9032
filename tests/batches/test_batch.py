"""A batch is its samples laid end to end, cut without loss, however long they are."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batches.batch import Sample, collate, split

lengths = st.lists(st.integers(1, 700), min_size=1, max_size=40)


def make(sizes):
    rng = np.random.default_rng(0)
    made = []
    for number, size in enumerate(sizes):
        hidden = np.sort(rng.choice(size, rng.integers(0, size + 1), replace=False))
        ids = rng.integers(0, 1000, size)
        sample = Sample(key=(number,), ids=ids, segments=rng.integers(0, 2, size), positions={"masked": hidden})
        made.append(sample.add(labels={"masked": ids[hidden]}, counts={"masked_lm": len(hidden), "pair": 1}))
    return made


@settings(deadline=None, max_examples=60)
@given(lengths)
def test_collate_lays_samples_end_to_end(sizes):
    samples = make(sizes)
    batch = collate(samples)
    tokens, offsets = batch.tokens, batch.tokens.offsets.tolist()
    assert tokens.offsets.dtype == torch.int32
    assert np.diff(offsets).tolist() == sorted(sizes)
    assert batch.keys == tuple(sample.key for sample in sorted(samples, key=len))
    for place, (key,) in enumerate(batch.keys):
        span = slice(offsets[place], offsets[place + 1])
        assert tokens.ids[span].tolist() == samples[key].ids.tolist()
        assert tokens.segments[span].tolist() == samples[key].segments.tolist()
        assert tokens.position_ids[span].tolist() == list(range(len(samples[key])))
    # positions count from the batch's start, so the labels stand there
    assert tokens.ids[batch.positions["masked"]].equal(batch.labels["masked"])
    assert batch.counts == {"masked_lm": len(batch.labels["masked"]), "pair": len(sizes)}


@settings(deadline=None, max_examples=60)
@given(lengths)
def test_groups_cover_all_tokens_in_order(sizes):
    tokens = collate(make(sizes)).tokens
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
            real = [row * group.longest + place for row, length in enumerate(inside) for place in range(length)]
            assert group.index.tolist() == real
            assert group.real.flatten().nonzero().flatten().tolist() == real
            assert group.real.shape == (group.sequences, group.longest)
            assert group.slots[group.index].tolist() == list(range(group.start, group.stop))
            assert set(group.slots.tolist()) <= set(range(len(tokens.ids)))
        padded = group.sequences * group.longest
        assert padded - size <= max(padded / 8, 512)
        at, sequences = group.stop, sequences + group.sequences
    assert (at, sequences) == (sum(sizes), len(sizes))


@settings(deadline=None)
@given(lengths, st.integers(1, 3000))
def test_split_respects_what_fits_into_memory(sizes, micro_tokens):
    samples = make(sizes)
    pieces = split(samples, micro_tokens)
    assert sorted(sample.key for piece in pieces for sample in piece) == sorted(sample.key for sample in samples)
    for piece in pieces:
        assert len(piece) == 1 or sum(map(len, piece)) <= micro_tokens


@pytest.mark.parametrize("kind", ["positions", "labels", "counts"])
def test_a_second_owner_of_a_name_is_refused(kind):
    sample = make([5])[0]
    name = next(iter(getattr(sample, kind)))
    with pytest.raises(ValueError, match=f"two owners of.*{name}"):
        sample.add(**{kind: {name: 1}})
