"""What this processor computes, and how fast, found by trying it.

Flags tell neither which library uses them nor how fast it then is: MKL has no AVX-512 path on CPUs that Intel did not
make, a processor may multiply bf16 more slowly than float32, a virtual machine may hide AMX, and environment variables
(ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY) restrict the libraries. So each way to multiply matrices is tried once,
checked against float64, and timed by the processor time that it takes, which other programs hardly change.

The trial runs in a forked process, with a single thread: an illegal instruction ends only that process, and oneDNN is
not yet used in this one, where the size of its kernel cache is still to be chosen (training/machine.py). Commands begin
it before they import what they need (`try_ahead`), so that they do not wait for it.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

ROWS, WIDTHS = 256, (256, 1024)
"""Shape of the products that choices depend on: those of a small encoder's feed-forward layer."""
FEW_ROWS = 16
"""Rows of such a product for a short text alone."""
REPEATS = 10
"""Number of times that each product is timed, in turns; the fastest counts."""
SLOW = 8.0
"""Ratio to the time of the fastest way from which on a way is not timed again."""
FASTER = 1.3
"""Ratio of speeds from which on a way is preferred: smaller ones may differ from trial to trial, and with them the
rounding of what is computed."""
EMULATED = 4.0
"""Ratio of the speeds of float32 and bf16 from which on bf16 is called emulated."""
SECONDS = 60.0
"""Time after which a trial is ended."""

Multiply = Callable[[Tensor, Tensor], Tensor]
Speeds = dict[str, dict[str, float]]
"""Of each way, by number of rows, as JSON has them."""
PANELS = {torch.float32: "float32 in panels", torch.bfloat16: "bf16 in panels"}


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """Return x weight^T as nn/layers/linear.py computes it in training."""
    operators = torch.ops.mkldnn
    y: Tensor = operators._linear_pointwise(x, weight, None, "none", [], "")
    return y


def _by_onednn_packed(x: Tensor, weight: Tensor) -> Tensor:
    """Return x weight^T by the other operators that nn/layers/linear.py uses, those of inference."""
    operators = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weight, None)
    y: Tensor = operators._linear_pointwise.binary(
        x, torch.zeros(len(x), len(weight), dtype=x.dtype), packed, None, "add"
    )
    return y


def _in_panels(x: Tensor, weight: Tensor) -> Tensor:
    """Return x weight^T, of a weight that `_to_panels` returned, as nn/layers/linear.py computes it for inference."""
    from unmask.support import panels

    return panels.multiply(x, panels.Product(weight))


def _to_panels(weight: Tensor) -> Tensor:
    """Return a weight in panels.

    Raises:
        RuntimeError: the extension is not installed, or not for this processor.
    """
    from unmask.support import panels

    if not panels.multiplies(weight.dtype):
        raise RuntimeError("there are no products in panels")
    return panels.pack(weight)


WAYS: Mapping[str, tuple[torch.dtype, Multiply]] = {
    "float32": (torch.float32, linear),
    "float32 by oneDNN": (torch.float32, _by_onednn),
    "float32 by oneDNN, packed": (torch.float32, _by_onednn_packed),
    "bf16": (torch.bfloat16, linear),
    "bf16 by oneDNN, packed": (torch.bfloat16, _by_onednn_packed),
    **{way: (dtype, _in_panels) for dtype, way in PANELS.items()},
}
"""Ways to compute x weight^T on a CPU: the dtype and the function of each."""
BEFORE: Mapping[str, Callable[[Tensor], Tensor]] = dict.fromkeys(PANELS.values(), _to_panels)
"""What is done with the weight before the time is taken."""


@cache
def products(rows: int = ROWS) -> Mapping[str, float]:
    """Return the floating-point operations per second of each of `WAYS` with one thread; 0 where it does not work.

    Args:
        rows: `ROWS` or `FEW_ROWS`.
    """
    if not _forks():
        return _try_all(rows)
    return dict.fromkeys(WAYS, 0.0) | _trial(os.getpid()).result().get(str(rows), {})


def try_ahead() -> None:
    """Begin the trial that `products` waits for, unless that is known, so that another core computes it meanwhile."""
    if _forks() and not products.cache_info().currsize:
        _trial(os.getpid())


def _forks() -> bool:
    """Return whether this system can fork a process that has loaded torch safely."""
    return hasattr(os, "fork") and sys.platform != "darwin"


