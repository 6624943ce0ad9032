"""A batch is the concatenation of its samples; micro-batches lose none, whatever their lengths."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import GROUP, Sample, collate, split
from unmask.data.batches.tokens import Reading, Readings

from .conftest import LENGTHS, make_samples


@given(LENGTHS)
def test_collate_concatenates_samples(sizes):
    samples = make_samples(sizes)
    batch = collate(samples)
    tokens, offsets = batch.tokens, batch.tokens.offsets.tolist()
    assert tokens.offsets.dtype == torch.int32
    assert np.diff(offsets).tolist() == sorted(sizes)
    assert batch.keys == tuple(sample.key for sample in sorted(samples, key=len))
    for index, (key,) in enumerate(batch.keys):
        span = slice(offsets[index], offsets[index + 1])
        assert tokens.ids[span].tolist() == samples[key].ids.tolist()
        assert tokens.segments[span].tolist() == samples[key].segments.tolist()
        assert tokens.position_ids[span].tolist() == list(range(len(samples[key])))
    # positions are indices in the batch, where the labels' ids are
    assert tokens.ids[batch.positions["masked"]].equal(batch.labels["masked"])
    assert batch.counts == {"masked_lm": len(batch.labels["masked"]), "pair": len(sizes)}


@given(LENGTHS, st.integers(1, 3000))
def test_split_respects_what_fits_into_memory(sizes, micro_tokens):
    samples = make_samples(sizes)
    micro_batches = split(samples, micro_tokens)
    assert sorted(sample.key for some in micro_batches for sample in some) == sorted(sample.key for sample in samples)
    for some in micro_batches:
        assert len(some) == 1 or sum(map(len, some)) <= micro_tokens


@pytest.mark.parametrize("kind", ["positions", "labels", "counts"])
def test_a_name_in_use_is_refused(kind):
    sample = make_samples([5])[0]
    name = next(iter(getattr(sample, kind)))
    with pytest.raises(ValueError, match=f"names already in use: .*{name}"):
        sample.add(**{kind: {name: 1}})


def sample_of(length, **settings):
    return Sample(key=(length,), ids=np.arange(length), segments=np.zeros(length), **settings)


def test_streams_follow_their_sequences_when_a_batch_is_sorted():
    batch = collate([sample_of(5, stream=4), sample_of(3, stream=9, fresh=True), sample_of(4, stream=0)])
    assert batch.keys == ((3,), (4,), (5,))
    assert batch.streams.tolist() == [9, 0, 4]
    assert batch.fresh.tolist() == [True, False, False]
    independent = collate([sample_of(5), sample_of(3)])
    assert (independent.streams, independent.fresh, independent.carry) == (None, None, {})
    for wrong in ([sample_of(3, stream=1), sample_of(4, stream=1)], [sample_of(3, stream=1), sample_of(4)]):
        with pytest.raises(ValueError, match="windows of different streams"):
            collate(wrong)
    moved = replace(batch, carry={"state": batch.streams}).map(lambda value: value + 1)
    assert moved.carry["state"].equal(batch.streams), "it is on the device already"


def test_what_is_computed_once_can_be_used_in_training_and_is_not_that_of_other_tensors():
    tokens = collate(make_samples([3, 5])).tokens
    with torch.inference_mode():
        scales = tokens.once("scales", lambda: tokens.position_ids * 2.0)
    assert tokens.once("scales", lambda: None) is scales
    (torch.ones(8, requires_grad=True) * scales).sum().backward()
    assert tokens.map(lambda tensor: tensor + 1).once("scales", lambda: "anew") == "anew"


def test_samples_with_and_without_segments_are_not_mixed():
    sample = Sample(key=(0,), ids=np.arange(4))
    with pytest.raises(ValueError, match="either all samples of a batch must have segments"):
        collate([sample, replace(sample, segments=np.zeros(4, np.int64))])


def test_samples_are_not_split_before_the_size_of_a_micro_batch_is_known():
    with pytest.raises(ValueError, match=r"at least 1: call Trainer\.start\(\)"):
        split(make_samples([3, 4]), 0)


def test_sequences_in_reverse_order_come_last():
    directions = {5: True, 4: False, 2: True, 9: False}
    batch = collate([sample_of(length, reading=Reading(backward=backward)) for length, backward in directions.items()])
    assert [key for (key,) in batch.keys] == [4, 9, 2, 5]
    assert batch.tokens.reading.backward == 2
    assert batch.tokens.map(lambda value: value + 1).reading.backward == 2
    assert batch.tokens.groups[0].stop <= 13, "a group is in order of length"
    assert sum(group.stop - group.start for group in batch.tokens.groups) == 20
    assert collate([sample_of(3)]).tokens.reading.backward is None
    with pytest.raises(ValueError, match="either all samples of a batch must have a direction"):
        collate([sample_of(3, reading=Reading(backward=False)), sample_of(4)])


def test_samples_with_and_without_an_order_or_another_memory_are_not_mixed():
    sample = sample_of(4)
    assert collate([sample]).tokens.reading == Readings()
    with pytest.raises(ValueError, match="either all samples of a batch must have order"):
        collate([sample, replace(sample, reading=Reading(order=np.arange(4)))])
    with pytest.raises(ValueError, match="remembered to the same length"):
        collate([sample, replace(sample, reading=Reading(remember=2))])
    assert collate([replace(sample, reading=Reading(remember=2))] * 2).tokens.reading.remember == 2


def grouped(rng, sizes):
    """Return a sample of several sequences, and these."""
    made = [
        Sample(
            key=(),
            ids=rng.integers(0, 1000, size),
            segments=rng.integers(0, 2, size),
            positions={"summary": np.array([int(rng.integers(size))])},
        )
        for size in sizes
    ]
    return Sample.joined(made, {"right": np.arange(len(made))}), made


@given(st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=5), min_size=1, max_size=8))
def test_the_sequences_of_a_sample_are_in_one_batch(groups):
    rng = np.random.default_rng(0)
    pairs = [grouped(rng, sizes) for sizes in groups]
    samples = [one.named((number,)).add(counts={"choice": 1}) for number, (one, _) in enumerate(pairs)]
    assert [len(one) for one in samples] == [sum(sizes) for sizes in groups]
    batch = collate(samples)
    offsets = batch.tokens.offsets.tolist()
    assert np.diff(offsets).tolist() == sorted(size for sizes in groups for size in sizes)
    assert batch.counts == {"choice": len(groups)}
    for index, (number, choice) in enumerate(batch.keys):
        one = pairs[number][1][choice]
        span = slice(offsets[index], offsets[index + 1])
        assert batch.tokens.ids[span].tolist() == one.ids.tolist()
        assert batch.tokens.segments[span].tolist() == one.segments.tolist()
        assert batch.positions["summary"][index] == offsets[index] + one.positions["summary"][0]
        assert (int(batch.labels[GROUP][index]), int(batch.labels["right"][index])) == (number, choice)
    whole = [[sample.key[0] for sample in some] for some in split(samples, 100)]
    assert sorted(number for some in whole for number in some) == list(range(len(groups)))
