"""An encoder with its objectives: the module that is trained and saved in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import cast

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import CARRY, NOTHING, SEPARATE_LAYERS, TWO_STREAMS, Carry, Encoder, Keep, WithCarry
from unmask.nn.layers.block import compile_layers
from unmask.objectives.objective import Objective, ObjectiveSettings, Part

GRADIENT = "gradient"
"""Name of the label with the gradient of a joint loss with respect to the outputs of a micro-batch."""
MOST_ROWS = 0.75
"""Maximum share of the tokens that objectives read for which the others are left out of the last layer."""


class Loss(dict[str, Part]):
    """All parts of a loss by name.

    Attributes:
        carry: new state of the streams in the batch, each (sequences, ...); empty if the batch has no state.
    """

    def __init__(self, parts: Mapping[str, Part], carry: Carry) -> None:
        super().__init__(parts)
        self.carry = carry


class Learner(nn.Module):
    """Runs `before` of the objectives, one forward pass of the encoder, then `score` of every objective.

    A batch contains the counts of the objectives that it was prepared for: those of its stage. Only these run.

    Args:
        encoder: the body.
        objectives: objectives by name; these are also the names of parts of the loss, of metrics and of recipe tables.
        weights: the weight of each part in the loss (see `loss_weights`); None: 1 of each objective.
    """

    def __init__(
        self, encoder: Encoder, objectives: Mapping[str, Objective], weights: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.weights = dict.fromkeys(objectives, 1.0) if weights is None else dict(weights)
        self.objectives = nn.ModuleDict(objectives)

    @property
    def parts(self) -> Mapping[str, Objective]:
        """The objectives by name."""
        return {name: part for name, part in self.objectives.items() if isinstance(part, Objective)}

    def compile_layers(self) -> None:
        """Let all layers compute in training with compiled kernels; see `compile_layers` in nn/layers/block.py."""
        compile_layers(self)

    def prepare(self, sample: Sample, objectives: Collection[str] | None = None) -> Sample:
        """Return the sample prepared by the objectives with these names; None: by every objective."""
        for name, part in self.parts.items():
            if objectives is None or name in objectives:
                sample = part.prepare(sample, name)
        return sample

    def active(self, batch: Batch) -> Mapping[str, Objective]:
        """Return the objectives that a batch was prepared for, by name."""
        return {name: part for name, part in self.parts.items() if name in batch.counts}

    def start(self, streams: int) -> Carry:
        """Return the initial state of streams, each (streams, ...); empty if the body carries no state."""
        if CARRY in self.encoder.provides:
            return cast(WithCarry, self.encoder).start(streams)
        return {}

    @property
    def separate_layers(self) -> list[nn.Module]:
        """The layers of the encoder, if each forward pass calls each of them once, and no other module has its weights.

        Bodies with state call theirs for each window of a long text.
        """
        inside, provides = set(self.encoder.modules()), self.encoder.provides
        if SEPARATE_LAYERS not in provides or CARRY in provides:
            return []
        return [layer for layer in self.encoder.layer_groups[1:] if layer in inside]

    @property
    def joint(self) -> bool:
        """Whether the loss of an objective compares all sequences of a step; see `Objective.compare`."""
        return any(part.joint for part in self.parts.values())

    def outputs(self, batch: Batch) -> Tensor:
        """Return what the only objective of a batch predicts, (sequences, any number)."""
        (part,) = self.active(batch).values()
        return part.predict(self.encoder, self.encoder(batch.tokens, self.keep(batch), batch.carry), batch)

    def forward(self, batch: Batch) -> Loss:
        """Return all parts of the loss that the batch was prepared for, including those without a target in it.

        If the gradient of the loss with respect to `outputs` is known (`GRADIENT`), the only part is their product.
        """
        active, parts = self.active(batch), dict[str, Part]()
        if GRADIENT in batch.labels:
            return Loss({name: Part((self.outputs(batch) * batch.labels[GRADIENT]).sum(), {}) for name in active}, {})
        for part in active.values():
            batch, before = part.before(self.encoder, batch)
            parts |= before
        encoded = self.encoder(batch.tokens, self.keep(batch), batch.carry)
        parts |= {name: part.score(self.encoder, encoded, batch) for name, part in active.items()}
        return Loss(parts, encoded.carry)

    def keep(self, batch: Batch) -> Keep:
        """Return what the objectives of a batch need of the encoder."""
        keep: Keep = reduce(or_, (part.keep for part in self.active(batch).values()), NOTHING)
        read = self._read(batch) if batch.read is None else batch.read
        return replace(keep, rows=read[0]) if read else keep

    def plan(self, batch: Batch) -> Batch:
        """Return a batch of the host with the tokens that its objectives read, and with what these and the body plan.

        Their numbers depend on values, for which a device would be waited for.
        """
        batch = replace(batch, tokens=self.encoder.plan(batch.tokens), read=self._read(batch))
        return reduce(lambda planned, part: part.plan(planned), self.active(batch).values(), batch)

    def check(self) -> None:
        """Raise an error if an objective knows why a loss is not finite."""
        for part in self.parts.values():
            part.check()

    def _read(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the tokens that the objectives of a batch read, (rows,), or () if these are all or nearly all."""
        read = [part.reads(self.encoder, batch) for part in self.active(batch).values()]
        rows_read = [rows for rows in read if rows is not None]
        if len(rows_read) < len(read) or not rows_read:
            return ()
        rows = rows_read[0] if len(rows_read) == 1 else torch.cat(rows_read).unique()  # type: ignore[no-untyped-call]
        few = len(rows) < MOST_ROWS * len(batch.tokens.ids)
        any_rows = len(rows) > 0 or TWO_STREAMS in self.encoder.provides  # whose queries may be all that is read
        return (rows,) if few and any_rows else ()


