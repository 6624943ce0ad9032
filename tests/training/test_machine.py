"""The machine's peak, oneDNN's kernel cache, and the choice of device and precision."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from unmask.training import machine
from unmask.training.machine import Machine, keep_few_kernels


@pytest.fixture
def products(monkeypatch):
    """Makes each product take 0.01 s, the 25th half of it; returns the operands of all."""
    seen, now = [], [0.0]

    def multiply(left, right):
        seen.append((left, right))
        now[0] += 0.005 if len(seen) == 25 else 0.01

    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(machine, "_products", lambda device: [multiply])
    return seen


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_peak_is_that_of_the_fastest_product(products, monkeypatch, precision, dtype):
    monkeypatch.setattr(machine, "PEAK_SIZES", {"cpu": (8, 16)})
    assert Machine(torch.device("cpu"), precision).matmul_peak() == pytest.approx(2 * 16**3 / 0.005)
    shapes = [tuple(left.shape) for left, _ in products]
    assert set(shapes) == {(8, 8), (16, 16)}
    assert shapes == sorted(shapes)
    assert {x.dtype for pair in products for x in pair} == {dtype}


def test_a_slow_machine_gives_up_after_a_product(products, monkeypatch):
    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.001)
    assert Machine(torch.device("cpu"), "float32").matmul_peak() == pytest.approx(2 * 512**3 / 0.01)
    assert len(products) == 1


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_all_products_are_equal_and_the_global_generator_is_not_used(monkeypatch, precision):
    monkeypatch.setattr(machine, "PEAK_SIZES", {"cpu": (32, 64)})
    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.01)
    state, one = torch.get_rng_state(), Machine(torch.device("cpu"), precision)
    assert one.matmul_peak() > 0
    assert torch.get_rng_state().equal(state)
    left, right = torch.randn(2, 4, 4).to(one.dtype)
    for multiply in machine._products(one.device):
        torch.testing.assert_close(multiply(left, right), left @ right.T)


@pytest.mark.parametrize(("precision", "kept"), [("float32", "24"), ("bf16", "96")])
def test_few_kernels_are_kept_unless_the_environment_says_otherwise(monkeypatch, precision, kept):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    keep_few_kernels(precision)
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert os.environ.pop("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == kept


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_threads_share_a_heap_that_is_kept():
    program = """if True:
        import ctypes, threading, torch
        from unmask.training.machine import keep_memory
        keep_memory()
        thread = threading.Thread(target=lambda: [torch.ones(1 << size) for size in range(10, 22)])
        thread.start()
        thread.join()
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("<heap nr=") == 1
