"""Mixing of tasks: its rates, its order, and where it goes on."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample
from unmask.data.batches.sources import ExampleSource, MixedSource, mixing_rates

SIZES = st.lists(st.integers(1, 1_000_000), min_size=2, max_size=8)


def examples(*sizes):
    """Return samples of tasks, whose first token is the task and whose second the number of the example."""
    return [
        [Sample(key=(), ids=np.array([task, number, *range(number % 4)])) for number in range(size)]
        for task, size in enumerate(sizes)
    ]


def steps(source, number, cursor=None, **size):
    """Return the samples of some steps, and the cursor after each."""
    taken, cursor = [], source.start if cursor is None else cursor
    for _ in range(number):
        samples, cursor = source.take(cursor, **size)
        taken.append((samples, cursor))
    return taken


@given(SIZES)
def test_a_temperature_of_1_mixes_by_size(sizes):
    wanted = [float(Fraction(size, sum(sizes))) for size in sizes]
    np.testing.assert_allclose(mixing_rates(sizes, 1.0), wanted, rtol=1e-9)


@given(SIZES, st.floats(0.5, 100))
def test_rates_are_renormalized_powers(sizes, temperature):
    """Raffel et al. 2020, section 3.5.2, without their limit: r_m^(1/T), where r_m are the shares of the examples."""
    powers = [(size / sum(sizes)) ** (1 / temperature) for size in sizes]
    np.testing.assert_allclose(mixing_rates(sizes, temperature), [power / sum(powers) for power in powers], rtol=1e-9)


def test_extreme_temperatures():
    np.testing.assert_array_equal(mixing_rates([3, 90, 1000], float("inf")), [1 / 3] * 3)
    np.testing.assert_allclose(mixing_rates([10, 1000], 1e-3), [0, 1], atol=1e-12)
    np.testing.assert_allclose(mixing_rates([100, 10_000], 2.0), [1 / 11, 10 / 11])


@pytest.mark.parametrize("temperature", [1.0, 2.0, float("inf")])
def test_tasks_are_drawn_as_often_as_their_rates_say(temperature):
    source = MixedSource(examples(10, 40, 160), temperature=temperature, seed=3)
    drawn = np.bincount([source.task_at(step) for step in range(4000)], minlength=3)
    expected = 4000 * source.rates
    assert float(((drawn - expected) ** 2 / expected).sum()) < 13.8  # chi-squared with 2 degrees, p = 0.001


@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.integers(0, 99), st.integers(1, 9), st.booleans())
def test_a_step_has_one_task_in_the_order_that_it_has_alone(sizes, seed, capacity, in_tokens):
    parts, size = examples(*sizes), {"tokens" if in_tokens else "sequences": capacity}
    source = MixedSource(parts, temperature=2.0, seed=seed)
    alone = [ExampleSource(part, seed=seed) for part in parts]
    cursors = [part.start for part in alone]
    for number, (samples, after) in enumerate(steps(source, 12, **size)):
        (task,) = {int(sample.ids[0]) for sample in samples}
        assert task == source.task_at(number)
        wanted, cursors[task] = alone[task].take(cursors[task], **size)
        assert [sample.key for sample in samples] == [(task, *sample.key) for sample in wanted]
        assert [sample.ids.tolist() for sample in samples] == [sample.ids.tolist() for sample in wanted]
        assert source.epochs_of_each(after) == [part.epochs(at) for part, at in zip(alone, cursors, strict=True)]


def test_the_order_goes_on_at_a_cursor_and_depends_on_the_seed():
    parts = examples(7, 19)
    source = MixedSource(parts, temperature=2.0, seed=5)
    whole = steps(source, 40, sequences=4)
    keys = [[sample.key for sample in samples] for samples, _ in whole]
    for at in (0, 1, 17, 39):
        rest = steps(MixedSource(parts, temperature=2.0, seed=5), 40 - at - 1, whole[at][1], sequences=4)
        assert [[sample.key for sample in samples] for samples, _ in rest] == keys[at + 1 :]
    other = steps(MixedSource(parts, temperature=2.0, seed=6), 40, sequences=4)
    assert [[sample.key for sample in samples] for samples, _ in other] != keys
    assert source.enter(whole[3][1], 0) == whole[3][1]


def test_epochs_count_the_examples_of_all_tasks():
    source = MixedSource(examples(5, 15), temperature=2.0, seed=0)
    for number, (_, cursor) in enumerate(steps(source, 30, sequences=4), 1):
        assert source.epochs(cursor) == pytest.approx(4 * number / 20)
    assert len({sample.key for samples, _ in steps(source, 30, sequences=4) for sample in samples}) == 120
