"""The machine that a run computes on: device, precision, threads, memory allocator."""

from __future__ import annotations

import ctypes
import importlib.util
import multiprocessing
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from unmask.errors import UserError

GPU_WORKERS = 2
"""How many processes make batches for a GPU by default; a CPU needs its cores for the step itself."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
KERNELS = {"float32": 24, "bf16": 96}
"""So many of oneDNN's kernels are kept, as a step needs again in each layer; in bf16 also those of attention."""
BF16_FEATURES = ("avx512_bf16", "amx_tile")
"""Of processors that multiply bf16, as torch calls them."""
Product = Callable[[Tensor, Tensor], Tensor]
PEAK_SECONDS = 0.3
"""How long the peak of matrix products is looked for, a slow machine's last product aside."""
PEAK_SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}
"""Widths of the square matrices that are multiplied meanwhile, a third (or half) of the time each."""


@dataclass(frozen=True)
class Machine:
    """Where and how precisely a run computes.

    Attributes:
        device: "cpu" or "cuda".
        precision: "float32" or "bf16" (see training/precision.py).
        workers: processes that make batches ahead; 0: the training process makes them itself.
    """

    device: torch.device
    precision: str
    workers: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations while they compute."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def forget_memory(self) -> bool:
        """Begin to look for the most memory anew, from what is held now; say whether that is possible here."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            return True
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory, which is kept, would hide what is taken from it
            Path("/proc/self/clear_refs").write_text("5", encoding="utf8")  # man 5 proc: resets VmHWM
        except (OSError, AttributeError):  # another system, or one that keeps this from us
            return False
        return True

    def memory(self) -> int:
        """Return the most memory held since `forget_memory`, or ever, in bytes: the device's, or this process's.

        0 where the system does not tell.
        """
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        status = Path("/proc/self/status")
        if status.exists():  # Linux, where getrusage may tell the peak of the process that started this one
            peak = re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="utf8"))
            return int(peak[1]) * 1024 if peak else 0
        if importlib.util.find_spec("resource") is None:  # Windows
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def available_memory(self) -> int:
        """Return how many bytes more this process may take: most of a device's, half of what a machine has left.

        0 where the system does not tell.
        """
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info()  # what torch keeps is free too
            return int(0.9 * (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()))
        status = Path("/proc/meminfo")
        if status.exists():
            available = re.search(r"MemAvailable:\s+(\d+)", status.read_text(encoding="utf8"))
            return int(available[1]) * 512 if available else 0
        if not hasattr(os, "sysconf"):  # Windows
            return 0
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4

    def describe(self) -> dict[str, str | int]:
        """Return what a run's provenance says of the machine."""
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else processor()
        return {
            "device": self.device.type,
            "name": name,
            "threads": torch.get_num_threads(),
            "precision": self.precision,
        }

    def matmul_peak(self) -> float:
        """Measure how fast the machine multiplies matrices in its precision, in floating-point operations a second.

        The best of many products of several sizes, so that moments in which other programs compute do not count; where
        they always do, what is left to this one is measured. Draws nothing from torch's global generator.
        """
        sizes, ways, best = PEAK_SIZES[self.device.type], _products(self.device), 0.0
        generator = torch.Generator(self.device).manual_seed(0)  # not zeros: a GPU multiplies these faster
        block = torch.randn(2, sizes[0], sizes[0], generator=generator, device=self.device).to(self.dtype)
        begun = time.perf_counter()
        for number, size in enumerate(sizes, start=1):
            left, right = block.repeat(1, size // sizes[0], size // sizes[0])
            while not best or time.perf_counter() - begun < PEAK_SECONDS * number / len(sizes):
                seconds = min(self._time(way, left, right) for way in ways)
                best = max(best, 2 * size**3 / seconds)
        return best

    def _time(self, multiply: Product, left: Tensor, right: Tensor) -> float:
        """Return how many seconds a product takes."""
        begun = time.perf_counter()
        multiply(left, right)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - begun


def _products(device: torch.device) -> list[Product]:
    """Return the ways to multiply by a transposed matrix: float32 may be twice as fast in oneDNN as in BLAS."""
    onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
    if device.type == "cpu" and onednn:
        return [linear, lambda left, right: torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")]
    return [linear]


def choose_machine(device: str = "auto", precision: str = "auto", workers: int | None = None) -> Machine:
    """Take what is asked for, or the best there is: CUDA before CPU, bf16 where the hardware multiplies it.

    Raises:
        UserError: the device is not there, or workers are asked for where processes cannot be forked.
    """
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    if workers and not can_fork:
        raise UserError(f"--workers {workers}: this system cannot fork processes (Windows)", remedy="leave it out")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise UserError(f"unknown device '{device}'", remedy="choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device is at hand", remedy="leave --device away, or say --device cpu")
    if precision == "auto":
        fast = torch.cuda.is_bf16_supported() if device == "cuda" else multiplies_bf16()
        precision = "bf16" if fast else "float32"
    if device == "cpu":
        keep_memory()
        return Machine(torch.device(device), precision, workers or 0)
    here = torch.device(device, int(os.environ.get("LOCAL_RANK", "0")))  # one of several under torchrun
    torch.cuda.set_device(here)
    return Machine(here, precision, GPU_WORKERS * can_fork if workers is None else workers)


def multiplies_bf16() -> bool:
    """Say whether the processor has AVX-512 BF16 or AMX (without them bf16 is slower than float32)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    private = [f"_is_{name}_supported" for name in BF16_FEATURES]
    if all(hasattr(torch.cpu, name) for name in private):
        return any(bool(getattr(torch.cpu, name)()) for name in private)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(bool(capabilities.get(name)) for name in BF16_FEATURES)


def keep_few_kernels(precision: str) -> None:
    """Tell oneDNN, before it is first used, to keep few of its kernels.

    It keeps a thousand, one for each shape of matrices that it has met. With ragged batches nearly every step has
    shapes of its own, and what is kept of them lies scattered among the large blocks of memory, which then fit together
    less and less: in 34 steps of question answering a process grew from 2.0 to 3.9 GB, in 290 to 12; with few kernels
    it stays at 2.1. Where steps are small, so is what is scattered, and shapes come again: there all kernels are kept.
    Environment variables that are set already are left as they are.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # its own, and that of torch's layer above
        os.environ.setdefault(name, str(KERNELS[precision]))


@cache
def keep_memory() -> None:
    """Tell glibc to keep freed memory instead of giving it back page by page.

    A training step frees and allocates the same large blocks again and again; by default each becomes a fresh mapping
    whose pages the kernel must fault in and clear, which on a virtual machine costs as much as the arithmetic.
    UNMASK_KEEP_MEMORY=0 turns this off.
    """
    if not sys.platform.startswith("linux") or os.environ.get("UNMASK_KEEP_MEMORY") == "0":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_TOP_PAD, 256 << 20)


def processor() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf8") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
