"""An encoder and its objectives: what the training loop drives, and what is saved in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import cast

from torch import nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import CARRY, NOTHING, Carry, Encoder, Keep, WithCarry
from unmask.objectives.objective import Objective, Part


class Loss(dict[str, Part]):
    """All parts of a loss by name.

    Attributes:
        carry: new state of the batch's streams, (sequences, ...) each; empty where nothing was carried in.
    """

    def __init__(self, parts: Mapping[str, Part], carry: Carry) -> None:
        super().__init__(parts)
        self.carry = carry


class Learner(nn.Module):
    """What objectives do before, one pass of the encoder, then every objective's part.

    Args:
        encoder: the body.
        objectives: by name; the names are those of the loss's parts, of metrics and of the recipe's tables.
    """

    def __init__(self, encoder: Encoder, objectives: Mapping[str, Objective]) -> None:
        super().__init__()
        self.encoder = encoder
        self.objectives = nn.ModuleDict(objectives)

    @property
    def parts(self) -> Mapping[str, Objective]:
        """The objectives by name."""
        return {name: part for name, part in self.objectives.items() if isinstance(part, Objective)}

    @property
    def weights(self) -> Mapping[str, float]:
        """Each part's weight in the loss."""
        return {name: weight for own, part in self.parts.items() for name, weight in part.part_weights(own).items()}

    def prepare(self, sample: Sample) -> Sample:
        """Let every objective add its counts.

        Raises:
            ValueError: layout and masking did not give what an objective needs.
        """
        for name, part in self.parts.items():
            if missing := part.needs - sample.labels.keys():
                raise ValueError(f"{name} needs the labels {sorted(missing)}")
            sample = part.prepare(sample, name)
        return sample

    @property
    def keep(self) -> Keep:
        """What the objectives read of the body beside its last layer."""
        return reduce(or_, (part.keep for part in self.parts.values()), NOTHING)

    def start(self, streams: int) -> Carry:
        """Return the state of streams that begin, (streams, ...) each; empty where the body carries none."""
        if CARRY in self.encoder.gives:
            return cast(WithCarry, self.encoder).start(streams)
        return {}

    def forward(self, batch: Batch) -> Loss:
        """Return all parts, also those without a target in this batch."""
        found: dict[str, Part] = {}
        for part in self.parts.values():
            batch, before = part.before(self.encoder, batch)
            found |= before
        encoded = self.encoder(batch.tokens, self.keep, batch.carry)
        found |= {name: part.score(self.encoder, encoded, batch) for name, part in self.parts.items()}
        return Loss(found, encoded.carry)

    def forward_flops(self, batch: Batch) -> int:
        """Return the floating-point operations of a forward pass's matrix products; see `Encoder.forward_flops`."""
        heads = sum(part.forward_flops(self.encoder, batch) for part in self.parts.values())
        return self.encoder.forward_flops(batch.tokens) + heads
