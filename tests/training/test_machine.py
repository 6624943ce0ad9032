"""The machine's peak, oneDNN's kernel cache, and the choice of device and precision."""

import os
import platform

import pytest
import torch

from unmask.support.capabilities import WAYS
from unmask.support.errors import UserError
from unmask.training import machine
from unmask.training.machine import KERNELS, Machine, choose_machine, keep_few_kernels

from .. import forking


@pytest.fixture
def products(monkeypatch, replace_time):
    """Makes each product take 0.01 s, the 25th half of it; returns the operands of all."""
    seen, now = [], [0.0]

    def multiply(left, right):
        seen.append((left, right))
        now[0] += 0.005 if len(seen) == 25 else 0.01

    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.3)
    replace_time(machine, perf_counter=lambda: now[0])
    monkeypatch.setattr(machine, "_ways", lambda machine: [multiply])
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
    for multiply in machine._ways(one):
        torch.testing.assert_close(multiply(left, right), left @ right.T)


def test_the_peak_is_measured_also_where_no_way_is_known(monkeypatch):
    monkeypatch.setattr(machine, "products", lambda: dict.fromkeys(WAYS, 0.0))
    assert machine._ways(Machine(torch.device("cpu"), "bf16")) == [torch.nn.functional.linear]


@pytest.mark.parametrize(("faster", "precision"), [(True, "bf16"), (False, "float32")])
def test_auto_is_what_is_faster(faster, precision, monkeypatch):
    monkeypatch.setattr(machine, "multiplies_bf16", lambda: faster)
    monkeypatch.setattr(machine, "emulates_bf16", lambda: False)
    assert choose_machine("cpu").precision == precision


def test_bf16_that_a_processor_emulates_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "emulates_bf16", lambda: True)
    with pytest.raises(UserError, match=r'this processor does not multiply bf16.*precision="float32"'):
        choose_machine("cpu", "bf16")
    monkeypatch.setattr(machine, "emulates_bf16", lambda: False)
    assert choose_machine("cpu", "bf16").precision == "bf16"


@pytest.mark.parametrize(
    ("capability", "precision"),
    [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp16"), ((7, 0), "fp16"), ((6, 1), "float32")],
    ids=["H100", "A100", "T4", "V100", "GTX 1080"],
)
def test_a_gpu_that_emulates_bf16_computes_in_what_it_has(capability, precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    chosen = choose_machine()
    assert (chosen.device.type, chosen.precision) == ("cuda", precision)
    assert choose_machine("cuda", "fp16").dtype == torch.float16
    if precision != "bf16":
        with pytest.raises(UserError, match=r'this GPU does not multiply bf16.*float32", or precision="fp16"'):
            choose_machine("cuda", "bf16")


@pytest.mark.parametrize(
    ("device", "capability", "precision", "products"),
    [
        ("cuda", (8, 6), "float32", "high"),
        ("cuda", (8, 6), "bf16", "highest"),
        ("cuda", (7, 5), "float32", "highest"),
        ("mps", None, "float32", "highest"),
        ("cpu", None, "float32", "highest"),
    ],
)
def test_float32_is_trained_in_tf32_where_a_gpu_has_it(device, capability, precision, products, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    with Machine(torch.device(device), precision).in_training():
        assert torch.get_float32_matmul_precision() == products
    assert torch.get_float32_matmul_precision() == "highest"


def test_deterministic_kernels_are_asked_for_in_training(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for asked in (False, True):
        chosen = choose_machine(deterministic=asked)
        with chosen.in_training():
            assert torch.are_deterministic_algorithms_enabled() == torch.is_deterministic_algorithms_warn_only_enabled()
            assert torch.are_deterministic_algorithms_enabled() == asked
        assert not torch.are_deterministic_algorithms_enabled()
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if asked else None)
    with pytest.raises(UserError, match="deterministic has no effect on a CPU"):
        choose_machine("cpu", deterministic=True)


def test_fp16_is_refused_on_a_processor():
    with pytest.raises(UserError, match=r"this processor does not multiply fp16.*omit precision, or pass pr"):
        choose_machine("cpu", "fp16")


@pytest.mark.parametrize(
    ("device", "message"),
    [("tpu", "unknown device 'tpu'"), ("cuda", "no CUDA device"), ("mps", "no GPU of Apple's is available")],
)
def test_devices_that_are_not_there_are_refused(device, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        choose_machine(device)


def test_apples_gpu_is_used_on_request_in_one_process(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_machine("auto").device.type != "mps"
    chosen = choose_machine("mps")
    assert (chosen.device.type, chosen.precision) == ("mps", "float32")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="several processes"):
        choose_machine("mps")


def test_the_memory_of_apples_gpu(monkeypatch):
    apple = Machine(torch.device("mps"), "float32")
    sizes = {"driver_allocated_memory": 7, "current_allocated_memory": 5, "recommended_max_memory": 12}
    for name, size in sizes.items():
        monkeypatch.setattr(torch.mps, name, lambda size=size: size)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    assert (apple.reset_peak_memory(), apple.memory(), apple.available_memory()) == (False, 7, 7)


@pytest.mark.parametrize(("precision", "kept"), [("float32", "24"), ("bf16", "96")])
def test_few_kernels_are_kept_unless_the_environment_says_otherwise(monkeypatch, precision, kept):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    keep_few_kernels(KERNELS[precision])
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
    assert forking.run(["-c", program]).stdout.count("<heap nr=") == 1
