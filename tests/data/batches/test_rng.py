"""Generators, seeds and permutations are pure functions of their keys."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.rng import derive_rng, derive_seed, permuted


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 4095, 4097])
def test_permuted_is_a_bijection(size):
    for seed in (0, 1, derive_seed(7, "order", 3)):
        assert sorted(permuted(np.arange(size), size, seed).tolist()) == list(range(size))


def test_permuted_differs_by_seed():
    orders = {tuple(permuted(np.arange(50), 50, seed).tolist()) for seed in range(200)}
    assert len(orders) == 200
    firsts = [permuted(np.zeros(1, int), 10, seed).item() for seed in range(2000)]
    assert all(120 < firsts.count(value) < 280 for value in range(10))


def test_a_generator_is_a_pure_function_of_its_key():
    keys = [(seed, name, *rest) for seed in (0, 1) for name in ("a", "b") for rest in ((0, 0), (0, 1), (1, 0), (1, 1))]
    draws = [tuple(derive_rng(*key).random(3)) for key in keys]
    derive_rng(0, "a").random(100)
    assert [tuple(derive_rng(*key).random(3)) for key in reversed(keys)] == draws[::-1]
    assert len(set(draws)) == len(keys)
    numbers = [derive_seed(*key) for key in keys]
    assert all(0 <= value < 1 << 63 for value in numbers)
    assert numbers == [derive_seed(*key) for key in keys]


WORD = st.integers(0, 2**70) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**64 - 1, 2**64])


@given(seed=WORD, name=st.text(max_size=5), key=st.lists(WORD, max_size=4))
def test_a_generator_is_that_of_numpy(seed, name, key):
    expected = np.random.default_rng([seed, zlib.crc32(name.encode()), *key])
    assert derive_rng(seed, name, *key).bit_generator.state == expected.bit_generator.state
