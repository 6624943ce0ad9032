"""Copies between the CPU and the device that computes: few of them, and none for which either waits without need.

A program runs ahead of a GPU, whose operations are started long before they are executed. What reads a number on the
CPU (`.item()`, `.tolist()`, a shape that depends on values) waits for all of them, and so does a copy from ordinary
memory. So a step copies indices from pinned memory, and reads all its numbers at once, at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.support.capabilities import widest_float


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; from the CPU, neither waits for the copy."""
    if tensor.device == device:
        return tensor
    if tensor.is_cpu and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=tensor.is_cpu)


def to_host(values: Sequence[Tensor]) -> list[float]:
    """Return numbers of a device, () each, by a single copy, for which the CPU waits."""
    if not values:
        return []
    device = values[0].device
    numbers: list[float] = torch.stack([value.to(widest_float(device)) for value in values]).tolist()
    return numbers
