"""Fingerprints of model weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of the names, types, shapes and values of tensors; it is the same on any device."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        data = value.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().data)  # as bytes, since NumPy has no bf16
    return digest.hexdigest()
