"""What a body or an objective works out of a batch on the host, so that it need not ask the device for it.

How many words of a batch are distinct, say, depends on values: a device that has them would be waited for. Input: the
tokens of a batch, before it is moved (`Encoder.plan`, `Objective.plan`). Output: indices and sizes by name, which move
with the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from unmask.data.batches.groups import Change


@dataclass(frozen=True)
class Plan:
    """See the module.

    Attributes:
        tensors: what is read on the device.
        sizes: numbers that shapes depend on, read on the host.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def map(self, change: Change) -> Plan:
        """Return a copy with `change` applied to all tensors."""
        return replace(self, tensors={name: change(value) for name, value in self.tensors.items()})

    def __or__(self, other: Plan) -> Plan:
        """Return both as one."""
        return Plan({**self.tensors, **other.tensors}, {**self.sizes, **other.sizes})
