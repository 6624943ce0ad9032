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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import linear

from unmask.support import gpus, panels
from unmask.support.capabilities import (
    BEFORE,
    WAYS,
    cpu_or_gpu,
    emulates_bf16,
    multiplies_bf16,
    onednn_multiplies,
    products,
)
from unmask.support.choices import InferencePrecision, Precision, check_choice
from unmask.support.environment import whole
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument

if TYPE_CHECKING:
    from unmask.training.processes import Processes

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Number formats by name."""
INT8 = "int8"
GPU_WORKERS = 2
"""Default number of worker processes that make batches for a GPU; a CPU needs its cores for the step itself."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -3, -4, -8
LARGE = 1 << 20
"""Bytes from which on `return_memory` lets the system have freed blocks."""
KERNELS = {"float32": 24, "bf16": 96, "fp16": 96}
"""Number of oneDNN's kernels to cache: those that every layer of a step uses, in 16 bits also those of attention."""
DEVICES = ("auto", "cpu", "cuda", "mps")
"""Devices that can be asked for; "mps" is the GPU of Apple's processors, which "auto" never chooses."""
PEAK_SECONDS = 0.3
"""Time spent on measuring the peak of matrix products; on a slow machine, plus that of the last product."""
PEAK_SIZES = {"cpu": (512, 1024, 2048), "gpu": (4096, 8192)}
"""Widths of the square matrices that are multiplied, each for an equal share of the time."""


