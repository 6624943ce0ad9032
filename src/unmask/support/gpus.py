"""What GPUs compute, told by their compute capability.

torch answers whether a GPU supports bf16 with yes where it emulates it, and starts kernels that refuse to run. So what
this program uses is in one table. Sources: NVIDIA's CUDA programming guide, "Compute Capabilities" (tensor cores for
fp16 from 7.0, for bf16 and TF32 from 8.0); Dao 2023 and torch's `sdp_utils.cpp` (FlashAttention from 8.0, in 16 bits);
torch's `utils/_triton.py` (Triton from 7.0).
AMD's GPUs have other numbers; those that torch supports multiply bf16, and pad for attention here.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """What a generation of GPUs computes.

    Attributes:
        precision: the format that trains fastest.
        bf16: whether it multiplies bf16, instead of emulating it.
        flash: whether FlashAttention runs on it, in bf16 and fp16.
        tf32: whether it multiplies float32 with the exponents of float32 and 10 bits after the point.
        triton: whether Triton compiles kernels for it.
    """

    precision: str
    bf16: bool
    flash: bool
    tf32: bool
    triton: bool


GPUS: tuple[tuple[tuple[int, int], Gpu], ...] = (
    ((8, 0), Gpu("bf16", bf16=True, flash=True, tf32=True, triton=True)),  # A100, RTX 3090, L4, H100, B200
    ((7, 0), Gpu("fp16", bf16=False, flash=False, tf32=False, triton=True)),  # V100, T4, RTX 2080
    ((0, 0), Gpu("float32", bf16=False, flash=False, tf32=False, triton=False)),  # P100, GTX 1080
)
"""GPUs of NVIDIA from a compute capability on, the newest first."""
AMD = Gpu("bf16", bf16=True, flash=False, tf32=False, triton=True)
APPLE = Gpu("float32", bf16=True, flash=False, tf32=False, triton=False)


def describe(device: torch.device) -> Gpu:
    """Return what a GPU computes."""
    if device.type != "cuda":
        return APPLE
    if torch.version.hip:
        return AMD
    capability = torch.cuda.get_device_capability(device)
    return next(gpu for least, gpu in GPUS if capability >= least)


def has_triton(device: torch.device) -> bool:
    """Return whether kernels in Triton, which torch brings on Linux, run on a device."""
    return device.type == "cuda" and describe(device).triton and _triton_is_installed()


@cache
def _triton_is_installed() -> bool:
    return find_spec("triton") is not None
