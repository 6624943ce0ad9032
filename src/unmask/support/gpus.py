"""What GPUs compute, told by their compute capability.

torch answers whether a GPU supports bf16 with yes where it emulates it, and starts kernels that refuse to run. So what
this program uses is in one table. Sources: NVIDIA's CUDA programming guide, "Compute Capabilities" (tensor cores for
fp16 from 7.0, for bf16 and TF32 from 8.0); Dao 2023 and torch's `sdp_utils.cpp` (FlashAttention from 8.0, in 16 bits).
AMD's GPUs have other numbers; those that torch supports multiply bf16, and pad for attention here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """What a generation of GPUs computes.

    Attributes:
        precision: the format that trains fastest.
        bf16: whether it multiplies bf16, instead of emulating it.
        flash: whether FlashAttention runs on it, in bf16 and fp16.
        tf32: whether it multiplies float32 with the exponents of float32 and 10 bits after the point.
    """

    precision: str
    bf16: bool
    flash: bool
    tf32: bool


GPUS: tuple[tuple[tuple[int, int], Gpu], ...] = (
    ((8, 0), Gpu("bf16", bf16=True, flash=True, tf32=True)),  # A100, RTX 3090, L4, H100, B200
    ((7, 0), Gpu("fp16", bf16=False, flash=False, tf32=False)),  # V100, T4, RTX 2080
    ((0, 0), Gpu("float32", bf16=False, flash=False, tf32=False)),  # P100, GTX 1080
)
"""GPUs of NVIDIA from a compute capability on, the newest first."""
AMD = Gpu("bf16", bf16=True, flash=False, tf32=False)
APPLE = Gpu("float32", bf16=True, flash=False, tf32=False)


def describe(device: torch.device) -> Gpu:
    """Return what a GPU computes."""
    if device.type != "cuda":
        return APPLE
    if torch.version.hip:
        return AMD
    capability = torch.cuda.get_device_capability(device)
    return next(gpu for least, gpu in GPUS if capability >= least)
