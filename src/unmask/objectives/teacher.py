"""A model that an objective learns from: neither trained, nor saved, nor copied.

In: a trained module. Out: what it computes, in evaluation mode and without graph. It is no `nn.Module`, and so no part
of the objective that holds it: its weights are in no `parameters()`, `state_dict()`, optimizer or checkpoint, `train()`
does not reach it, and the copy of a learner that computes in bf16 shares it. Its `fingerprint` tells which one it is.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn


class Teacher:
    """Holds a module, such as a `Learner` or an encoder.

    Args:
        module: is put into evaluation mode, and its weights are frozen.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module.eval().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return what the module computes."""
        return self.module(*inputs, **named)

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Teacher:
        """Move the weights, in place: whoever builds the objective does it once, as `Module.to` does not reach them."""
        self.module.to(device, dtype)
        return self

    def fingerprint(self) -> str:
        """Return the sha256 over names, types, shapes and values of all weights, as they are now."""
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
        return self
