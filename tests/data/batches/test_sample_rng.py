"""Numbers of samples: SplitMix64 again in plain Python, uniform, and unrelated between keys, seeds and purposes."""

import itertools
import zlib

import numpy as np
import pytest

from unmask.data.batches.rng import SampleRng, derive_rng, derive_seed

WORD = (1 << 64) - 1


def splitmix64(state, number):
    """Return the output with a number of Steele et al. 2014's generator, as in their section 3."""
    for _ in range(number + 1):
        state = (state + 0x9E3779B97F4A7C15) & WORD
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
    return mixed ^ (mixed >> 31)


def grid(seed=0, epoch=0, purpose="choice", samples=200, numbers=200):
    """Return numbers of samples of an epoch, (samples, numbers)."""
    rng = SampleRng(seed, "masking", [(epoch, 3, item) for item in range(samples)])
    sample, index = np.divmod(np.arange(samples * numbers), numbers)
    return rng.uniform(purpose, sample, index).reshape(samples, numbers)


def test_numbers_are_those_of_splitmix64():
    key, found = (2, 0, 7), SampleRng(5, "masking", [(1, 1, 1), (2, 0, 7)])
    drawn = found.uniform("choice", np.array([1, 1, 1]), np.array([0, 1, 9]))
    state = derive_seed(5, "masking")
    for part in (*key, None):
        state = splitmix64(state ^ (zlib.crc32(b"choice") if part is None else part), 0)
    assert drawn.tolist() == [(splitmix64(state, number) >> 32) / 2**32 for number in (0, 1, 9)]


def test_numbers_of_a_sample_do_not_depend_on_the_others():
    keys = [(epoch, item) for epoch in range(3) for item in range(40)]
    order = np.random.default_rng(0).permutation(len(keys))
    whole, part = SampleRng(1, "masking", keys), SampleRng(1, "masking", [keys[index] for index in order[:17]])
    places = np.arange(9)
    for number, index in enumerate(order[:17].tolist()):
        same = [rng.uniform("x", np.full(9, of), places) for rng, of in ((whole, index), (part, number))]
        assert np.array_equal(*same)
        assert np.array_equal(
            *(rng.shuffle("x", np.full(9, of), places) for rng, of in ((whole, index), (part, number)))
        )
        assert whole.generator(index).random() == part.generator(number).random()
    assert whole.generator(3).random() == derive_rng(1, "masking", 0, 3).random()


def test_numbers_are_uniform():
    drawn = grid().reshape(-1)
    assert 0 <= drawn.min() < drawn.max() < 1
    counts = np.bincount((drawn * 100).astype(int), minlength=100)
    statistic = ((counts - 400) ** 2 / 400).sum()  # chi-squared with 99 degrees of freedom: 99 on average, sd 14
    assert 50 < statistic < 160
    low = np.bincount((drawn * 2**32).astype(np.int64) % 64, minlength=64)  # the last bits
    assert 30 < ((low - 625) ** 2 / 625).sum() < 120


FIRST = {"seed": 0, "epoch": 0, "purpose": "choice"}


@pytest.mark.parametrize(
    "changed", [{"seed": 1}, {"seed": 2**40}, {"epoch": 1}, {"epoch": 2}, {"purpose": "length"}, {}], ids=str
)
def test_numbers_of_other_keys_are_unrelated(changed):
    """Seeds, epochs and purposes; without a change neighbors: samples, and numbers of a sample."""
    first = grid(**FIRST)
    others = [grid(**FIRST | changed)] if changed else [np.roll(first, 1, 0), np.roll(first, 1, 1)]
    for other in others:
        assert abs(np.corrcoef(first.reshape(-1), other.reshape(-1))[0, 1]) < 4 / first.size**0.5
        bits = (first * 2**32).astype(np.uint64) ^ (other * 2**32).astype(np.uint64)
        flipped = [((bits >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(32)]
        assert np.abs(np.array(flipped) - 0.5).max() < 4.5 * 0.5 / first.size**0.5


def test_all_orders_are_equally_frequent():
    sample, place = np.divmod(np.arange(60_000 * 3), 3)
    order = SampleRng(0, "masking", [(item,) for item in range(60_000)]).shuffle("choice", sample, place)
    assert np.array_equal(order // 3, sample), "samples stay in order"
    counts = [int((order.reshape(-1, 3) % 3 == each).all(1).sum()) for each in itertools.permutations(range(3))]
    assert counts == pytest.approx([10_000] * 6, abs=400)
