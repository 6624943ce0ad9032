"""bf16 computation with float32 weights.

In bf16 the forward and backward pass run on a working copy of the learner, whose weights, activations and gradients are
bf16, so that nothing is converted between matrix products. The learner itself keeps the float32 weights, which are
rounded into the copy after each step (Micikevicius et al. 2018, section 3.1). Losses are summed in float32.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from unmask.objectives.learner import Learner
from unmask.training import kernels
from unmask.training.machine import Machine


class Working:
    """Working copy of a learner; in float32 it is the learner itself.

    Args:
        learner: holds the float32 weights and, after `gather`, their gradients.
        machine: machine whose precision is used.
    """

    def __init__(self, learner: Learner, machine: Machine) -> None:
        self.learner = learner
        self.copy = learner
        if machine.dtype != torch.float32:
            self.copy = copy.deepcopy(learner).to(machine.dtype)
        self.pairs = list(zip(learner.parameters(), self.copy.parameters(), strict=True))
        self.gradients: dict[
            nn.Parameter, Tensor
        ] = {}  # float32, reused: allocating in each step costs more than adding

    @torch.no_grad()
    def gather(self) -> None:
        """Add the gradients of a micro-batch to the learner's, in float32, and clear them."""
        if self.copy is self.learner:
            return
        for parameter, working in self.pairs:
            grad, working.grad = working.grad, None
            if grad is None:
                continue
            first = parameter.grad is None
            if parameter.grad is None:
                if parameter not in self.gradients:
                    self.gradients[parameter] = torch.empty_like(parameter)
                parameter.grad = self.gradients[parameter]
            if grad.is_sparse:  # of an embedding that is only used for look-up
                if first:
                    parameter.grad.zero_()
                parameter.grad.index_add_(0, grad._indices()[0], grad._values().float())
            elif first:
                parameter.grad.copy_(grad)
            else:
                parameter.grad += grad

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the learner's weights into the working copy."""
        if self.copy is not self.learner:
            weights, working = zip(*self.pairs, strict=True)
            kernels.copy_(working, weights)
