"""What this machine has and what unmask makes of it, for reports of problems: `unmask doctor`.

In: nothing. Out: lines under headings. Capabilities are those that commands ask for (capabilities.py), measured here.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from unmask.inference.engines import multiplies_signed_bytes
from unmask.support import __version__, gpus
from unmask.support.capabilities import (
    FEW_ROWS,
    PANELS,
    ROWS,
    emulates_bf16,
    multiplies_bf16,
    onednn_multiplies,
    panels_multiply,
    products,
)
from unmask.support.environment import busy_cores, num_cores, read_times, total_memory
from unmask.support.messages import argument, rendered
from unmask.support.panels import has_tiles, multiplies
from unmask.training.machine import Machine, choose_machine, processor

RESTRICTIONS = (
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "UNMASK_KEEP_MEMORY"),
    *("CUDA_VISIBLE_DEVICES", "PYTORCH_ENABLE_MPS_FALLBACK", "RANK", "WORLD_SIZE", "HF_HUB_OFFLINE"),
)
"""Environment variables that change what is computed, or how fast."""
WATCHED_SECONDS = 0.3
"""Time for which cores are watched that other programs use."""

Report = dict[str, dict[str, str]]
"""Facts by their name, under headings."""


def doctor() -> Report:
    """Describe what this machine has and computes, for reports of problems."""
    return {
        "system": dict(_system()),
        "processor": dict(_processor()),
        f"products of {FEW_ROWS} and {ROWS} rows, one thread": dict(_products()),
        "accelerators": dict(_accelerators()),
        "memory and disk": dict(_space()),
        "libraries": dict(_libraries()),
        "extras": dict(_extras()),
        "choices": dict(_choices()),
    }


def _system() -> Iterator[tuple[str, str]]:
    yield "unmask", __version__
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    for name in RESTRICTIONS:
        if name in os.environ:
            yield name, os.environ[name]


def _processor() -> Iterator[tuple[str, str]]:
    before = read_times()
    time.sleep(WATCHED_SECONDS)
    busy = busy_cores(before, read_times())
    yield "name", processor()
    yield "cores", f"{num_cores()} of {os.cpu_count()}"
    yield "cores in use by other programs", f"{busy:.1f}" if before is not None else "not known on this system"
    yield "threads", str(torch.get_num_threads())
    yield "instructions that torch uses", torch.backends.cpu.get_cpu_capability()


def _products() -> Iterator[tuple[str, str]]:
    few, many = products(FEW_ROWS), products()
    for way, speed in many.items():
        yield way, f"{few[way] / 1e9:,.0f} and {speed / 1e9:,.0f} GFLOP/s" if speed else "not possible"
    choice = "oneDNN" if onednn_multiplies(torch.float32) else "torch's BLAS"
    in_panels = {dtype: "; panels for inference and attention" if panels_multiply(dtype) else "" for dtype in PANELS}
    yield "choice in float32", choice + in_panels[torch.float32]
    if multiplies_bf16():
        choice = "faster than float32, and the default of training"
    else:
        choice = "emulated, refused" if emulates_bf16() else "no faster than float32, only on request"
    tiles = ", by AMX also of few rows in training" if panels_multiply(torch.bfloat16) and has_tiles() else ""
    yield "choice in bf16", choice + in_panels[torch.bfloat16] + tiles
    yield "int8 by unmask itself", "for inference, on request" if multiplies(torch.int8) else "not possible"
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        yield "int8 by ONNX Runtime", "not known without the extra onnx"
    else:
        exact = multiplies_signed_bytes()
        yield (
            "int8 by ONNX Runtime",
            "signed bytes, which are exact" if exact else "unsigned bytes, as signed ones saturate",
        )


def _accelerators() -> Iterator[tuple[str, str]]:
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        bf16 = "bf16" if gpus.describe(torch.device("cuda", index)).bf16 else "no bf16"
        yield f"cuda:{index}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB, {bf16}"
    if torch.backends.mps.is_available():
        yield "mps", rendered(f"available with {argument('device', 'mps')}")
    if not torch.cuda.device_count():
        yield "cuda", f"none, torch was built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch has none"


def _space() -> Iterator[tuple[str, str]]:
    total, free = total_memory(), 2 * Machine(torch.device("cpu"), "float32").available_memory()
    yield "memory", f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} free" if total else "not known on this system"
    for name, path in (("current folder", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        yield f"disk, {name}", f"{shutil.disk_usage(path).free / 2**30:.1f} GiB free"


def _requirements() -> Iterator[tuple[str, str]]:
    """Yield each distribution that the package requires and the extra it belongs to, "" if to none."""
    for line in metadata.requires("unmask") or ():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        yield re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0], extra[1] if extra else ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _libraries() -> Iterator[tuple[str, str]]:
    for name, extra in _requirements():
        if not extra:
            yield name, _version(name) or "missing"


def _extras() -> Iterator[tuple[str, str]]:
    wanted: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra not in ("", "test", "docs", "bench"):
            wanted.setdefault(extra, []).append(name)
    for extra, names in wanted.items():
        versions = {name: _version(name) for name in names}
        lacking = [name for name, version in versions.items() if version is None]
        installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        yield extra, f'lacks {", ".join(lacking)}: pip install "unmask[{extra}]"' if lacking else installed


def _choices() -> Iterator[tuple[str, str]]:
    machine = choose_machine()
    yield "training by default", f"{machine.device.type}, {machine.precision}"
