"""The machine's peak is the best rate of all products, in the run's precision."""

import itertools

import pytest
import torch

from unmask.training import machine
from unmask.training.machine import Machine


@pytest.fixture
def clock(monkeypatch):
    """Each reading is 0.01 s after the last."""
    readings = itertools.count()
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(readings) / 100)


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_peak_is_that_of_the_fastest_product(clock, monkeypatch, precision, dtype):
    seen = []
    monkeypatch.setattr(machine, "PEAK_SIZES", {"cpu": (8, 16)})
    monkeypatch.setattr(machine, "_products", lambda device: [lambda left, right: seen.append((left, right))])
    assert Machine(torch.device("cpu"), precision).matmul_peak() == pytest.approx(2 * 16**3 / 0.01)
    shapes = [tuple(left.shape) for left, _ in seen]
    assert set(shapes) == {(8, 8), (16, 16)}
    assert shapes == sorted(shapes)
    assert {x.dtype for pair in seen for x in pair} == {dtype}


def test_a_slow_machine_gives_up_after_a_product(clock, monkeypatch):
    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.001)
    seen = []
    monkeypatch.setattr(machine, "_products", lambda device: [lambda left, right: seen.append(len(left))])
    assert Machine(torch.device("cpu"), "float32").matmul_peak() == pytest.approx(2 * 512**3 / 0.01)
    assert seen == [512]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_all_ways_give_the_same_product_and_no_chance_is_drawn(monkeypatch, precision):
    monkeypatch.setattr(machine, "PEAK_SIZES", {"cpu": (32, 64)})
    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.01)
    state, one = torch.get_rng_state(), Machine(torch.device("cpu"), precision)
    assert one.matmul_peak() > 0
    assert torch.get_rng_state().equal(state)
    left, right = torch.randn(2, 4, 4).to(one.dtype)
    for multiply in machine._products(one.device):
        torch.testing.assert_close(multiply(left, right), left @ right.T)
