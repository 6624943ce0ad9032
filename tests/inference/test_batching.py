"""Samples are split into batches of limited size, and results are returned per sample."""

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.data.batches.tokens import PLAIN, Reading
from unmask.inference.backend import in_order, run_in_batches
from unmask.training.runs.display import Display

LENGTHS = (5, 1, 3, 3, 8, 2)


@pytest.fixture
def samples():
    """Samples whose token ids encode sample and position, with every second position named."""
    return [
        Sample(key=(0,), ids=100 * number + np.arange(length), positions={"even": np.arange(0, length, 2)})
        for number, length in enumerate(LENGTHS)
    ]


def run(samples, at=None, sizes=None, tokens=1000):
    def compute(batch):
        if sizes is not None:
            sizes.append(len(batch.tokens.ids))
        ids = batch.tokens.ids if at is None else batch.tokens.ids[batch.positions[at]]
        return ids.numpy()

    return run_in_batches(samples, compute, at, tokens, Display(quiet=True))


def test_each_sample_gets_its_own_rows(samples):
    sizes = []
    found = list(run(samples, sizes=sizes, tokens=7))
    assert [number for number, _ in found] == [1, 5, 2, 3, 0, 4], "short samples come first"
    assert sizes == [6, 3, 5, 8], "at most 7 tokens, or a single sample"
    for number, rows in found:
        assert rows.tolist() == samples[number].ids.tolist()


def test_rows_of_named_positions(samples):
    for number, rows in run(samples, at="even"):
        assert rows.tolist() == samples[number].ids[::2].tolist()


def test_batches_are_computed_only_when_their_rows_are_read(samples):
    sizes = []
    rows = run(samples, sizes=sizes, tokens=1)
    assert sizes == []
    next(rows)
    assert sizes == [1]


def test_in_order_sorts_by_sample(samples):
    rows = in_order(run(samples))
    assert [one.tolist() for one in rows] == [sample.ids.tolist() for sample in samples]
    assert in_order(run([])) == []


@pytest.mark.seeds(100)
def test_equal_samples_are_computed_once(seed):
    """Those that differ in anything that a model reads are not equal, and each has rows of its own."""
    rng, sizes = np.random.default_rng(seed), []
    made = []
    for number in range(rng.integers(1, 30)):
        length = rng.integers(1, 4)
        segments, positions = rng.integers(2, size=length), {"some": np.flatnonzero(rng.integers(2, size=length))}
        order = Reading(order=rng.permutation(length)) if seed % 2 else PLAIN
        made.append(
            Sample(
                key=(number,), ids=rng.integers(2, size=length), segments=segments, positions=positions, reading=order
            )
        )

    def compute(batch):
        sizes.append(len(batch.keys))
        return np.stack([batch.tokens.ids.numpy(), batch.tokens.segments.numpy(), order_of(batch)], 1)

    def order_of(batch):
        order = batch.tokens.reading.order
        return np.zeros(len(batch.tokens.ids)) if order is None else order.numpy()

    found = in_order(run_in_batches(made, compute, None, 10, Display(quiet=True)))
    plain = [
        tuple(map(tuple, (s.ids, s.segments, s.positions["some"], s.reading.order if seed % 2 else ()))) for s in made
    ]
    assert sum(sizes) == len(set(plain))
    for sample, rows in zip(made, found, strict=True):
        order = sample.reading.order if seed % 2 else np.zeros(len(sample))
        assert np.array_equal(rows, np.stack([sample.ids, sample.segments, order], 1))
        rows[:] = -1  # no other sample has these