class _Trial:
    """Computes something in a forked process with one thread.

    Args:
        compute: computes it.
    """

    def __init__(self, compute: Callable[[], Speeds]) -> None:
        self._waiting = threading.Lock()
        self._found: Speeds | None = None
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of locks that other threads hold: the child takes none
            self._process = os.fork()
        if self._process == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                faulthandler.disable()  # a crash is an answer, and nothing to report
                torch.set_num_threads(1)
                os.write(writing, json.dumps(compute()).encode())
            finally:
                os._exit(0)
        os.close(writing)

    def result(self) -> Speeds:
        """Wait for it; nothing if the process has failed."""
        with self._waiting:
            if self._found is None:
                with os.fdopen(self._reading, "rb") as pipe:
                    text = pipe.read()
                with suppress(ChildProcessError):  # SIGCHLD is ignored, as by some programs that start others
                    os.waitpid(self._process, 0)
                self._found = json.loads(text) if text else {}
            return self._found


@cache
def _trial(process: int) -> _Trial:  # one that is forked meanwhile cannot wait for that of the process that forked it
    """Begin the trial of a process, which is this one."""
    return _Trial(lambda: {str(rows): _try_all(rows) for rows in (ROWS, FEW_ROWS)})


def cpu_or_gpu(device: torch.device) -> str:
    """Return "cpu" or "gpu", whoever made it: the key of settings that differ between them."""
    return "cpu" if device.type == "cpu" else "gpu"


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on Apple's GPUs, which have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def multiplies_bf16() -> bool:
    """Return whether products in bf16 are right, and faster than in float32."""
    speeds = products()
    return speeds["bf16"] > FASTER * max(speeds["float32"], speeds["float32 by oneDNN"])


def emulates_bf16() -> bool:
    """Return whether products in bf16 do not work, or are so slow that the processor seems to emulate them."""
    speeds = products()
    return EMULATED * speeds["bf16"] < speeds["float32"] or not speeds["bf16"]


def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Return whether oneDNN is to multiply matrices in place of torch's other libraries.

    In bf16 it is torch's only library, and to be used where its private operators work; in float32 where it is faster.
    """
    speeds = products()
    if dtype == torch.bfloat16:
        return speeds["bf16 by oneDNN, packed"] > 0 and not emulates_bf16()
    faster = speeds["float32 by oneDNN"] > FASTER * speeds["float32"]
    return dtype == torch.float32 and faster and speeds["float32 by oneDNN, packed"] > 0


@cache
def panels_multiply(dtype: torch.dtype) -> bool:
    """Return whether products without gradient are to be those of panels.py, unless others are faster, for few rows or
    for many: where speeds are equal, what panels compute with a product (GELU, residual connection, norm) decides."""
    way = PANELS[dtype]
    others = [other for other, (its_dtype, _) in WAYS.items() if its_dtype == dtype and other != way]

    def suffice(speeds: Mapping[str, float]) -> bool:
        return FASTER * speeds[way] > max(speeds[other] for other in others)

    return suffice(products()) and suffice(products(FEW_ROWS))


def _try_all(rows: int = ROWS) -> dict[str, float]:
    """Return `products`, computed in this process."""
    generator, (width, wide) = torch.Generator().manual_seed(0), WIDTHS
    x, weight = torch.randn(rows, width, generator=generator), torch.randn(wide, width, generator=generator)
    exact = (x.double() @ weight.double().t()).float()
    best, operands = dict[str, float](), dict[str, tuple[Multiply, Tensor, Tensor]]()
    for way, (dtype, multiply) in WAYS.items():
        left, right = x.to(dtype), weight.to(dtype)
        # no such operator or extension, or no implementation for this processor
        with suppress(RuntimeError, AttributeError):
            right = BEFORE[way](right) if way in BEFORE else right
            error = (multiply(left, right).float() - exact).abs().max() / exact.abs().max()
            if error < (0.02 if dtype == torch.bfloat16 else 1e-5):
                operands[way] = multiply, left, right
    for _ in range(REPEATS):
        for way, (multiply, left, right) in operands.items():
            if best.get(way, 0.0) < SLOW * min(best.values(), default=math.inf):
                start = time.process_time()
                multiply(left, right)
                best[way] = min(best.get(way, 1e9), time.process_time() - start)
    return {way: 2 * rows * width * wide / best[way] if way in best else 0.0 for way in WAYS}
