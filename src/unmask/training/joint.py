"""Losses that compare all sequences of a step, in the memory of a micro-batch: GradCache (Gao et al. 2021, section 3).

Input: the micro-batches of a step, and a learner, whose only objective for them is `joint`. Output: the loss of the
whole step, and its gradient with respect to the outputs of each micro-batch. The training loop then computes each
micro-batch a second time, and continues the gradient into the encoder: it is that of the step as a whole, for one more
forward pass.

Both passes draw the same dropout, as they are seeded alike. The first one records the graph of a micro-batch, too, and
drops it at once: without a graph, some kernels are others, and outputs would differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import GRADIENT, Learner, Loss


@dataclass(frozen=True)
class JointGradients:
    """The loss of a step, and its gradient.

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
    """Return the loss of a step and its gradient; see the module.

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
