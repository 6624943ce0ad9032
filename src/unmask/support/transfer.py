"""Copies between the CPU and the device that computes: few of them, and none for which either waits without need.

A program runs ahead of a GPU, whose operations are started long before they are executed. What reads a number on the
CPU (`.item()`, `.tolist()`, a shape that depends on values) waits for all of them, and so does a copy from ordinary
memory. So a step copies indices from pinned memory, and reads all its numbers at once, at its end. The tensors of a
batch are small, and a copy takes the CPU longer to start than the device to make, so they are copied as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from unmask.support.capabilities import widest_float

ALIGNMENT = 16
"""Bytes whose multiples tensors start at: what kernels read at once."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; from the CPU, neither waits for the copy."""
    if tensor.device == device:
        return tensor
    if tensor.is_cpu and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=tensor.is_cpu)


def all_to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return tensors of the CPU on a device, as parts of one tensor that is copied; neither waits for the copy.

    On Apple's GPUs, which share the CPU's memory, each is copied alone.
    """
    if device.type == "mps":
        return [to_device(tensor, device) for tensor in tensors]
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    packed = torch.empty(starts.pop(), dtype=torch.uint8, pin_memory=device.type == "cuda")
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    for tensor, start, end in zip(tensors, starts, ends, strict=True):
        packed[start:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    moved = packed.to(device, non_blocking=True)
    return [
        moved[start:end].view(tensor.dtype).view(tensor.shape)
        for tensor, start, end in zip(tensors, starts, ends, strict=True)
    ]


def to_host(values: Sequence[Tensor]) -> list[float]:
    """Return numbers of a device, () each, by a single copy, for which the CPU waits."""
    if not values:
        return []
    device = values[0].device
    numbers: list[float] = torch.stack([value.to(widest_float(device)) for value in values]).tolist()
    return numbers