@dataclass(frozen=True)
class Machine:
    """Device, precision and workers of a run.

    Attributes:
        device: "cpu", "cuda" or "mps".
        precision: "float32", "bf16" or "fp16" (see training/precision.py); in inference also "int8".
        workers: processes that make batches in advance; 0: the training process makes them itself.
        deterministic: whether a GPU is to give the same numbers each time, with slower kernels; a CPU does anyway.
    """

    device: torch.device
    precision: str
    workers: int = 0
    deterministic: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and activations in the forward and backward pass; in int8, of what is not rounded."""
        if self.precision == INT8:
            return torch.bfloat16 if multiplies_bf16() else torch.float32
        return DTYPES[self.precision]

    @contextmanager
    def in_training(self) -> Iterator[None]:
        """Let a GPU compute as training asks it to.

        One that has TF32 multiplies float32 in it, which is many times as fast, and rounds to 10 bits. Inference does
        not, so that scores and predictions in float32 are exact. NVIDIA_TF32_OVERRIDE=0 turns it off. If the run is
        `deterministic`, kernels are those that sum in one order; torch warns of operators that have none.
        """
        with ExitStack() as stack:
            if self.device.type != "cpu" and self.precision == "float32" and gpus.describe(self.device).tf32:
                stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
                torch.set_float32_matmul_precision("high")
            if self.deterministic:
                stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
                torch.use_deterministic_algorithms(True, warn_only=True)
            yield

    def seed(self, seed: int) -> None:
        """Seed the generators of the CPU and of the device, as `torch.manual_seed` does.

        torch's function seeds all kinds of device, and stores the call stack for each that is not there: a millisecond.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        if self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def reset_peak_memory(self) -> bool:
        """Reset the peak of `memory` to the current use, and return whether the system supports that."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            return True
        if self.device.type == "mps":
            torch.mps.empty_cache()
            return False
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(
                0
            )  # otherwise allocations from memory that glibc retains would not count
            Path("/proc/self/clear_refs").write_text("5", encoding="utf8")  # man 5 proc: resets VmHWM
        except (OSError, AttributeError):  # another system, or no permission
            return False
        return True

    def memory(self) -> int:
        """Return the peak memory since `reset_peak_memory`, or ever, in bytes: that of the device or of this process.

        Return 0 if the system does not provide it.
        """
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        if self.device.type == "mps":
            return torch.mps.driver_allocated_memory()  # what Metal allocated until now, which torch keeps
        status = Path("/proc/self/status")
        if status.exists():  # Linux, where getrusage may return the peak of the parent process
            peak = re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="utf8"))
            return int(peak[1]) * 1024 if peak else 0
        if importlib.util.find_spec("resource") is None:  # Windows
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def available_memory(self) -> int:
        """Return the bytes that this process may still allocate: most of a GPU's free memory, half of a CPU's.

        Return 0 if the system does not provide it.
        """
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info()  # memory that torch has reserved but does not use is free too
            return int(0.9 * (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()))
        if self.device.type == "mps":
            return max(0, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
        status = Path("/proc/meminfo")
        if status.exists():
            available = re.search(r"MemAvailable:\s+(\d+)", status.read_text(encoding="utf8"))
            return int(available[1]) * 512 if available else 0
        if not hasattr(os, "sysconf"):  # Windows
            return 0
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4

    def describe(self) -> dict[str, str | int]:
        """Return the description of the machine for a run's provenance."""
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else processor()
        described: dict[str, str | int] = {
            "device": self.device.type,
            "name": name,
            "threads": torch.get_num_threads(),
            "precision": self.precision,
        }
        if self.device.type == "cpu":
            described["products"] = "oneDNN" if onednn_multiplies(self.dtype) else "BLAS"
        return described

    def matmul_peak(self) -> float:
        """Measure how fast the machine multiplies matrices in its precision, in floating-point operations per second.

        This is the best of many products of several sizes, so that short loads by other programs do not count; under a
        constant load the remaining speed is measured. torch's global generator is not used.
        """
        sizes, ways, best = PEAK_SIZES[cpu_or_gpu(self.device)], _ways(self), 0.0
        generator = torch.Generator(self.device).manual_seed(0)  # not zeros, which a GPU multiplies faster
        block = torch.randn(2, sizes[0], sizes[0], generator=generator, device=self.device).to(self.dtype)
        start = time.perf_counter()
        for number, size in enumerate(sizes, start=1):
            left, right = block.repeat(1, size // sizes[0], size // sizes[0])
            while not best or time.perf_counter() - start < PEAK_SECONDS * number / len(sizes):
                seconds = min(self._time(multiply, left, right) for multiply in ways)
                best = max(best, 2 * size**3 / seconds)
        return best

    def _time(self, multiply: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> float:
        """Return the seconds that a product takes."""
        start = time.perf_counter()
        multiply(left, right)
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return time.perf_counter() - start


def _ways(machine: Machine) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Return the functions by which a machine can multiply by a transposed matrix in its precision."""
    if machine.device.type != "cpu":
        return [linear]
    speeds = products()
    ways = [way for way, (dtype, _) in WAYS.items() if dtype == machine.dtype and speeds[way]]
    return [WAYS[way][1] for way in ways if way not in BEFORE] or [linear]  # those of training


def choose_machine(
    device: str = "auto",
    precision: str = "auto",
    workers: int | None = None,
    processes: Processes | None = None,
    *,
    deterministic: bool = False,
) -> Machine:
    """Return the requested machine; "auto" prefers CUDA to the CPU, and the fastest precision that trains well.

    Args:
        device: one of `DEVICES`.
        precision: "float32", "bf16", "fp16" or "auto".
        workers: number of processes that make batches in advance; None: as many as suit the device.
        processes: those that train together, if they are connected; the main one then decides for "auto" precision.
        deterministic: see `Machine`.

    Raises:
        UserError: the device or the precision is unknown or not available, the device only emulates the precision,
            `deterministic` has no effect on it, or workers are requested on a system that cannot fork processes.
    """
    check_count("workers", workers, 0, 999)
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    if workers and not can_fork:
        raise UserError(
            f"{argument('workers', workers)}: this system cannot fork processes (Windows)", remedy="omit it"
        )
    check_choice("precision", precision, Precision)
    chosen = _device(device)
    if precision == "auto":
        precision = _fastest_precision(chosen)
        precision = processes.broadcast(precision) if processes is not None else precision
    if precision in ("bf16", "fp16"):
        _refuse_emulation(chosen, precision)
    if chosen.type == "cpu":
        refuse_idle("on a CPU, which gives the same numbers each time", deterministic=deterministic)
        keep_memory()
        return Machine(chosen, precision, workers or 0)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    return Machine(chosen, precision, GPU_WORKERS * can_fork if workers is None else workers, deterministic)


def choose_inference_machine(device: str = "auto", precision: str = "auto") -> Machine:
    """Return the requested machine for computations without gradient.

    Args:
        device: one of `DEVICES`.
        precision: one of `InferencePrecision`.

    Raises:
        UserError: see `choose_machine`, or there is no int8 on it.
    """
    check_choice("precision", precision, InferencePrecision)
    if precision != INT8:
        return choose_machine(device, precision)
    machine = choose_machine(device, "float32")
    if machine.device.type != "cpu" or not panels.multiplies(torch.int8):
        reason = "needs a CPU" if machine.device.type != "cpu" else "needs VNNI of AVX-512, and unmask's C extension"
        raise UserError(
            f"{argument('precision', INT8)} {reason}",
            remedy=f"omit {argument('precision')}, or export the model in int8 and pass what was exported",
        )
    return replace(machine, precision=INT8)


def _device(name: str) -> torch.device:
    """Return the device of a name, with this process's number if it is one of several under torchrun.

    Raises:
        UserError: there is no such device.
    """
    if name not in DEVICES:
        raise UserError(f"unknown device '{name}'", remedy="choose cpu, cuda or mps")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "no CUDA device is available", remedy=f"omit {argument('device')}, or pass {argument('device', 'cpu')}"
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError(
            "no GPU of Apple's is available to torch",
            remedy=f"omit {argument('device')}, or pass {argument('device', 'cpu')}",
        )
    if name == "mps" and whole("WORLD_SIZE", 1) > 1:
        raise UserError("several processes cannot train on one GPU of Apple's", remedy="start one without torchrun")
    return torch.device(name, whole("LOCAL_RANK", 0)) if name == "cuda" else torch.device(name)


def _fastest_precision(device: torch.device) -> str:
    """Return the precision in which a device trains fastest, as far as that is known."""
    if device.type != "cpu":
        return gpus.describe(device).precision
    return "bf16" if multiplies_bf16() else "float32"


def _refuse_emulation(device: torch.device, precision: str) -> None:
    """Raise an error if a device computes in 16 bits many times as slowly as in float32, or not at all."""
    on_cpu = device.type == "cpu"
    lacks_bf16 = emulates_bf16 if on_cpu else lambda: not gpus.describe(device).bf16
    if on_cpu if precision == "fp16" else lacks_bf16():
        instead = "" if on_cpu else f", or {argument('precision', 'fp16')}"
        raise UserError(
            f"{'this processor' if on_cpu else 'this GPU'} does not multiply {precision}, and would take many "
            "times as long as in float32",
            remedy=f"omit {argument('precision')}, or pass {argument('precision', 'float32')}{instead}",
        )


def keep_few_kernels(number: int) -> None:
    """Limit oneDNN's kernel cache to a number of kernels; must be called before oneDNN is first used.

    By default it caches a thousand kernels, one per matrix shape. With ragged batches nearly every step has new shapes,
    and the cached kernels fragment the memory between the large blocks: in question answering a process grew from 2.0
    to 3.9 GB in 34 steps, and to 12 GB in 290; with few kernels it stays at 2.1 GB. Small steps fragment little and
    repeat their shapes, so for these the cache is not limited. Environment variables that are already set are not
    changed.
    """
    for name in (
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
        "LRU_CACHE_CAPACITY",
    ):  # oneDNN's own cache, and that of torch's wrapper
        os.environ.setdefault(name, str(number))


@cache
def keep_memory() -> None:
    """Make glibc retain freed memory instead of returning it to the system.

    Every training step frees and allocates the same large blocks; by default each becomes a new mapping whose pages the
    kernel must fault in and clear, which on a virtual machine costs as much as the arithmetic. All threads share one
    heap: that of a computing thread would consist of parts of 64 MB, in which large blocks leave more and more holes.
    UNMASK_KEEP_MEMORY=0 turns this off.
    """
    if os.environ.get("UNMASK_KEEP_MEMORY") != "0":
        _set_glibc({M_ARENA_MAX: 1, M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 256 << 20})


def return_memory() -> None:
    """Make glibc return freed large blocks to the system at once, the opposite of `keep_memory`.

    Sharded weights are gathered into new blocks in each layer, and leave holes: a process that kept all of them took
    three times the memory of its tensors.
    """
    _set_glibc({M_ARENA_MAX: 1, M_MMAP_MAX: 1 << 16, M_MMAP_THRESHOLD: LARGE, M_TRIM_THRESHOLD: LARGE, M_TOP_PAD: 0})


def _set_glibc(parameters: Mapping[int, int]) -> None:
    """Set parameters of glibc's memory allocator, on Linux."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return
    for parameter, value in parameters.items():
        mallopt(parameter, value)


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
