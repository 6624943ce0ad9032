"""A teacher: a model that an objective learns from, which is not trained, saved or copied.

It wraps a trained module and computes its outputs in evaluation mode and without graph. It is not an `nn.Module`, so it
is not a submodule of the objective that holds it: its weights are not in `parameters()`, `state_dict()`, the optimizer
or checkpoints, `train()` does not affect it, and the bf16 copy of a learner shares it. `fingerprint` identifies it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from unmask.fingerprint import fingerprint


class Teacher:
    """Wraps a module, such as a `Learner` or an encoder.

    Args:
        module: the model; it is put into evaluation mode, and its weights are frozen.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module.eval().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the output of the module."""
        return self.module(*inputs, **named)

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Teacher:
        """Move the weights in place. `Module.to` of the objective does not move them, so call this once on creation."""
        self.module.to(device, dtype)
        return self

    def fingerprint(self) -> str:
        """Return the sha256 of the names, types, shapes and values of all weights."""
        return fingerprint(self.module.state_dict())

    def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
        return self