@dataclass(frozen=True)
class JointGradients:
    """A loss that compares all sequences of a step, and its gradient; see `joint_gradients`.

    Attributes:
        loss: the loss of all micro-batches.
        gradients: that with respect to the outputs of each micro-batch, (sequences, any number) each.
    """

    loss: Loss
    gradients: Sequence[Tensor]

    def attach(self, batch: Batch, index: int) -> Batch:
        """Return a micro-batch with its gradient, from which `Learner.forward` continues."""
        return replace(batch, labels={**batch.labels, GRADIENT: self.gradients[index]})


def joint_gradients(
    learner: Learner, micro_batches: Sequence[Batch], seed_dropout: Callable[[int], None]
) -> JointGradients:
    """Return the loss of a step whose only objective is `joint`, and its gradient, in the memory of a micro-batch.

    This is GradCache (Gao et al. 2021, section 3): the gradient is that with respect to the outputs of each
    micro-batch. The training loop then computes each micro-batch a second time, and continues the gradient into the
    encoder: it is that of the step as a whole, for one more forward pass. Both passes draw the same dropout, as they
    are seeded alike. The first one records the graph of a micro-batch, too, and drops it at once: without a graph, some
    kernels are others, and outputs would differ by rounding.

    Args:
        learner: the learner, in training mode.
        micro_batches: the micro-batches of the step, on the learner's device.
        seed_dropout: called before each micro-batch with its index.
    """
    computed = []
    for index, batch in enumerate(micro_batches):
        seed_dropout(index)
        computed.append(learner.outputs(batch).detach())
    outputs = torch.cat(computed).requires_grad_()  # (sequences, any number)
    ((name, objective),) = learner.active(micro_batches[0]).items()
    part = objective.compare(outputs, micro_batches)
    (gradient,) = torch.autograd.grad(part.sum, outputs)
    return JointGradients(
        Loss({name: part._replace(sum=part.sum.detach())}, {}), gradient.split_with_sizes([*map(len, computed)])
    )


def loss_weights(objectives: Mapping[str, ObjectiveSettings]) -> dict[str, float]:
    """Return the weight of each part of the loss, given the settings of the objectives by name."""
    return {
        part: weight for name, settings in objectives.items() for part, weight in settings.part_weights(name).items()
    }
